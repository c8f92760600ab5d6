"""What if the network were another: a traced program on a cluster, beside what was recorded."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sim.calibration import AUTO, Calibration
from sim.collective import Collective
from sim.program.given import simulate_given
from sim.program.jobs import Job, simulate
from sim.program.libraries import Libraries
from sim.program.timeline import ProgramTimeline
from sim.record import Record, RecordError
from validation.machines import infer_machine
from validation.readers.kineto import Trace
from validation.traces.analysis import Row
from validation.traces.program import TracedProgram


@dataclass(frozen=True, slots=True)
class Replay:
    """The program on one cluster."""

    cluster: str
    library: str
    libraries: Libraries
    timeline: ProgramTimeline


def as_recorded(traced: TracedProgram) -> ProgramTimeline:
    """The program with the transfer times that were recorded: how well it stands for the recording."""
    return simulate_given(traced.program, traced.seconds, traced.roles)


def replay(
    traced: TracedProgram,
    cluster: str,
    library: str,
    values: Mapping[str, Any] | None = None,
    network: str = "fifo",
    calibration: Calibration | str | None = AUTO,
) -> Replay:
    """The program on a cluster's first ranks."""
    ranks = traced.program.ranks
    libraries = Libraries(library, cluster, values or {}, ranks, network, calibration)
    job = Job(traced.program, tuple(range(ranks)), traced.roles)
    return Replay(cluster, library, libraries, simulate([job], libraries)[0])


def own_cluster(trace: Trace) -> tuple[str | None, str]:
    """The named cluster on which a trace was recorded, as its GPUs tell; else ``None``, and why."""
    if not trace.gpu or not trace.ranks:
        return None, "the trace names no GPU, or not how many ranks there were"
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


def predicted(row: Row, libraries: Libraries) -> float | None:
    """How long the library says that a row's collective takes, of as many ranks, one after another."""
    if row.nbytes is None or row.ranks is None or row.ranks > libraries.ranks:
        return None
    try:
        collective = Collective(row.kind or "", row.ranks, row.nbytes)
        library = libraries.of(tuple(range(row.ranks)))
    except ValueError:
        return None  # no collective, or a group that does not fit on whole machines
    return library.time(collective, library.choose(collective)).time_s
