"""Predict and measure on emulated networks: validation that runs on any machine.

Link parameters come from ping-pong alone; everything else is predicted from them and then measured.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ringside.real.collective.links import (
    EmulatedCluster,
    MeasuredLink,
    as_measured,
    cluster,
    measure_latency,
    measure_link,
)
from ringside.real.collective.measure import Measurement
from ringside.real.launch.forks import Forks
from ringside.real.launch.torchrun import WorldSpec
from ringside.sim.collective import Collective, itemsize
from ringside.sim.libraries.rules import RENDEZVOUS
from ringside.sim.predict import predict
from ringside.sim.record import Record
from ringside.topologies import Topology
from ringside.topologies.placement import PLACEMENTS
from ringside.validation.emulated.plan import LIBRARY, TOLERANCES, CollectiveCase, NetworkCase, Tolerance

QUIET = 0.10
"""Maximum spread of repeats of a cell that counts."""

CALM = 0.08
RERUNS = 2
"""A cell that spreads more than `CALM` is measured again, at most twice; the smallest spread counts."""

REPEATS = 5
_DTYPE = "float32"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredCase:
    """A prediction and its measurement, the median of ``repeats``.

    ``bandwidth`` is the nominal one of the hosts' links in bytes/s. ``spread`` is the range from the fastest
    repeat to the slowest over the median; above `QUIET` the cell is ``noisy``.
    """

    family: str
    collective: str
    algorithm: str
    ranks: int
    bandwidth: float
    size_bytes: int
    placement: str
    oversubscription: float
    slowdown: float
    measured_s: float
    predicted_s: float
    repeats: int
    spread: float
    latency_s: float
    efficiency: float

    @property
    def name(self) -> str:
        """The collective, its algorithm and its ranks."""
        return f"{self.collective} {self.algorithm}, {self.ranks} ranks"

    @property
    def error(self) -> float:
        """Predicted over measured time, minus one."""
        return self.predicted_s / self.measured_s - 1

    @property
    def noisy(self) -> bool:
        """Whether its repeats differ too much to judge the model."""
        return self.spread > QUIET


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyVerdict:
    """A family's absolute relative errors over its quiet cells, with their limits."""

    family: str
    cells: int
    noisy: int
    median_error: float
    p90_error: float
    worst_error: float
    tolerance: Tolerance

    @property
    def passed(self) -> bool:
        """Whether the errors are within the tolerance, and at most half of the cells are noisy."""
        limits = (self.tolerance.median, self.tolerance.p90, self.tolerance.worst)
        errors = (self.median_error, self.p90_error, self.worst_error)
        within = all(limit is None or error <= limit for limit, error in zip(limits, errors, strict=True))
        return within and 2 * self.noisy <= self.cells


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationResult:
    """A finished validation."""

    cells: tuple[MeasuredCase, ...]
    verdicts: tuple[FamilyVerdict, ...]
    seconds: float

    @property
    def passed(self) -> bool:
        """Whether every family is within its tolerance."""
        return all(verdict.passed for verdict in self.verdicts)


def validate(plan: Sequence[NetworkCase], on_cell: Callable[[MeasuredCase], None]) -> ValidationResult:
    """Carry out a plan; call ``on_cell`` with each cell as soon as it is measured.

    Raise `ValueError` if this machine cannot emulate a network (see `ringside.real.emulate.available`) and
    `ringside.real.launch.follow.MeasureError` if a measurement fails.
    """
    begin = time.monotonic()
    cells: list[MeasuredCase] = []

    def keep(cell: MeasuredCase) -> None:
        cells.append(cell)
        on_cell(cell)

    with Forks() as forks:
        for scene in plan:
            with cluster(scene.graph, forks) as network:
                _play(scene, network, keep)
    return ValidationResult(cells=tuple(cells), verdicts=verdicts(cells), seconds=time.monotonic() - begin)


def verdicts(cells: Sequence[MeasuredCase]) -> tuple[FamilyVerdict, ...]:
    """Return one verdict per family that has cells."""
    families = [name for name in TOLERANCES if any(cell.family == name for cell in cells)]
    return tuple(_verdict(name, [cell for cell in cells if cell.family == name]) for name in families)


def _verdict(family: str, cells: Sequence[MeasuredCase]) -> FamilyVerdict:
    noisy = sum(cell.noisy for cell in cells)
    # if every cell is noisy, numbers are shown, but the family fails
    errors = np.abs([cell.error for cell in cells if not cell.noisy or noisy == len(cells)])
    return FamilyVerdict(
        family=family,
        cells=len(cells),
        noisy=noisy,
        median_error=float(np.median(errors)),
        p90_error=float(np.percentile(errors, 90)),
        worst_error=float(errors.max()),
        tolerance=TOLERANCES[family],
    )


def _play(scene: NetworkCase, network: EmulatedCluster, on_cell: Callable[[MeasuredCase], None]) -> None:
    graph, link = scene.graph, measure_link(network)
    latencies: dict[tuple[int, ...], float] = {}
    for trial in scene.trials:
        hosts = PLACEMENTS[trial.placement](graph)[: trial.ranks]
        if hosts not in latencies:
            latencies[hosts] = measure_latency(network, hosts)
        latency = latencies[hosts]
        predicted = as_measured(graph, hosts, link, latency)
        for record in _measured(network, trial, trial.sizes, hosts):
            for _ in range(RERUNS):
                if _spread(record) > CALM:
                    again = _measured(network, trial, (record.nbytes,), hosts)
                    record = min(record, *again, key=lambda record: record.spread)
            seconds = _predicted(trial, record.nbytes, predicted, latency)
            on_cell(_cell(scene, trial, record, seconds, link, latency))


def _spread(record: Record) -> float:
    return (record.max_s - record.min_s) / record.time_s


def _measured(
    network: EmulatedCluster, trial: CollectiveCase, sizes: Sequence[int], hosts: Sequence[int]
) -> list[Record]:
    records: list[Record] = []
    measurement = Measurement(
        collective=trial.collective,
        algorithm="library" if trial.algorithm == LIBRARY else trial.algorithm,
        world=WorldSpec(trial.ranks),
        sizes=sizes,
        dtype=_DTYPE,
        iterations=REPEATS,
        warmup=1,
    )
    network.measure(measurement, records.append, hosts)
    return records


def _predicted(trial: CollectiveCase, nbytes: int, graph: Topology, latency: float) -> float:
    library, algorithm = (LIBRARY, "auto") if trial.algorithm == LIBRARY else ("ideal", trial.algorithm)
    collective = Collective(trial.collective, trial.ranks, nbytes, itemsize(_DTYPE))
    seconds = predict(collective, graph, library=library, algorithm=algorithm, engine="simpy").time_s
    # a schedule's first message waits for its announcement as a library's does, which has that in its launch
    return seconds if library == LIBRARY else seconds + RENDEZVOUS * latency


def _cell(
    scene: NetworkCase,
    trial: CollectiveCase,
    record: Record,
    predicted_s: float,
    link: MeasuredLink,
    latency: float,
) -> MeasuredCase:
    return MeasuredCase(
        family=trial.family,
        collective=trial.collective,
        algorithm=trial.algorithm,
        ranks=trial.ranks,
        bandwidth=scene.bandwidth,
        size_bytes=record.nbytes,
        placement=trial.placement,
        oversubscription=scene.oversubscription,
        slowdown=1.0 if scene.slow is None else scene.slowdown,
        measured_s=record.time_s,
        predicted_s=predicted_s,
        repeats=record.iterations,
        spread=_spread(record),
        latency_s=latency,
        efficiency=link.efficiency,
    )
