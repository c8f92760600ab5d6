"""What calibrations of measured times share: how far rows lie off a Gaussian process, and intervals."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

EIGHTY = 1.2816
"""Standard deviations to either side that hold four of five."""

_ROBUST, _ROUNDS = 2.0, 8


def widened(alike: Floats, left: Floats, sigma: Floats) -> Floats:
    """The doubt of each row, larger for rows far off what the others of the process say.

    ``alike`` is the covariance of the rows, ``left`` what a form left of them, ``sigma`` their own doubt; a
    row two of its standard deviations off counts less, by repeated least squares.
    """
    found = sigma
    for _ in range(_ROUNDS):
        mean = alike @ np.linalg.solve(alike + np.diag(found**2), left)
        weight = 1 / np.sqrt(1 + ((left - mean) / sigma / _ROBUST) ** 2)
        found = sigma / np.sqrt(weight)
    return found
