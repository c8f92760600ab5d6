"""Common parts of calibrations: residuals of a Gaussian process, and intervals."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

EIGHTY = 1.2816
"""Standard deviations on either side of an 80 % interval."""

_ROBUST, _ROUNDS = 2.0, 8


def widened(alike: Floats, left: Floats, sigma: Floats) -> Floats:
    """Return the uncertainty of each row, larger for rows far from the process's prediction by the others.

    ``alike`` is the covariance of the rows, ``left`` their residuals, ``sigma`` their own uncertainty; a
    row two of its standard deviations off counts less, by repeated least squares.
    """
    doubt = sigma
    for _ in range(_ROUNDS):
        mean = alike @ np.linalg.solve(alike + np.diag(doubt**2), left)
        weight = 1 / np.sqrt(1 + ((left - mean) / sigma / _ROBUST) ** 2)
        doubt = sigma / np.sqrt(weight)
    return doubt
