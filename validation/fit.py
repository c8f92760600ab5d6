"""The fit: few, physical, non-negative parameters from measured times, with their uncertainty.

Predicted time is, between kinks, linear in (alpha, beta, gamma, launch): it is a longest path whose links
cost sums of them. So the fit alternates between the slopes at the current parameters and a robust fit with
these slopes, until neither changes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares, lsq_linear

from ringside.sim.parameters import Parameters
from ringside.validation.rows import PlacedRecord

Floats = NDArray[np.float64]

NAMES = ("alpha", "beta", "launch", "gamma")
"""The order in which parameters become free: one that earlier ones explain equally well stays fixed."""

_STARTS = [np.array([alpha, beta, 0.0, 0.0]) for alpha in (0.02, 0.1, 0.4) for beta in (0.1, 0.3, 0.9)]
_ROBUST = 0.1  # relative errors beyond a tenth weigh less and less
_ALIKE = 0.05
_ROWS_EACH = 2  # with fewer rows than this per parameter a fit follows noise
_ROUNDS = 10
_GAIN = 1e-3
_BOOTSTRAPS = 200
_TINY = 1e-12
_NOTHING = 1e-4  # the maximum share of a row's time


@dataclass(frozen=True, slots=True)
class Solution:
    """Fitted parameters, their bootstrap intervals, why some are fixed; each row's measured / predicted."""

    parameters: Parameters
    interval: dict[str, tuple[float, float]]
    fixed: dict[str, str]
    ratios: Floats


def fit(rows: Sequence[PlacedRecord]) -> Solution:
    """Fit the parameters to the rows' times, with equal weights in relative error."""
    measured = np.array([row.record.time_s for row in rows])
    scale = _scale(rows, measured)
    starts = [(scale * start, _times(rows, scale * start)) for start in _STARTS]
    theta, predicted = min(starts, key=lambda start: _cost(start[1] / measured))
    for most in (2, len(NAMES)):  # latency and bandwidth first: other terms show only beside them
        for _ in range(_ROUNDS):
            slopes = _slopes(rows, theta, predicted, 1e-6 * np.maximum(theta, scale))
            free, fixed = _free(slopes / measured[:, None], most)
            better = _walk(rows, measured, theta, predicted, _robust(slopes, measured, free), free)
            if better is None:
                break
            theta, predicted = better
    ratios = measured / predicted
    return Solution(_parameters(theta), _intervals(slopes, ratios, theta, free), fixed, ratios)


def _walk(
    rows: Sequence[PlacedRecord],
    measured: Floats,
    theta: Floats,
    predicted: Floats,
    target: Floats,
    free: list[int],
) -> tuple[Floats, Floats] | None:
    """Step from ``theta`` towards ``target`` while the rows' true times improve; None if they never do.

    The slopes hold up to the next kink only, so the target may lie beyond their range. Parameters that are
    not free stay 0.
    """
    before = _cost(predicted / measured)
    for share in (1.0, 0.5, 0.25, 0.1, 0.03):
        there = np.zeros_like(theta)
        there[free] = (theta + share * (target - theta))[free]
        times = _times(rows, there)
        if _cost(times / measured) < before * (1 - _GAIN):
            return there, times
    return None


def _cost(ratios: Floats) -> float:
    """Return the soft-L1 loss of the logarithms."""
    return float(np.sum(np.sqrt(1 + (np.log(np.maximum(ratios, _TINY)) / _ROBUST) ** 2) - 1))


def _times(rows: Sequence[PlacedRecord], theta: Floats) -> Floats:
    parameters = _parameters(theta)
    return np.array([row.time(parameters) for row in rows])


def _parameters(theta: Floats) -> Parameters:
    return Parameters(**dict(zip(NAMES, theta.tolist(), strict=True)))


def _scale(rows: Sequence[PlacedRecord], measured: Floats) -> Floats:
    """Return an upper bound of each parameter: the fastest row is all messages, or all bytes."""
    nbytes = np.array([max(row.record.nbytes, 1) for row in rows])
    message, byte = measured.min(), (measured / nbytes).min()
    return np.array([message, byte, message, byte])


def _slopes(rows: Sequence[PlacedRecord], theta: Floats, predicted: Floats, step: Floats) -> Floats:
    """Return the growth of each row's predicted time per parameter, from ``theta`` over a ``step``."""
    columns = [
        (_times(rows, theta + delta * axis) - predicted) / delta
        for delta, axis in zip(step, np.eye(len(step)), strict=True)
    ]
    return np.stack(columns, axis=1)


def _free(columns: Floats, most: int) -> tuple[list[int], dict[str, str]]:
    """Return which parameters, at most ``most``, the rows distinguish, and why not the others."""
    free: list[int] = []
    fixed = {}
    for index, name in enumerate(NAMES):
        column = columns[:, index]
        known = columns[:, free]
        rest = column - known @ np.linalg.lstsq(known, column, rcond=None)[0] if free else column
        if not column.any():
            fixed[name] = "these rows do not depend on it"
        elif np.linalg.norm(rest) < _ALIKE * np.linalg.norm(column):
            fixed[name] = f"these rows cannot distinguish it from {' and '.join(NAMES[i] for i in free)}"
        elif len(free) >= min(most, len(columns) // _ROWS_EACH):
            fixed[name] = f"{len(columns)} rows are too few for another parameter"
        else:
            free.append(index)
    return free, fixed


def _robust(slopes: Floats, measured: Floats, free: list[int]) -> Floats:
    """Return non-negative parameters that minimise log(measured / predicted), robust against outliers."""
    relative = slopes[:, free] / measured[:, None]
    scale = np.abs(relative).max(axis=0)
    matrix = relative / scale
    begin = np.maximum(lsq_linear(matrix, np.ones(len(measured)), bounds=(0, np.inf)).x, _TINY)

    def residuals(x: Floats) -> Floats:
        logs: Floats = np.log(np.maximum(matrix @ x, _TINY))
        return logs

    solution = least_squares(residuals, begin, bounds=(0, np.inf), loss="soft_l1", f_scale=_ROBUST)
    theta = np.zeros(slopes.shape[1])
    theta[free] = np.where(solution.x < _NOTHING, 0.0, solution.x) / scale
    return theta


def _intervals(
    slopes: Floats, ratios: Floats, theta: Floats, free: list[int]
) -> dict[str, tuple[float, float]]:
    """Return the 5th to 95th percentile of each free parameter over fits to resampled residuals.

    The intervals are around the estimate: the search may end away from the optimum of its slopes, so only the
    scatter of the fits counts.
    """
    draw, predicted = np.random.default_rng(0), slopes @ theta
    fits = [
        _robust(slopes, predicted * draw.choice(ratios, size=len(ratios)), free) for _ in range(_BOOTSTRAPS)
    ]
    scatter = np.array(fits) - np.median(fits, axis=0)
    low, high = theta + np.percentile(scatter, [5, 95], axis=0)
    return {NAMES[i]: (max(float(low[i]), 0.0), float(high[i])) for i in free}
