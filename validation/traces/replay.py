"""What-if analysis of networks: a traced program on a cluster, compared with the recording."""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from ringside.sim.calibration import AUTO, Calibration
from ringside.sim.collective import Collective
from ringside.sim.libraries.find import LIBRARIES, default_library
from ringside.sim.libraries.rules import rules_of
from ringside.sim.program.groups import simulate_given
from ringside.sim.program.jobs import PlacedProgram, simulate
from ringside.sim.program.libraries import Libraries
from ringside.sim.program.timeline import ProgramTimeline
from ringside.sim.record import Record, RecordError
from ringside.topologies.placement import EVEN
from ringside.validation.machines import infer_machine
from ringside.validation.readers.kineto import RankTrace, TraceError
from ringside.validation.traces.analysis import Analysis, CollectiveRow
from ringside.validation.traces.program import TracedProgram, program_of


@dataclass(frozen=True, slots=True)
class Replay:
    """The program on one cluster."""

    cluster: str
    library: str
    libraries: Libraries
    timeline: ProgramTimeline


@dataclass(frozen=True, slots=True)
class TraceReplay:
    """The recording replayed with its own times, on a cluster like its own, and on another.

    ``own`` is ``None`` if the traces do not identify a known cluster, or its library is not modelled; ``why``
    gives the evidence. ``steps`` is the number of recorded profiler steps, ``step_s`` their length: the whole
    window without any.
    """

    traced: TracedProgram
    recorded: ProgramTimeline
    own: Replay | None
    why: str
    other: Replay | None
    steps: int
    step_s: float

    def step_on(self, replay: Replay) -> float:
        """Return the length of a step on a cluster: as recorded, scaled like the whole replay."""
        recorded = self.recorded.makespan_s
        return self.step_s * replay.timeline.makespan_s / recorded if recorded else self.step_s


def what_if(
    analysis: Analysis,
    cluster: str | None = None,
    library: str | None = None,
    values: Mapping[str, Any] | None = None,
    network: str = "fifo",
    calibration: Calibration | str | None = AUTO,
    placement: str = EVEN,
) -> TraceReplay:
    """Replay the traces; raise `TraceError` if they hold nothing to replay."""
    first = analysis.traces[0]
    traced = program_of(analysis)
    if not any(traced.program.operations(trace.rank or 0) for trace in analysis.traces):
        raise TraceError(f"{first.path}: neither work nor timed collectives to replay")
    steps = [step.end_s - step.begin_s for trace in analysis.traces for step in trace.steps]
    own, why = _own(traced, first)
    other = None
    if cluster is not None:
        name = library or default_library(cluster)
        other = replay(traced, cluster, name, values, network, calibration, placement)
    return TraceReplay(
        traced, as_recorded(traced), own, why, other,
        max(len(trace.steps) for trace in analysis.traces),
        median(steps) if steps else traced.recorded_s,
    )  # fmt: skip


def _own(traced: TracedProgram, trace: RankTrace) -> tuple[Replay | None, str]:
    """Replay on a cluster like the recorded one, where NCCL is modelled there; return the evidence too."""
    named, why = own_cluster(trace)
    if named is None:
        return None, why
    library = default_library(named)
    if not (rules_of(trace.backend).on_stream and LIBRARIES[library].by_machines):
        return None, f"{named}, {why}; but its library is not modelled"
    try:
        return replay(traced, named, library), why
    except ValueError as error:
        return None, f"{named}, {why}; {error}"


def as_recorded(traced: TracedProgram) -> ProgramTimeline:
    """Replay with the recorded transfer times: this shows how well the program represents the recording."""
    return simulate_given(traced.program, traced.seconds, traced.roles)


def replay(
    traced: TracedProgram,
    cluster: str,
    library: str,
    values: Mapping[str, Any] | None = None,
    network: str = "fifo",
    calibration: Calibration | str | None = AUTO,
    placement: str = EVEN,
) -> Replay:
    """Replay the program on a cluster, with ranks placed by ``placement``."""
    ranks = traced.program.ranks
    libraries = Libraries(library, cluster, values or {}, ranks, network, calibration, placement)
    job = PlacedProgram(traced.program, tuple(range(ranks)), traced.roles)
    return Replay(cluster, library, libraries, simulate([job], libraries)[0])


def own_cluster(trace: RankTrace) -> tuple[str | None, str]:
    """Return the named cluster of a trace, from its GPUs; else ``None``, and why."""
    if not trace.gpu or not trace.ranks:
        return None, "the trace lacks the GPU or the number of ranks"
    nodes = max(1, -(-trace.ranks // trace.gpus))
    record = Record(
        source="trace", cluster="", library="nccl", collective="all_reduce", num_nodes=nodes,
        ranks=trace.ranks, nbytes=0, time_s=1.0, statistic="", fingerprint={"gpu": trace.gpu},
    )  # fmt: skip
    try:
        machine, why = infer_machine([record])
    except RecordError as error:
        return None, str(error)
    return f"{machine}:{nodes}", why


def predicted(row: CollectiveRow, libraries: Libraries) -> float | None:
    """Return the library's time of a row's collective, among its group's ranks."""
    members = row.members
    if row.nbytes is None or row.ranks is None or not members or max(members) >= libraries.ranks:
        return None
    try:
        collective = Collective(row.kind or "", row.ranks, row.nbytes)
        library = libraries.of(members)
    except ValueError:
        return None  # not a collective, or a group that does not fit on whole machines
    return library.time(collective, library.choose(collective)).time_s
