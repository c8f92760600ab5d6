"""The fit: what is expected of a machine's MPI, corrected by its measurements (robust MAP).

Log-normal priors, a soft-L1 loss of log time; whether scratch memory is kept between calls is whichever
explains the rows better; then the correction for what is left.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from sim.libraries.mpi.form import Work, time_us, work_of
from sim.libraries.mpi.measured import EXPECTED, KEPT_MIB, PARAMETERS, Measured, corrected
from validation.mpi.observed import Observed

Floats = NDArray[np.float64]

SPREAD = 0.08
"""Log spread of rows about the form."""

LEAST_NOISE = 0.05


def fit(rows: Sequence[Observed]) -> Measured:
    """Fit the machine's parameters to rows of one machine."""
    work = work_of([row.task for row in rows])
    log_us = np.log([row.record.time_s * 1e6 for row in rows])
    _, values = min((_descend(work, log_us, kept) for kept in KEPT_MIB), key=lambda found: found[0])
    left = log_us - np.log(time_us(work, values))
    correction = corrected(work, left, np.full(len(rows), SPREAD))
    mean, _ = correction.predict(work)
    noise = max(1.4826 * float(np.median(np.abs(left - mean))), LEAST_NOISE)
    nodes = tuple(sorted({row.record.num_nodes or row.record.ranks for row in rows}))
    return Measured(values, correction, noise, nodes)


def _descend(work: Work, log_us: Floats, kept: float) -> tuple[float, dict[str, float]]:
    """The values of largest posterior, and their cost; what no row asks for stays as it is expected."""
    centre = np.log([EXPECTED[name].value for name in PARAMETERS])
    sigma = np.array([EXPECTED[name].sigma for name in PARAMETERS])

    def values(x: Floats) -> dict[str, float]:
        return dict(zip(PARAMETERS, np.exp(x).tolist(), strict=True)) | {"kept_MiB": kept}

    def residuals(x: Floats) -> Floats:
        off = (np.log(time_us(work, values(x))) - log_us) / SPREAD
        soft = np.sign(off) * np.sqrt(2 * (np.sqrt(1 + off**2) - 1))
        return np.concatenate([soft, (x - centre) / sigma])

    found = least_squares(residuals, centre, x_scale=sigma)
    return float(found.cost), values(found.x)
