"""``ringside program --real``: a job of collectives and messages really run, and when each rank ended."""

import os
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from real.collective.emulated import cluster
from real.collective.measure import check_gpus, check_room
from real.program.job import ProgramJob
from real.program.measure import MeasuredProgram, measure_program
from ringside import console
from topologies import load, parse_settings
from topologies.disk import check_outputs, write_file

HEADS = (("rank", ""), ("end", "(ms)"), ("fastest", "(ms)"), ("slowest", "(ms)"))

TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RealRun:
    """How a job is to be run, and where what is seen goes."""

    emulate: str | None = None
    settings: tuple[str, ...] = ()
    compute: str = "sleep"
    iterations: int = 5
    warmup: int = 1
    timeout_s: float | None = None
    output: Path | None = None
    trace: Path | None = None
    force: bool = False

    def job(self, file: Path, library: str, *, eager: bool) -> ProgramJob:
        """What each rank is told."""
        return ProgramJob(
            script=os.path.abspath(file),
            backend=library,
            eager=eager,
            compute=self.compute,
            iterations=self.iterations,
            warmup=self.warmup,
            timeout_s=TIMEOUT_S if self.timeout_s is None else self.timeout_s,
        )

    def check(self, file: Path, ranks: int, library: str, *, eager: bool) -> None:
        """Refuse what cannot be, before anything is done for it."""
        self.job(file, library, eager=eager)
        inputs: list[Path | str] = [file, *([self.emulate] if self.emulate else [])]
        check_outputs((self.output, self.trace), inputs=inputs)
        if not self.force:
            check_room(ranks, 0)
        if self.settings and not self.emulate:
            raise ValueError(
                f"--set {self.settings[0]} changes an emulated cluster; add --emulate, for example star:4"
            )
        if library == "nccl" and not self.emulate:
            check_gpus(ranks)
        if self.emulate and library != "gloo":
            raise ValueError(f"--library {library} cannot run on an emulated network; write gloo")


def measured(asked: RealRun, file: Path, ranks: int, library: str, *, eager: bool) -> MeasuredProgram:
    """Run the job and write the files that were asked for."""
    job = asked.job(file, library, eager=eager)
    graph = load(asked.emulate, parse_settings(list(asked.settings)), ranks=ranks) if asked.emulate else None
    with (
        console.progress("starting", job.iterations) as bar,
        nullcontext() if graph is None else cluster(graph) as network,
    ):
        found = measure_program(job, ranks, cluster=network, on_run=lambda _: bar.done("runs"))
    if asked.output:
        write_file(asked.output, found.lines())
    if asked.trace:
        write_file(asked.trace, found.trace())
    return found


def content(found: MeasuredProgram) -> dict[str, Any]:
    """What was measured, for JSON."""
    return {
        "makespan_s": found.makespan_s,
        "min_s": min(run.makespan_s for run in found.runs),
        "max_s": max(run.makespan_s for run in found.runs),
        "iterations": len(found.runs),
        "ends_s": list(found.ends_s),
    }


def report(found: MeasuredProgram) -> None:
    """Print the makespan, and each rank's end."""
    times = sorted(run.makespan_s * 1e3 for run in found.runs)
    comments = [
        f"measured: makespan {found.makespan_s * 1e3:.2f} ms, median of {len(times)} from {times[0]:.2f} to "
        f"{times[-1]:.2f} ms"
    ]
    rows = [
        (rank, end * 1e3, min(ends) * 1e3, max(ends) * 1e3)
        for rank, (end, ends) in enumerate(
            zip(found.ends_s, zip(*(run.ends_s for run in found.runs), strict=True), strict=True)
        )
    ]
    console.print_table(comments, HEADS, rows)
