"""Judge which single cause explains a log, which causes are indistinguishable, or that there is no anomaly.

cost = weight * sum over rows of 5/2 * log(1 + z^2 / 4),    z = log(measured / predicted) / sigma

sigma is a row's uncertainty among similar machines, at least `EXTRAPOLATED` far from measured rows. A row is
slow if it exceeds its 80 % interval and its neighbours in size do too. The cost is that of a Student's t of
four degrees of freedom, so a single outlier has little influence. Errors of one run's rows are correlated: a
run counts as at most `PER_RUN` rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ringside.sim.libraries.gaussian import EIGHTY
from ringside.sim.record import Record
from ringside.validation.explain.causes import SlowCause, Value

Floats = NDArray[np.float64]
Places = NDArray[np.intp]

PER_RUN = 10

NEIGHBOURS = 3
"""Successive sizes of a collective that must all be beyond their intervals."""

EXTRAPOLATED = 0.5
"""Deviation in log time of a row far from measured ones, where the model alone predicts."""

CLEAR = 10.0
"""Minimum gain of a cause over similar machines in cost. No public run of a sound machine reaches it."""

HINT = 9.0
"""The minimum gain where the rows are slow but their uncertainty is large; healthy public runs reach 8.7."""

ALIKE = 3.0
"""Causes whose costs differ by less are indistinguishable."""

ALIKE_PART = 1 / 3
"""Causes with this share of the best one's gain are indistinguishable too: the models are too uncertain."""

WORTH = 0.223
"""Minimum typical slowdown, in log time, of the rows that show a cause: a quarter."""

_LEAST_SIGMA = 0.05


@dataclass(frozen=True, eq=False, slots=True)
class LogPrediction:
    """Log seconds of each row, and their uncertainty; NaN where the row cannot run.

    ``sigma`` is the standard deviation, ``half`` half of the 80 % interval.
    """

    mean: Floats
    sigma: Floats
    half: Floats


class Family(Protocol):
    """The predicted times of a log's rows on similar machines, with and without a cause.

    ``bound_s`` is the minimum that the links need, ``runs`` the number of runs in the rows. ``measured`` are
    the rows near measured ones of similar machines, ``shown`` the causes that the log's own lines show.
    """

    records: list[Record]
    as_family: LogPrediction
    measured: NDArray[np.bool_]
    shown: frozenset[str]
    bound_s: Floats
    runs: int

    @property
    def causes(self) -> Sequence[SlowCause]:
        """Return the causes that may apply to these rows."""

    def under(self, cause: SlowCause, value: Value) -> LogPrediction:
        """Predict the rows under the cause."""

    def as_usual(self) -> LogPrediction:
        """Predict the rows without the log's own unusual settings."""

    @property
    def unusual(self) -> str:
        """The log's own unusual settings; empty for none."""


@dataclass(frozen=True, slots=True)
class CauseFit:
    """A cause at its best value; ``left`` is the factor by which slow rows remain off."""

    cause: SlowCause
    value: Value
    cost: float
    left: float
    predicted_s: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class UnusualSettings:
    """The log's own unusual settings and their cost: at most ``factor``, in these ``rows``.

    ``shown`` is whether the rows are closer to similar machines with the settings than without.
    """

    says: str
    factor: float
    rows: tuple[int, ...]
    shown: bool


@dataclass(frozen=True, slots=True)
class LogVerdict:
    """The judgement; ``rows`` are slower than their uncertainty, typically by the factor ``slower``.

    ``typical`` is the factor of all rows, below 1 if they are faster. ``named`` are the causes that explain
    it and are indistinguishable: one, several, or none; ``clear`` is whether the explanation is certain, or
    the uncertainty too large. ``tried`` are all causes, best first. ``extrapolated`` counts the rows that are
    far from measured ones.
    """

    records: tuple[Record, ...]
    family_s: tuple[float, ...]
    lo_s: tuple[float, ...]
    hi_s: tuple[float, ...]
    bound_s: tuple[float, ...]
    rows: tuple[int, ...]
    slower: float
    typical: float
    departs: bool
    clear: bool
    left: float
    named: tuple[CauseFit, ...]
    tried: tuple[CauseFit, ...]
    unusual: UnusualSettings | None
    extrapolated: int


def judge(family: Family) -> LogVerdict:
    """Try every cause on all rows."""
    measured = np.log([record.time_s for record in family.records])
    expected = family.as_family
    over = measured - expected.mean
    slow = slow_rows(family)
    slower = float(np.median(over[slow])) if len(slow) else 0.0
    cost = _cost(family, measured, expected)
    tried = sorted(
        (_best(family, measured, cause, slow) for cause in family.causes), key=lambda one: one.cost
    )
    tried = [one for one in tried if np.isfinite(one.cost)]
    gain = cost - tried[0].cost if tried else 0.0
    departs = slower >= WORTH and len(slow) >= max(len(over) / 6, 2)
    clear = slower >= WORTH and gain >= CLEAR
    least = CLEAR if clear else HINT
    distinct = tried[0].cost + max(ALIKE, ALIKE_PART * gain) if clear or departs else -np.inf
    named = [one for one in tried if one.cost <= min(distinct, cost - least)]
    named.sort(key=lambda one: one.cause.key not in family.shown)
    wide = _half(family)
    return LogVerdict(
        tuple(family.records),
        *(_seconds(expected.mean), _seconds(expected.mean - wide), _seconds(expected.mean + wide)),
        bound_s=tuple(map(float, family.bound_s)),
        rows=tuple(map(int, slow)),
        slower=float(np.exp(slower)),
        typical=float(np.exp(np.median(over))),
        departs=clear or departs,
        clear=clear,
        left=_left(over, slow),
        named=tuple(named),
        tried=tuple(tried),
        unusual=_unusual(family, measured, cost),
        extrapolated=int(np.sum(~family.measured)),
    )


def slow_rows(family: Family) -> Places:
    """Return the rows beyond their 80 % intervals, of those whose neighbours in size are too."""
    over = np.log([record.time_s for record in family.records]) - family.as_family.mean
    return _with_neighbours(family.records, over > _half(family))


def _half(family: Family) -> Floats:
    return _at_least(family, family.as_family.half, EIGHTY)


def _sigma(family: Family) -> Floats:
    return _at_least(family, family.as_family.sigma, 1.0)


def _at_least(family: Family, width: Floats, unit: float) -> Floats:
    """Return a width of each row in units of deviations, no less than is ever known."""
    width = np.maximum(width, unit * _LEAST_SIGMA)
    return np.where(family.measured, width, np.hypot(width, unit * EXTRAPOLATED))


def _with_neighbours(records: Sequence[Record], slow: NDArray[np.bool_]) -> Places:
    """Return the slow rows whose neighbours in size are slow too."""
    series: dict[tuple[str | int, ...], list[int]] = {}
    for place in sorted(range(len(records)), key=lambda place: records[place].nbytes):
        one = records[place]
        key = one.source, one.collective, one.algorithm, one.protocol, one.num_nodes, one.ranks
        series.setdefault(key, []).append(place)
    kept: list[int] = []
    for places in series.values():
        for is_slow, group in groupby(places, key=lambda place: bool(slow[place])):
            neighbours = list(group)
            if is_slow and len(neighbours) >= min(NEIGHBOURS, len(places)):
                kept += neighbours
    return np.array(sorted(kept), dtype=np.intp)


def _best(family: Family, measured: Floats, cause: SlowCause, slow: Places) -> CauseFit:
    """Return the best value of a cause; a fitted value costs one."""
    candidates = []
    for value in cause.values:
        prediction = family.under(cause, value)
        cost = _cost(family, measured, prediction) + cause.free
        left = _left(measured - prediction.mean, slow)
        candidates.append(CauseFit(cause, value, cost, left, _seconds(prediction.mean)))
    return min(candidates, key=lambda one: one.cost)


def _cost(family: Family, measured: Floats, prediction: LogPrediction) -> float:
    if np.isnan(prediction.mean).any():
        return float("inf")
    z = (measured - prediction.mean) / _sigma(family)
    weight = min(1.0, PER_RUN * family.runs / len(z))
    return float(weight * np.sum(2.5 * np.log1p(z**2 / 4)))


def _unusual(family: Family, measured: Floats, cost: float) -> UnusualSettings | None:
    if not family.unusual:
        return None
    usual = family.as_usual()
    more = np.nan_to_num(family.as_family.mean - usual.mean)
    rows = np.flatnonzero(more > np.log(1.05))
    factor = float(np.exp(more.max(initial=0.0)))
    return UnusualSettings(
        family.unusual, factor, tuple(map(int, rows)), cost < _cost(family, measured, usual)
    )


def _left(over: Floats, slow: Places) -> float:
    """Return the typical error factor of the slow rows, or of all rows if none is slow."""
    return float(np.exp(np.median(np.abs(over[slow] if len(slow) else over))))


def _seconds(logs: Floats) -> tuple[float, ...]:
    return tuple(map(float, np.exp(logs)))
