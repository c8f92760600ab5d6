"""One step under a layout: time by stage, peak memory, and utilization of the GPUs."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from ringside.sim.program import Call, Compute, Group, Recv, Send, Together
from ringside.sim.program.simulate import Simulation
from ringside.sim.program.timeline import ProgramTimeline, covered_s
from ringside.sim.training.memory.peak import Peak, Use
from ringside.sim.training.mesh import DIMENSIONS, UNFOLDED, Mesh
from ringside.sim.training.stage import STREAM
from ringside.sim.workload.decoder import Decoder

COMMUNICATES = Call | Send | Recv | Together
"""Actions that move bytes."""


class UnderWay(NamedTuple):
    """When bytes of a collective or a message moved, and along which dimensions of the mesh."""

    start: float
    end: float
    dimension: str


@dataclass(frozen=True, slots=True)
class StageTime:
    """Time of the ranks at one place along the pipeline, or of one role; ``rank`` is the first of them.

    ``compute_s`` is compute without contention, ``contention_s`` the time that collectives add to it,
    ``copy_s`` copies and casts; ``busy_s`` is their sum. ``exposed_s`` is the time in which it waited while
    its own bytes moved, ``exposed_by_s`` the same by dimension, ``bubble_s`` the time in which it waited and
    none of its bytes moved. These and ``busy_s`` add up to the step. ``communication_s`` is how long its
    bytes moved, ``communication_by_s`` the same by dimension.
    """

    rank: int
    ranks: int
    layers: tuple[str, ...]
    compute_s: float
    contention_s: float
    copy_s: float
    busy_s: float
    exposed_s: float
    exposed_by_s: Mapping[str, float]
    bubble_s: float
    communication_s: float
    communication_by_s: Mapping[str, float]
    memory: Use

    @property
    def peak(self) -> Peak:
        """The most that one of the ranks allocates."""
        return self.memory.peak


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedStep:
    """One training step of all ranks, by stages or roles; times in seconds."""

    workload: str
    ranks: int
    step_s: float
    stages: tuple[StageTime, ...]
    timeline: ProgramTimeline

    @property
    def exposed_by_s(self) -> Mapping[str, float]:
        """Exposed communication by dimension, on average over the stages."""
        names = dict.fromkeys(name for stage in self.stages for name in stage.exposed_by_s)
        count = len(self.stages)
        return {name: sum(one.exposed_by_s.get(name, 0.0) for one in self.stages) / count for name in names}

    @property
    def exposed_s(self) -> float:
        """Exposed communication, on average over the stages."""
        return sum(self.exposed_by_s.values())

    @property
    def bubble_share(self) -> float:
        """The average share of the step in which stages wait while none of their bytes move."""
        waiting_s = sum(stage.bubble_s for stage in self.stages) / len(self.stages)
        return waiting_s / self.step_s if self.step_s else 0.0

    @property
    def peak_nbytes(self) -> int:
        """The largest peak of all ranks."""
        return max(stage.peak.nbytes for stage in self.stages)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelStep(StagedStep):
    """One training step of all ranks under a layout.

    ``throughput`` are samples per second of all ranks. ``tokens`` are those of all samples, None where
    samples have none, ``gpu_hours_per_1e9_tokens`` those per billion tokens. ``model_flops`` are forward and
    backward on all ranks, ``hardware_flops`` include checkpointing's recomputation; None where unknown.
    """

    sample: str
    samples: int
    tokens: int | None
    throughput: float
    tokens_per_s: float | None
    gpu_hours_per_1e9_tokens: float | None
    micro_batches: int
    model_flops: float | None
    hardware_flops: float | None

    def utilization(self, peak_flops_per_s: float) -> tuple[float | None, float | None]:
        """Return model and hardware FLOPs utilization: shares of all ranks' peak over the step."""
        most = self.ranks * peak_flops_per_s * self.step_s
        flops = (self.model_flops, self.hardware_flops)
        return flops[0] and flops[0] / most, flops[1] and flops[1] / most


@dataclass(frozen=True, slots=True, kw_only=True)
class Utilization:
    """A training's utilization of its GPUs, as reported in publications.

    ``samples`` sequences per step of ``step_s`` seconds on ``gpus`` GPUs of ``peak`` FLOP/s each.

    FLOPs are the decoder's (`ringside.sim.workload.decoder`), with the whole square of scores unless
    ``causal``.
    """

    decoder: Decoder
    samples: int
    step_s: float
    gpus: int
    peak: float
    checkpointing: str = "none"
    causal: bool = False

    @property
    def samples_per_s(self) -> float:
        """Sequences per second, of all GPUs together."""
        return self.samples / self.step_s

    @property
    def tokens_per_s(self) -> float:
        """Tokens per second, of all GPUs together."""
        return self.samples_per_s * self.decoder.sequence

    @property
    def mfu(self) -> float:
        """Model FLOPs utilization: forward's and backward's share of the peak."""
        return self._share(self.decoder.training_flops(causal=self.causal))

    @property
    def hfu(self) -> float:
        """Hardware FLOPs utilization: the share including checkpointing's recomputation."""
        recomputed = self.decoder.recomputed_flops(self.checkpointing, causal=self.causal)
        return self._share(self.decoder.training_flops(causal=self.causal) + recomputed)

    def gpu_hours(self, tokens: float) -> float:
        """Return the GPU-hours for ``tokens`` tokens."""
        return tokens / self.tokens_per_s * self.gpus / 3600

    def _share(self, flops: float) -> float:
        return flops * self.samples_per_s / (self.gpus * self.peak)


def stage_time(
    simulation: Simulation, index: int, mesh: Mesh, layers: tuple[str, ...], memory: Use
) -> StageTime:
    """Return the time of the played rank of this number, with waits by the mesh's dimensions."""
    alike = mesh.ranks // mesh.pipeline
    return time_of_role(simulation, index, alike, lambda group: dimension(mesh, group), layers, memory)


def time_of_role(
    simulation: Simulation,
    index: int,
    alike: int,
    named: Callable[[Group], str],
    layers: tuple[str, ...],
    memory: Use,
) -> StageTime:
    """Return the time of the played rank of this number and those ``alike``; groups are ``named``."""
    rank = simulation.played[index]
    named = cache(named)
    moves = list(_moves(simulation, index, named))
    exposed: dict[str, float] = {}
    bubble = 0.0
    waits = _Waits(moves)
    for begin, end, culprit in _gaps(simulation, index):
        own = None if culprit is None else _move(simulation, index, culprit, named)
        for name, seconds in waits.divide(begin, end, own):
            if name is None:
                bubble += seconds
            else:
                exposed[name] = exposed.get(name, 0.0) + seconds
    alone = {"copy": 0.0, "": 0.0}
    busy = 0.0
    for place, operation in enumerate(simulation.operations[index]):
        if operation.lane == STREAM and isinstance(operation.action, Compute):
            alone["copy" if operation.category == "copy" else ""] += operation.action.seconds
            busy += simulation.end[index][place] - simulation.begin[index][place]
    contention_s = max(busy - alone["copy"] - alone[""], 0.0)
    return StageTime(
        rank,
        alike,
        layers,
        alone[""],
        contention_s,
        alone["copy"],
        alone[""] + contention_s + alone["copy"],
        sum(exposed.values()),
        exposed,
        bubble,
        covered_s([(one.start, one.end) for one in moves]),
        {
            name: covered_s([(one.start, one.end) for one in moves if one.dimension == name])
            for name in dict.fromkeys(one.dimension for one in moves)
        },
        memory,
    )


def _gaps(simulation: Simulation, index: int) -> Iterator[tuple[float, float, int | None]]:
    """Yield the gaps in a rank's stream, each with the operation that it last waited for."""
    begins, ends = simulation.begin[index], simulation.end[index]
    before = 0.0
    for place, operation in enumerate(simulation.operations[index]):
        if operation.lane != STREAM:
            continue
        if begins[place] > before:
            culprit = max(operation.after, key=ends.__getitem__, default=None)
            yield before, begins[place], culprit
        if isinstance(operation.action, COMMUNICATES) and ends[place] > begins[place]:
            yield max(before, begins[place]), ends[place], place
        before = max(before, ends[place])
    if simulation.makespan_s > before:
        yield before, simulation.makespan_s, None


def _moves(simulation: Simulation, index: int, named: Callable[[Group], str]) -> Iterator[UnderWay]:
    for place in range(len(simulation.operations[index])):
        move = _move(simulation, index, place, named)
        if move:
            yield move


def _move(simulation: Simulation, index: int, place: int, named: Callable[[Group], str]) -> UnderWay | None:
    action = simulation.operations[index][place].action
    if not isinstance(action, COMMUNICATES):
        return None
    return UnderWay(simulation.start[index][place], simulation.end[index][place], named(action.group))


def dimension(mesh: Mesh, group: Group) -> str:
    """Return the dimensions along which a group's ranks differ; a fold of the data-parallel ones by name."""
    names = group.name.split()[:-1]
    if UNFOLDED.keys() & set(names):
        return " ".join(name for name in names if mesh.degree(name) > 1)
    first, last = mesh.place(group.ranks[0]), mesh.place(group.ranks[-1])
    return " ".join(name for name in DIMENSIONS if first[name] != last[name])


class _Waits:
    """Divides waiting, in time order, among concurrent collectives and messages."""

    def __init__(self, moves: Iterable[UnderWay]) -> None:
        self._later = sorted(moves, reverse=True)
        self._active: list[UnderWay] = []

    def divide(self, begin: float, end: float, own: UnderWay | None) -> Iterator[tuple[str | None, float]]:
        """Return seconds by dimension: of the awaited transfer, then of other transfers, then of none."""
        while self._later and self._later[-1].start < end:
            self._active.append(self._later.pop())
        self._active = [one for one in self._active if one.end > begin]
        left = [(begin, end)]
        for one in (*((own,) if own else ()), *self._active):
            covered, left = _without(left, one)
            if covered:
                yield one.dimension, covered
        yield None, sum(end - begin for begin, end in left)


def _without(stretches: list[tuple[float, float]], one: UnderWay) -> tuple[float, list[tuple[float, float]]]:
    """Return the covered length of some intervals, and the uncovered rest."""
    covered, left = 0.0, []
    for begin, end in stretches:
        start, stop = max(begin, one.start), min(end, one.end)
        if start >= stop:
            left.append((begin, end))
            continue
        covered += stop - start
        left += [(low, high) for low, high in ((begin, start), (stop, end)) if high > low]
    return covered, left
