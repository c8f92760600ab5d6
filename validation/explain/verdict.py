"""Which single cause explains a log, which cannot be told apart from it, or that nothing departs.

    cost = weight * sum over rows of 5/2 * log(1 + z^2 / 4),    z = log(measured / predicted) / sigma

sigma is how far the family itself leaves a row open. That is a Student's t of four degrees of freedom, so
that some wild rows decide nothing. The rows of a run err together: a run counts as `PER_RUN` of them at most.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ringside.sim.libraries.gaussian import EIGHTY
from ringside.sim.record import Record
from ringside.validation.explain.causes import Cause

Floats = NDArray[np.float64]
Places = NDArray[np.intp]

PER_RUN = 10

CLEAR = 10.0
"""By how much a cause's cost must be below the family's. No public run comes so far, and they are sound."""

HINT = 3.0
"""By how much at least where the rows are slow but the family leaves them wide open."""

ALIKE = 3.0
"""Causes whose costs are nearer than this cannot be told apart."""

ALIKE_PART = 1 / 3
"""Nor those that come so near to the best one's gain: no family is known well enough to part them."""

WORTH = 0.223
"""Log time by which the rows that show a cause must be slow, typically: a quarter."""

_LEAST_SIGMA = 0.05


@dataclass(frozen=True, eq=False, slots=True)
class Prediction:
    """Log seconds of each row, and how far the family leaves them open; NaN where nothing can run so."""

    mean: Floats
    sigma: Floats


class Family(Protocol):
    """A log's rows as others of their kind take, and what they would take under a cause.

    ``bound_s`` is what the links need at the least, ``runs`` how many runs the rows are of.
    """

    records: list[Record]
    as_family: Prediction
    bound_s: Floats
    runs: int

    @property
    def causes(self) -> Sequence[Cause]:
        """What may be asked of these rows."""

    def under(self, cause: Cause, value: float | str) -> Prediction:
        """What they would take."""

    def as_usual(self) -> Prediction:
        """What they would take without what the log says of itself."""

    @property
    def told(self) -> str:
        """What the log says of itself that is not as usual; empty where nothing is."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A cause at the value that fits best; ``left`` is by what factor slow rows are off under it."""

    cause: Cause
    value: float | str
    cost: float
    left: float
    predicted_s: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Told:
    """What the log says of itself, and what that costs: at most ``factor``, in these ``rows``.

    ``shown`` says whether the rows are nearer to the family with it than without.
    """

    says: str
    factor: float
    rows: tuple[int, ...]
    shown: bool


@dataclass(frozen=True, slots=True)
class Verdict:
    """``rows`` are those that lie above what the family leaves open, ``slower`` by how much, typically.

    ``typical`` is the factor of all rows, below 1 where they are faster. ``named`` are the causes that
    explain it and cannot be told apart: one, several, or none; ``clear`` says whether they do so beyond
    doubt, or the family leaves such rows too wide open. ``tried`` are all, best first.
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
    named: tuple[Candidate, ...]
    tried: tuple[Candidate, ...]
    told: Told | None


def judge(family: Family) -> Verdict:
    """Try every cause on all rows."""
    measured = np.log([record.time_s for record in family.records])
    expected = family.as_family
    over = measured - expected.mean
    slow = np.flatnonzero(over > EIGHTY * np.maximum(expected.sigma, _LEAST_SIGMA))
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
    told_apart = tried[0].cost + max(ALIKE, ALIKE_PART * gain) if clear or departs else -np.inf
    named = [one for one in tried if one.cost <= min(told_apart, cost - least)]
    wide = EIGHTY * expected.sigma
    return Verdict(
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
        told=_told(family, measured, cost),
    )


def _best(family: Family, measured: Floats, cause: Cause, slow: Places) -> Candidate:
    """A fitted value costs one."""
    found = []
    for value in cause.values:
        prediction = family.under(cause, value)
        cost = _cost(family, measured, prediction) + float(cause.free)
        left = _left(measured - prediction.mean, slow)
        found.append(Candidate(cause, value, cost, left, _seconds(prediction.mean)))
    return min(found, key=lambda one: one.cost)


def _cost(family: Family, measured: Floats, prediction: Prediction) -> float:
    if np.isnan(prediction.mean).any():
        return float("inf")
    z = (measured - prediction.mean) / np.maximum(family.as_family.sigma, _LEAST_SIGMA)
    weight = min(1.0, PER_RUN * family.runs / len(z))
    return float(weight * np.sum(2.5 * np.log1p(z**2 / 4)))


def _told(family: Family, measured: Floats, cost: float) -> Told | None:
    if not family.told:
        return None
    usual = family.as_usual()
    more = np.nan_to_num(family.as_family.mean - usual.mean)
    rows = np.flatnonzero(more > np.log(1.05))
    factor = float(np.exp(more.max(initial=0.0)))
    return Told(family.told, factor, tuple(map(int, rows)), cost < _cost(family, measured, usual))


def _left(over: Floats, slow: Places) -> float:
    """By what factor the slow rows, or all where none is slow, are typically off."""
    return float(np.exp(np.median(np.abs(over[slow] if len(slow) else over))))


def _seconds(logs: Floats) -> tuple[float, ...]:
    return tuple(map(float, np.exp(logs)))
