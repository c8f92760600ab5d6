"""A calibrated machine: how long MPI's algorithms take on it, and between which times four of five lie.

Values of the form's parameters, and what the form leaves of the rows that were fitted: a Gaussian process
in log time, alike where one algorithm sends largest messages of about one size. An algorithm that was not
measured has the form alone, and so much more doubt.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ringside.sim.libraries.gaussian import EIGHTY, widened
from ringside.sim.libraries.mpi.form import Task, Way, Work, time_us, work_of
from ringside.sim.libraries.scaling import scaled

Floats = NDArray[np.float64]

CONSTANT, VARYING, OCTAVES = 0.2, 0.25, 1.5
"""What the form leaves of an algorithm in log time: at all sizes alike, and by size over so many octaves."""

PER_DOUBLING = 0.23
"""Standard deviation in log time that each doubling beyond the measured nodes, or tasks a node, adds.

The least that holds four of five held-out rows of every published machine (`ringside.validation.mpi.growth`).
"""

Place = tuple[tuple[Way, ...], Floats]


@dataclass(frozen=True, slots=True)
class Expected:
    """What is expected of a parameter before any measurement: ``sigma`` in natural logarithms."""

    value: float
    sigma: float
    meaning: str


EXPECTED: dict[str, Expected] = {
    "call_us": Expected(0.5, 0.4, "of a call before its first message"),
    "overhead_us": Expected(0.8, 0.5, "of software for a message, both sides together"),
    "far_us": Expected(0.4, 0.7, "for every doubling of the distance in nodes"),
    "gap_us": Expected(0.25, 0.4, "of a rank for each further message that it sends at once"),
    "take_us": Expected(0.06, 0.5, "of a rank for each further message that it takes in"),
    "copy_GBps": Expected(4.5, 0.3, "at which eager messages are copied, both sides together"),
    "handshake_us": Expected(8.0, 0.4, "until a rendezvous moves its first byte"),
    "wait": Expected(1.5, 0.4, "factor on it where sender and receiver do not also exchange"),
    "link": Expected(0.92, 0.05, "part of a card's rate that messages get"),
    "turns_MiB": Expected(2.0, 0.4, "from where two ranks that exchange take turns"),
    "turns": Expected(1.0, 0.3, "part of a card's rate at which they then do"),
    "warm_GBps": Expected(20.0, 0.3, "at which a rank adds or copies in its cache"),
    "cold_GBps": Expected(8.0, 0.3, "the same out of its cache"),
    "cache_MiB": Expected(24.0, 0.3, "of a collective, where half is out of the cache"),
    "fresh_GBps": Expected(2.2, 0.4, "at which memory comes that a call asks for anew"),
    "inside_us": Expected(0.4, 0.4, "of a message inside a node"),
    "inside_GBps": Expected(8.0, 0.4, "of a message inside a node"),
    "memory_GBps": Expected(60.0, 0.4, "at which all ranks of a node add or copy out of their caches"),
}
"""Every parameter that is fitted; microseconds and GB/s."""

PARAMETERS = tuple(EXPECTED)

KEPT_MIB = (32.0, 0.5)
"""From which size on two equal blocks of scratch memory may go back to the system after every call: where
malloc trims soon, as it is set by default, and where it does not."""


@dataclass(frozen=True, eq=False)
class Correction:
    """Rows that were fitted: way, base-2 logarithm of the largest message, what was left, how sure."""

    way: tuple[Way, ...]
    message: Floats
    left: Floats
    sigma: Floats

    def predict(self, work: Work) -> tuple[Floats, Floats]:
        """Mean and standard deviation of log time, a figure a task."""
        most = CONSTANT**2 + VARYING**2
        if not self.way:
            return np.zeros(len(work)), np.full(len(work), np.sqrt(most))
        mine = _alike(_place(work), (self.way, self.message))
        weights = self._inverse @ mine.T
        variance = most - np.sum(mine * weights.T, axis=1)
        return self.left @ weights, np.sqrt(np.maximum(variance, 0.0))

    @cached_property
    def _inverse(self) -> Floats:
        place = self.way, self.message
        found: Floats = np.linalg.inv(_alike(place, place) + np.diag(self.sigma**2)).astype(np.float64)
        return found


def corrected(work: Work, left: Floats, sigma: Floats) -> Correction:
    """The correction for what the form ``left`` of each row; rows far off the others count less."""
    place = _place(work)
    return Correction(*place, left, widened(_alike(place, place), left, sigma))


def _place(work: Work) -> Place:
    return work.way, np.log2(np.maximum(work.message, 1.0))


def _alike(a: Place, b: Place) -> Floats:
    same = np.array([[one == other for other in b[0]] for one in a[0]], dtype=np.float64)
    apart = (a[1][:, None] - b[1][None, :]) / OCTAVES
    found: Floats = same.reshape(apart.shape) * (CONSTANT**2 + VARYING**2 * np.exp(-0.5 * apart**2))
    return found


@dataclass(frozen=True, eq=False, slots=True)
class Measured:
    """What was fitted to one machine.

    ``noise`` is the log spread that is left; ``nodes`` and ``tasks`` a node were measured.
    """

    values: Mapping[str, float]
    correction: Correction
    noise: float
    nodes: tuple[int, ...]
    tasks: tuple[int, ...]

    def log_us(self, work: Work, protocol: str = "auto") -> tuple[Floats, Floats]:
        """Log of microseconds, and its standard deviation."""
        mean, uncertain = self.correction.predict(work)
        sigma = np.sqrt(uncertain**2 + self.noise**2 + (PER_DOUBLING * self.beyond(work)) ** 2)
        return np.log(time_us(work, self.values, protocol)) + mean, sigma

    def beyond(self, work: Work) -> Floats:
        """Doublings of nodes and of tasks a node by which each task lies outside what was measured."""
        nodes = work.ranks / work.per_node
        return _outside(nodes, self.nodes) + _outside(work.per_node, self.tasks)

    def seconds(self, tasks: Sequence[Task], protocol: str = "auto") -> tuple[Floats, Floats, Floats]:
        """Seconds of each task, and the ends within which four of five lie."""
        mean, sigma = self.log_us(work_of(tasks), protocol)
        middle = np.exp(mean) * 1e-6
        factor = np.exp(EIGHTY * sigma)
        return middle, middle / factor, middle * factor

    def scaled_seconds(
        self, tasks: Sequence[Task], before: Sequence[Task], protocol: str = "auto"
    ) -> tuple[Floats, Floats, Floats]:
        """The same of tasks on machines with other figures than ``before``, which were measured."""
        if tasks == before:
            return self.seconds(tasks, protocol)
        rows = zip(*self.seconds(before, protocol), changes(tasks, before, protocol), strict=True)
        found = np.array([scaled(*map(float, row)) for row in rows])
        return found[:, 0], found[:, 1], found[:, 2]

    def doubt(self, one: Task, other: Task) -> float:
        """By which fraction the ratio of two tasks' times may be off, four times of five."""
        _, uncertain = self.correction.predict(work_of([one, other]))
        return float(np.expm1(EIGHTY * np.sqrt(np.sum(uncertain**2) + 2 * self.noise**2)))


def changes(tasks: Sequence[Task], before: Sequence[Task], protocol: str = "auto") -> Floats:
    """How many times as long each task takes as the one before it, with figures that are usual."""
    now, was = (time_us(work_of(some), expected(), protocol) for some in (tasks, before))
    found: Floats = now / was
    return found


def _outside(count: Floats, measured: Sequence[int]) -> Floats:
    """Doublings by which each count lies above the largest measured one, or below the smallest."""
    doublings: Floats = np.log2(
        np.maximum(count / max(measured), 1.0) * np.maximum(min(measured) / count, 1.0)
    )
    return doublings


def expected() -> dict[str, float]:
    """Values of a machine that nobody measured; distance costs what its topology says."""
    return {name: one.value for name, one in EXPECTED.items()} | {"far_us": 0.0, "kept_MiB": KEPT_MIB[0]}
