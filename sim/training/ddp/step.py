"""One simulated training step: its times, hidden and exposed communication, and its trace."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median, median_low
from typing import Any, ClassVar, NamedTuple

from pydantic import ConfigDict, TypeAdapter

from ringside.sim.parameters import check_within
from ringside.sim.record import DDP_SCHEMA, RecordError, read_steps, schema_of
from ringside.sim.trace import name_event, span_event
from ringside.sim.training.ddp.job import DataParallel
from ringside.sim.workload import file as workload_file
from ringside.sim.workload.workload import Workload
from ringside.topologies.units import MAX_DURATION, MIN_RATE


class Activity(NamedTuple):
    """A rank's activity from ``start`` to ``end``, in seconds: forward, backward, copy, wait or optimizer."""

    start: float
    end: float
    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Pace:
    """Ranks of one compute pace, ``slowdown`` times slower than the workload, and their spans."""

    ranks: tuple[int, ...]
    slowdown: float
    spans: tuple[Activity, ...]

    def total(self, kind: str) -> float:
        """Return the seconds spent on one kind of work, contention included."""
        return sum(span.end - span.start for span in self.spans if span.kind == kind)

    @property
    def label(self) -> str:
        """The ranks as text: ``rank 3``, ``ranks 0-2, 4-7 alike``."""
        runs: list[list[int]] = []
        for rank in self.ranks:
            if runs and rank == runs[-1][1] + 1:
                runs[-1][1] = rank
            else:
                runs.append([rank, rank])
        text = ", ".join(f"{first}-{last}" if last > first else f"{first}" for first, last in runs)
        return f"ranks {text} alike" if len(self.ranks) > 1 else f"rank {text}"


@dataclass(frozen=True, slots=True)
class Reduction:
    """One collective of a step, times in seconds from the step's start.

    ``ready_s`` is when the last rank has its input, ``launch_s`` when the last rank has launched it,
    ``start_s`` and ``end_s`` are the times of its first and last byte, ``finish_s`` that at which a comm hook
    has cast it back. ``nbytes`` are the reduced bytes, after such a hook.
    """

    name: str
    kind: str
    nbytes: int
    ready_s: float
    launch_s: float
    start_s: float
    end_s: float
    finish_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingStep:
    """One training step on ``ranks`` ranks, ``samples`` samples in all; all times in seconds.

    Compute is the slowest rank's: ``compute_s`` without contention, ``contention_s`` what collectives add to
    it, ``copy_s`` its copies and casts, ``forward_s`` and ``backward_s`` by the clock. ``communication_s`` is
    the time in which a collective is under way, ``exposed_s`` the part of it in which the slowest rank only
    waits. ``overhead_s`` adds up every stated overhead, hidden or not.
    """

    workload: str
    ranks: int
    samples: int
    step_s: float
    forward_s: float
    backward_s: float
    optimizer_s: float
    compute_s: float
    contention_s: float
    copy_s: float
    communication_s: float
    exposed_s: float
    overhead_s: float
    buckets: tuple[Reduction, ...]
    others: tuple[Reduction, ...]
    paces: tuple[Pace, ...]

    @property
    def lower_s(self) -> float:
        """The step with full overlap: the larger of compute and communication."""
        return max(self.compute_s, self.communication_s)

    @property
    def upper_s(self) -> float:
        """The step without overlap: compute, communication and overheads one after another."""
        return self.compute_s + self.communication_s + self.overhead_s

    @property
    def overlap_efficiency(self) -> float:
        """The share of communication that compute hides; 1 without communication."""
        return 1 - self.exposed_s / self.communication_s if self.communication_s else 1.0

    @property
    def throughput(self) -> float:
        """Samples per second of all ranks together."""
        return self.samples / self.step_s

    def chrome_trace(self) -> dict[str, Any]:
        """Return a Chrome trace, as ui.perfetto.dev opens it: a process per pace, two tracks or more.

        Track 0 of a process is compute; each further track holds one of the collectives that run at once.
        """
        return {
            "displayTimeUnit": "ms",
            "otherData": {"name": f"{self.workload} on {self.ranks} ranks"},
            "traceEvents": [event for number in range(len(self.paces)) for event in self._events(number)],
        }

    def dumps(self) -> str:
        """Return the trace as JSON text, the same for the same step."""
        return json.dumps(self.chrome_trace(), separators=(",", ":")) + "\n"

    def _events(self, number: int) -> Iterator[dict[str, Any]]:
        pace = self.paces[number]
        yield name_event("process_name", number, 0, pace.label)
        yield name_event("thread_name", number, 0, "compute")
        for span in pace.spans:
            yield {**span_event(number, 0, span.start, span.end, span.name), "cat": span.kind}
        lanes: list[float] = []
        for run in sorted((*self.others, *self.buckets), key=lambda run: (run.start_s, run.end_s)):
            lane = next((i for i, end in enumerate(lanes) if end <= run.start_s), len(lanes))
            if lane == len(lanes):
                lanes.append(0.0)
                yield name_event("thread_name", number, lane + 1, f"communication {lane}")
            lanes[lane] = run.end_s
            args = {
                "bytes": run.nbytes,
                "ready_us": run.ready_s * 1e6,
                "launch_us": run.launch_s * 1e6,
                "finish_us": run.finish_s * 1e6,
            }
            event = span_event(number, lane + 1, run.start_s, run.end_s, run.name)
            yield {**event, "cat": run.kind, "args": args}


def busy(runs: Iterable[Reduction]) -> float:
    """Return the seconds in which at least one of the collectives is under way."""
    return sum(end - start for start, end in _under_way(runs))


def exposed(spans: Iterable[Activity], runs: Iterable[Reduction]) -> float:
    """Return the seconds in which a rank waits while at least one of the collectives is under way."""
    under_way = list(_under_way(runs))
    return sum(
        max(0.0, min(span.end, end) - max(span.start, start))
        for span in spans
        if span.kind == "wait"
        for start, end in under_way
    )


def _under_way(runs: Iterable[Reduction]) -> Iterator[tuple[float, float]]:
    """Yield the stretches of time in which at least one of the collectives is under way."""
    until = 0.0
    for run in sorted(runs, key=lambda run: run.start_s):
        if run.end_s > until:
            yield max(run.start_s, until), run.end_s
            until = run.end_s


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredNetwork:
    """The network that carries gradients: topology as YAML text, and figures measured beside the steps.

    ``library`` and ``algorithm`` are `ringside.sim.predict`'s; ``gamma`` and ``launch_s`` are
    `ringside.sim.parameters.Parameters`'.
    """

    topology: str
    library: str
    algorithm: str = "auto"
    gamma: float = 0.0
    launch_s: float = 0.0

    def __post_init__(self) -> None:
        check_within("gamma", self.gamma, 1 / MIN_RATE)
        check_within("launch_s", self.launch_s, MAX_DURATION)


@dataclass(frozen=True, slots=True, kw_only=True)
class DdpRecord:
    """Steps of one job, with their setup.

    ``workload`` holds the compute of the same run without communication, ``memory_bandwidth`` (bytes/s) is
    the measured rate of dividing a bucket in place, None if layers sleep, which hides copies. ``workers`` are
    those of `ringside.sim.training.ddp.job`. ``contention`` is the measured share of its pace that compute
    loses beside a collective, ``crowding`` the share that a collective loses beside compute. ``hook_s`` are
    `ringside.sim.training.ddp.job.Costs`'.
    """

    __pydantic_config__: ClassVar = ConfigDict(allow_inf_nan=False)

    workload: Workload
    ranks: int
    ddp: DataParallel
    workers: int
    wires: MeasuredNetwork
    memory_bandwidth: float | None
    steps: tuple[TrainingStep, ...]
    fingerprint: dict[str, str]
    contention: float = 0.0
    crowding: float = 0.0
    hook_s: tuple[tuple[float, ...], ...] = ()

    @property
    def median(self) -> TrainingStep:
        """The measured step of median length."""
        middle = median_low(step.step_s for step in self.steps)
        return next(step for step in self.steps if step.step_s == middle)

    def jitter(self) -> tuple[float, ...]:
        """Factors by which ranks' passes vary from step to step: each pass over the median of its rank's.

        A pass is forward and backward, as measured beside collectives.
        """
        factors: list[float] = []
        for rank in range(len(self.steps[0].paces)):
            own = [
                step.paces[rank].total("forward") + step.paces[rank].total("backward") for step in self.steps
            ]
            factors += [seconds / median(own) for seconds in own]
        return tuple(factors)

    def dumps(self) -> str:
        """Return the record as JSON text."""
        content = _ADAPTER.dump_python(self, mode="json")
        return json.dumps({"schema": DDP_SCHEMA, **content}) + "\n"


_ADAPTER = TypeAdapter(DdpRecord)


def workload_of(path: Path) -> Workload:
    """Return the workload in a YAML file, or that of measured steps."""
    return read(path).workload if schema_of(path) == DDP_SCHEMA else workload_file.read(path)


def read(path: Path) -> DdpRecord:
    """Return the record in the file; raise `ringside.sim.record.RecordError` with every error in it."""
    record = read_steps(path, DDP_SCHEMA, _ADAPTER, "ringside measure ddp")
    if not record.steps:
        raise RecordError(f"{path}: contains no steps; make one with ringside measure ddp")
    if not all(0 < step.step_s <= MAX_DURATION for step in record.steps):
        raise RecordError(f"{path}: contains a step without duration; make one with ringside measure ddp")
    return record
