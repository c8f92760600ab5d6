"""A calibrated machine: times of MPI's algorithms on it, with 80 % intervals.

Values of the form's parameters, and a Gaussian process of the fitted rows' residuals
in log time, correlated if one algorithm's largest messages are of similar size. An algorithm without
measurements has the form alone, and more uncertainty.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ringside.sim.libraries.gaussian import EIGHTY, widened
from ringside.sim.libraries.mpi.form import MpiTask, MpiTaskArrays, Way, time_us, work_of
from ringside.sim.libraries.mpi.rounds import ROUNDS
from ringside.sim.libraries.scaling import scaled

Floats = NDArray[np.float64]

CONSTANT, VARYING, OCTAVES = 0.2, 0.25, 1.5
"""Residuals of an algorithm in log time: a part equal at all sizes, and one that varies over octaves."""

PER_DOUBLING = 0.23
"""Standard deviation in log time that each doubling beyond the measured nodes, or tasks a node, adds.

The smallest that covers four of five held-out rows per published machine (`ringside.validation.mpi.growth`).
"""

Place = tuple[tuple[Way, ...], Floats]


@dataclass(frozen=True, slots=True)
class Expected:
    """The prior of a parameter: ``sigma`` in natural logarithms."""

    value: float
    sigma: float
    meaning: str


EXPECTED: dict[str, Expected] = {
    "call_us": Expected(0.5, 0.4, "of a call before its first message"),
    "overhead_us": Expected(0.8, 0.5, "of software for a message, both sides together"),
    "far_us": Expected(0.4, 0.7, "for every doubling of the distance in nodes"),
    "gap_us": Expected(0.25, 0.4, "of a rank for each further message that it sends at once"),
    "take_us": Expected(0.06, 0.5, "of a rank for each further message that it receives"),
    "copy_GBps": Expected(4.5, 0.3, "at which eager messages are copied, both sides together"),
    "handshake_us": Expected(8.0, 0.4, "until a rendezvous moves its first byte"),
    "wait": Expected(1.5, 0.4, "factor on it if messages go one way only"),
    "link": Expected(0.92, 0.05, "part of a card's rate that messages get"),
    "turns_MiB": Expected(2.0, 0.4, "from which two ranks that exchange take turns"),
    "turns": Expected(1.0, 0.3, "part of a card's rate in these turns"),
    "warm_GBps": Expected(20.0, 0.3, "at which a rank adds or copies in its cache"),
    "cold_GBps": Expected(8.0, 0.3, "the same outside its cache"),
    "cache_MiB": Expected(24.0, 0.3, "of a collective, at which half is outside the cache"),
    "fresh_GBps": Expected(2.2, 0.4, "at which a call's newly allocated memory arrives"),
    "inside_us": Expected(0.4, 0.4, "of a message inside a node"),
    "inside_GBps": Expected(8.0, 0.4, "of a message inside a node"),
    "memory_GBps": Expected(60.0, 0.4, "at which all ranks of a node add or copy outside their caches"),
}
"""Every fitted parameter; microseconds and GB/s."""

PARAMETERS = tuple(EXPECTED)

KEPT_MIB = (32.0, 0.5)
"""Sizes from which two equal scratch blocks return to the system after each call: if malloc trims early, and
if not.
"""


@dataclass(frozen=True, eq=False)
class MpiCorrection:
    """Fitted rows: way, base-2 logarithm of the largest message, residual, uncertainty."""

    way: tuple[Way, ...]
    message: Floats
    left: Floats
    sigma: Floats

    def predict(self, work: MpiTaskArrays) -> tuple[Floats, Floats]:
        """Return mean and standard deviation of log time, one per task."""
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
        inverse: Floats = np.linalg.inv(_alike(place, place) + np.diag(self.sigma**2)).astype(np.float64)
        return inverse


def corrected(work: MpiTaskArrays, left: Floats, sigma: Floats) -> MpiCorrection:
    """Return the correction for the form's residuals ``left``; outliers count less."""
    place = _place(work)
    return MpiCorrection(*place, left, widened(_alike(place, place), left, sigma))


def _place(work: MpiTaskArrays) -> Place:
    return work.way, np.log2(np.maximum(work.message, 1.0))


def _alike(a: Place, b: Place) -> Floats:
    same = np.array([[one == other for other in b[0]] for one in a[0]], dtype=np.float64)
    apart = (a[1][:, None] - b[1][None, :]) / OCTAVES
    covariance: Floats = same.reshape(apart.shape) * (CONSTANT**2 + VARYING**2 * np.exp(-0.5 * apart**2))
    return covariance


@dataclass(frozen=True, eq=False, slots=True)
class MpiModel:
    """The fit to one machine.

    ``noise`` is the remaining log spread; ``nodes`` and ``tasks`` per node are the measured counts.
    """

    values: Mapping[str, float]
    correction: MpiCorrection
    noise: float
    nodes: tuple[int, ...]
    tasks: tuple[int, ...]

    def log_us(self, work: MpiTaskArrays, protocol: str = "auto") -> tuple[Floats, Floats]:
        """Return the log of microseconds, and its standard deviation."""
        mean, uncertain = self.correction.predict(work)
        sigma = np.sqrt(uncertain**2 + self.noise**2 + (PER_DOUBLING * self.beyond(work)) ** 2)
        return np.log(time_us(work, self.values, protocol)) + mean, sigma

    def beyond(self, work: MpiTaskArrays) -> Floats:
        """Return doublings of nodes and of tasks per node by which each task exceeds the measured range."""
        nodes = work.ranks / work.per_node
        return _outside(nodes, self.nodes) + _outside(work.per_node, self.tasks)

    def seconds(self, tasks: Sequence[MpiTask], protocol: str = "auto") -> tuple[Floats, Floats, Floats]:
        """Return the seconds of each task, and the ends of its 80 % interval."""
        mean, sigma = self.log_us(work_of(tasks), protocol)
        middle = np.exp(mean) * 1e-6
        factor = np.exp(EIGHTY * sigma)
        return middle, middle / factor, middle * factor

    def scaled_seconds(
        self, tasks: Sequence[MpiTask], before: Sequence[MpiTask], protocol: str = "auto"
    ) -> tuple[Floats, Floats, Floats]:
        """Return the same for machines whose figures differ from the measured machine's, ``before``."""
        if tasks == before:
            return self.seconds(tasks, protocol)
        rows = zip(*self.seconds(before, protocol), changes(tasks, before, protocol), strict=True)
        scaled_rows = np.array([scaled(*map(float, row)) for row in rows])
        return scaled_rows[:, 0], scaled_rows[:, 1], scaled_rows[:, 2]

    def doubt(self, one: MpiTask, other: MpiTask) -> float:
        """Return the relative uncertainty of the ratio of two tasks' times, as an 80 % interval."""
        _, uncertain = self.correction.predict(work_of([one, other]))
        return float(np.expm1(EIGHTY * np.sqrt(np.sum(uncertain**2) + 2 * self.noise**2)))


def changes(tasks: Sequence[MpiTask], before: Sequence[MpiTask], protocol: str = "auto") -> Floats:
    """Return the ratio of each task's time to that of the task ``before``, both with prior figures."""
    now, was = (time_us(work_of(some), expected(), protocol) for some in (tasks, before))
    ratios: Floats = now / was
    return ratios


def _outside(count: Floats, measured: Sequence[int]) -> Floats:
    """Return the doublings by which each count is above the largest measured one, or below the smallest."""
    doublings: Floats = np.log2(
        np.maximum(count / max(measured), 1.0) * np.maximum(min(measured) / count, 1.0)
    )
    return doublings


def expected() -> dict[str, float]:
    """Return prior values for a machine without measurements; distance costs what its topology says."""
    return {name: one.value for name, one in EXPECTED.items()} | {"far_us": 0.0, "kept_MiB": KEPT_MIB[0]}


@dataclass(frozen=True, kw_only=True)
class StoredMpi:
    """A `MpiModel` in numbers and text.

    ``correction`` has a line per fitted row: collective, algorithm, ``alone`` on its node or ``shared``,
    base-2 logarithm of the largest message, residual and uncertainty. ``rows`` of ``versions``
    of MPI were fitted, on ``nodes`` with ``tasks`` each; the errors are of the fitted rows, and ``worst``
    names the worst.
    """

    machine: str
    rows: int
    versions: tuple[str, ...]
    nodes: tuple[int, ...]
    tasks: tuple[int, ...] = (1,)
    noise: float
    kept_MiB: float  # noqa: N815 (the unit is spelled so)
    median_error: float
    p90_error: float
    worst: tuple[str, ...]
    parameters: dict[str, float]
    correction: str = field(repr=False)

    def __post_init__(self) -> None:
        if set(self.parameters) != set(PARAMETERS):
            odd = sorted(set(self.parameters) ^ set(PARAMETERS))
            raise ValueError(f"parameters: {odd[0]} is missing or unknown; run calibrate again to write it")
        for name, value in {**self.parameters, "noise": self.noise, "kept_MiB": self.kept_MiB}.items():
            if not 0 < value < np.inf:
                raise ValueError(f"{name} is {value}; write a number above 0")
        for name, counts in {"nodes": self.nodes, "tasks": self.tasks}.items():
            if not counts or min(counts) < 1:
                raise ValueError(f"{name} must be 1 or more; run calibrate again to write the file")
        _ = self.model  # which refuses a table that cannot be read

    @property
    def described(self) -> str:
        """A description, for notes of answers that rest on it."""
        nodes = f"{', '.join(map(str, self.nodes))} node{'s' if self.nodes != (1,) else ''}"
        return f"{self.machine}: {self.rows} rows of {', '.join(self.versions)} on {nodes}"

    @cached_property
    def model(self) -> MpiModel:
        """The model that predicts; it caches its results."""
        values = {name: self.parameters[name] for name in PARAMETERS} | {"kept_MiB": self.kept_MiB}
        return MpiModel(values, self._correction(), self.noise, self.nodes, self.tasks)

    def _correction(self) -> MpiCorrection:
        try:
            lines = [line.split() for line in self.correction.splitlines()]
            ways = tuple((line[0], line[1], line[2]) for line in lines)
            figures = np.array([line[3:] for line in lines], dtype=np.float64).reshape(len(lines), 3)
        except (ValueError, IndexError):
            raise ValueError("correction cannot be read; run calibrate again to write it") from None
        for kind, algorithm, place in ways:
            if place not in ("alone", "shared") or algorithm not in ROUNDS.get(kind, {}):
                raise ValueError(f"correction: unknown MPI method {kind} {algorithm} {place}; remove it")
        if not np.all(np.isfinite(figures)) or np.any(figures[:, 2] <= 0):
            raise ValueError("correction has an invalid figure; run calibrate again to write it")
        return MpiCorrection(ways, *figures.T)


def correction_lines(correction: MpiCorrection) -> str:
    """Return the table of a correction."""
    columns = correction.way, correction.message, correction.left, correction.sigma
    return "".join(
        f"{' '.join(way)} {message:.4f} {left:.4f} {sigma:.4g}\n"
        for way, message, left, sigma in zip(*columns, strict=True)
    )
