"""The fit: what is expected of a machine's parameters, corrected by its measurements (robust MAP).

Log-normal priors, a soft-L1 loss of log time; graph facts that nobody wrote down are those that explain the
rows best, and differ from the preset only where that gains much; then the correction for what is left.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from sim.libraries.nccl.communicator import MAX_CHANNELS
from sim.libraries.nccl.measured.messages import Work, time_us, work_of
from sim.libraries.nccl.measured.model import Facts, Measured, corrected, log_form
from validation.measured.observed import Chosen, Observed, choose
from validation.measured.priors import Prior, priors

Floats = NDArray[np.float64]

ONE_SITE, POOLED = 0.05, 0.12
"""Log spread of rows about the form: of one site, and of several taken together."""

DIGITISED = 0.006
"""The same of points read off a smooth curve in a figure."""

_SURE = 30.0
"""So many deviations off such a point still counts in full: no outlier was ever drawn."""

GAIN = 12.0
"""By how much a fact of the graphs must lower the cost before it is believed against the preset."""

_LEAST_NOISE = 0.02
_TRIALS = 200
_CLOSE = 1e-5


@dataclass(frozen=True, eq=False, slots=True)
class Fitted:
    """A fit: the model, the rows that it took and what they were by the form alone."""

    model: Measured
    priors: tuple[Prior, ...]
    chosen: Chosen
    rows: list[Observed]
    cost: float


def fit(rows: Sequence[Observed], *, pooled: bool = False) -> Fitted:
    """Fit the machine's parameters to rows of one machine."""
    expected = priors(rows[0].comm.system)
    found = _map(rows, Facts(), expected, pooled)
    for facts in _candidates(rows):
        other = _map(rows, facts, expected, pooled)
        if other.cost < found.cost - GAIN:
            found = other
    return _finished(rows, found, expected, pooled)


@dataclass(frozen=True, eq=False, slots=True)
class _Map:
    """The values of largest posterior for one set of facts."""

    facts: Facts
    chosen: Chosen
    work: Work
    log_us: Floats
    scale: Floats
    log_values: Floats
    cost: float
    covariance: Floats


def _map(
    rows: Sequence[Observed],
    facts: Facts,
    expected: Sequence[Prior],
    pooled: bool,
    start: Floats | None = None,
) -> _Map:
    chosen = choose(rows, facts)
    work, kept = work_of(chosen.tasks), [rows[place] for place in chosen.kept]
    measured = np.log([row.record.time_s * 1e6 for row in kept])
    scale = _spread(kept, pooled) / chosen.sure / np.sqrt(_weights(kept, pooled))
    reach = np.where([_is_digitised(row) for row in kept], _SURE, 1.0)
    centre, sigma = np.log([prior.value for prior in expected]), np.array([prior.sigma for prior in expected])
    names = [prior.name for prior in expected]

    def residuals(x: Floats) -> Floats:
        off = (np.log(time_us(work, dict(zip(names, np.exp(x), strict=True)))) - measured) / scale
        return np.concatenate([reach * _soft(off / reach), (x - centre) / sigma])

    def slopes(x: Floats) -> Floats:
        times, by_value = log_form(work, dict(zip(names, np.exp(x), strict=True)))
        off = (times - measured) / scale
        return np.vstack([(by_value * (_soft_slope(off / reach) / scale)).T, np.diag(1 / sigma)])

    begin = centre if start is None else start
    solved = least_squares(
        residuals, begin, slopes, method="lm", x_scale=sigma, ftol=_CLOSE, max_nfev=_TRIALS
    )
    by_value = slopes(solved.x)
    covariance: Floats = np.linalg.inv(by_value.T @ by_value).astype(np.float64)
    return _Map(facts, chosen, work, measured, scale, solved.x, float(solved.cost), covariance)


def _finished(rows: Sequence[Observed], found: _Map, expected: tuple[Prior, ...], pooled: bool) -> Fitted:
    values = {
        prior.name: float(value) for prior, value in zip(expected, np.exp(found.log_values), strict=True)
    }
    left = found.log_us - np.log(time_us(found.work, values))
    correction = corrected(found.work, left, found.scale)
    mean, _ = correction.predict(found.work)
    noise = max(1.4826 * float(np.median(np.abs(left - mean))), _LEAST_NOISE)
    nodes = [rows[place].comm.nodes for place in found.chosen.kept]
    model = Measured(
        values, found.covariance, correction, found.facts, noise, tuple(sorted(set(nodes))), pooled
    )
    return Fitted(model, expected, found.chosen, [rows[place] for place in found.chosen.kept], found.cost)


def _candidates(rows: Sequence[Observed]) -> list[Facts]:
    """What the graphs between nodes may be other than the preset says, the likelier first."""
    between = [row.comm for row in rows if row.comm.nodes > 1]
    if not between:
        return []
    lacking = [False] if any(Facts(ll128=False).on(comm) != comm for comm in between) else []
    count = between[0].channels
    counts = [other for other in (2 * count, 4 * count) if other <= MAX_CHANNELS]
    return [Facts(ll128, channels) for channels in (None, *counts) for ll128 in (True, *lacking)][1:]


def _spread(rows: Sequence[Observed], pooled: bool) -> Floats:
    """The log spread about the form that each row is expected to have."""
    usual = POOLED if pooled else ONE_SITE
    return np.array([DIGITISED if _is_digitised(row) else usual for row in rows])


def _is_digitised(row: Observed) -> bool:
    return "digitised" in row.record.source


def _weights(rows: Sequence[Observed], pooled: bool) -> Floats:
    """1 each; where sites are pooled each run weighs the same."""
    if not pooled:
        return np.ones(len(rows))
    runs = [row.run for row in rows]
    counts = {run: runs.count(run) for run in set(runs)}
    return np.array([len(rows) / len(counts) / counts[run] for run in runs])


def _soft(off: Floats) -> Floats:
    """Square root of the soft-L1 loss, with its sign."""
    found: Floats = np.sign(off) * np.sqrt(2 * (np.sqrt(1 + off**2) - 1))
    return found


def _soft_slope(off: Floats) -> Floats:
    root = np.sqrt(1 + off**2)
    found: Floats = 1 / (root * np.sqrt((root + 1) / 2))
    return found
