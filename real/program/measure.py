"""Run a real program several times, and record every rank's operations."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from statistics import median, median_low
from typing import Any, NamedTuple

from ringside.real.collective.links import EmulatedCluster, spread
from ringside.real.launch.follow import Row
from ringside.real.launch.torchrun import WorldSpec, run
from ringside.real.program.job import ProgramJob
from ringside.sim.trace import name_event, span_event

SCHEMA = "ringside.program_run/1"


class TimedOperation(NamedTuple):
    """One operation of a rank, in seconds since the first rank began."""

    begin: float
    end: float
    category: str
    name: str


@dataclass(frozen=True, slots=True)
class ProgramIteration:
    """One iteration: each rank's end, and its operations."""

    ends_s: tuple[float, ...]
    operations: tuple[tuple[TimedOperation, ...], ...]

    @property
    def makespan_s(self) -> float:
        """The end of the last rank."""
        return max(self.ends_s)


@dataclass(frozen=True, slots=True)
class MeasuredProgram:
    """The measurement of one job: all its timed iterations, and the environment."""

    job: ProgramJob
    runs: tuple[ProgramIteration, ...]
    fingerprint: dict[str, str]

    @property
    def makespan_s(self) -> float:
        """The median over iterations."""
        return median(run.makespan_s for run in self.runs)

    @property
    def ends_s(self) -> tuple[float, ...]:
        """The median end of each rank."""
        return tuple(median(ends) for ends in zip(*(run.ends_s for run in self.runs), strict=True))

    @property
    def spread(self) -> float:
        """The range from the fastest iteration to the slowest, over the median."""
        spans = [run.makespan_s for run in self.runs]
        return (max(spans) - min(spans)) / self.makespan_s if self.makespan_s else 0.0

    @property
    def middle(self) -> ProgramIteration:
        """The iteration of median length, whole, as it happened."""
        middle = median_low(run.makespan_s for run in self.runs)
        return next(run for run in self.runs if run.makespan_s == middle)

    def lines(self) -> str:
        """Return JSON Lines, one per iteration."""
        job = asdict(self.job)
        whole = sha256(Path(self.job.script).read_bytes()).hexdigest()[:16]
        return "".join(
            json.dumps(
                {
                    **{"schema": SCHEMA, "iteration": number, "makespan_s": run.makespan_s},
                    **{"job": job, "script_sha256": whole, "ends_s": run.ends_s},
                    **{"operations": run.operations, "fingerprint": self.fingerprint},
                }
            )
            + "\n"
            for number, run in enumerate(self.runs)
        )

    def trace(self) -> str:
        """Return the median iteration in the Chrome trace format: a process per rank."""
        events: list[dict[str, Any]] = []
        for rank, operations in enumerate(self.middle.operations):
            events.append(name_event("process_name", rank, 0, f"rank {rank}"))
            tracks: list[float] = []
            for seen in sorted(operations):
                track = next((i for i, end in enumerate(tracks) if end <= seen.begin), len(tracks))
                tracks[track : track + 1] = [seen.end]
                event = span_event(rank, track, seen.begin, seen.end, seen.name)
                events.append({**event, "cat": seen.category})
        name = f"{Path(self.job.script).name}, measured"
        content = {"displayTimeUnit": "ms", "otherData": {"name": name}, "traceEvents": events}
        return json.dumps(content, separators=(",", ":")) + "\n"


def measure_program(
    job: ProgramJob,
    ranks: int,
    *,
    cluster: EmulatedCluster | None = None,
    placement: Sequence[int] | None = None,
    on_run: Callable[[ProgramIteration], None] = lambda _: None,
) -> MeasuredProgram:
    """Run the job on ``ranks`` ranks: under torchrun here, or in the hosts of an emulated network.

    Raise `ringside.real.launch.follow.MeasureError` where a rank dies or hangs, after all have been killed.
    """
    runs: list[ProgramIteration] = []
    fingerprint: dict[str, str] = {}

    def keep(row: Row) -> None:
        fingerprint.update(row["fingerprint"])
        everybody = row["ranks"]
        operations = tuple(tuple(TimedOperation(*one) for one in own["operations"]) for own in everybody)
        runs.append(ProgramIteration(tuple(own["end_s"] for own in everybody), operations))
        on_run(runs[-1])

    if cluster is None:
        run(job, WorldSpec(ranks), keep)
    else:
        where = spread(ranks, len(cluster.network.hosts)) if placement is None else placement
        cluster.run(job, where, keep)
        fingerprint |= cluster.settings(where)
    return MeasuredProgram(job, tuple(runs), fingerprint)
