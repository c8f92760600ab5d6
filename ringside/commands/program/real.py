"""``ringside program --real``: run a job of collectives and messages for real, and time each rank.

On an emulated network the prediction from ping-pong alone is shown too.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from ringside import console
from ringside.commands.program import check as program_check
from ringside.real.backends import ON_GPU, ON_SOCKETS, UNDER_TORCHRUN
from ringside.real.collective.emulated import cluster
from ringside.real.collective.links import measured_graph
from ringside.real.collective.measure import check_gpus, check_room
from ringside.real.program.job import ProgramJob
from ringside.real.program.measure import MeasuredProgram, measure_program
from ringside.sim.program.operations import Program
from ringside.sim.program.proof.check import PROVED, check
from ringside.sim.program.record.script import program_of
from ringside.sim.program.timeline import ProgramTimeline
from ringside.topologies import load, parse_settings
from ringside.topologies.disk import check_outputs, write_file
from ringside.validation.emulated.programs import predict

HEADS = (("rank", ""), ("end", "(ms)"), ("fastest", "(ms)"), ("slowest", "(ms)"))
PREDICTED_HEADS = (("predicted", "(ms)"), ("error", "(%)"))

TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RealRun:
    """A job to run, its settings and its output files."""

    file: Path
    ranks: int
    library: str = "gloo"
    eager: bool = False
    emulate: str | None = None
    settings: tuple[str, ...] = ()
    compute: str = "sleep"
    iterations: int = 5
    warmup: int = 1
    timeout_s: float | None = None
    output: Path | None = None
    trace: Path | None = None
    force: bool = False

    def carry_out(self, *, as_json: bool) -> None:
        """Prove, run and print; run an unproved job only with an explicit time limit."""
        job = self._job()
        self._check()
        program = program_of(self.file, self.ranks, self.library, eager=self.eager)
        verdict = check(program)
        content = program_check.content(self.file, self.ranks, self.library, verdict)
        if not as_json:
            program_check.print_told(self.file, self.ranks, self.library, verdict)
        if verdict.verdict != PROVED and self.timeout_s is None:
            if as_json:
                console.print_json("program", content)
            raise RuntimeError("not run, because it is not proved; to run it anyway add --timeout SECONDS")
        measured, predicted = self._measured(job, program if verdict.verdict == PROVED else None)
        if self.output:
            write_file(self.output, measured.lines())
        if self.trace:
            write_file(self.trace, measured.trace())
        if as_json:
            console.print_json("program", {**content, **_content(measured, predicted)})
        else:
            _print(measured, predicted)
        if verdict.verdict != PROVED:
            raise typer.Exit(1)

    def _job(self) -> ProgramJob:
        """Return the job for each rank."""
        return ProgramJob(
            script=os.path.abspath(self.file),
            backend=self.library,
            eager=self.eager,
            compute=self.compute,
            iterations=self.iterations,
            warmup=self.warmup,
            timeout_s=TIMEOUT_S if self.timeout_s is None else self.timeout_s,
        )

    def _check(self) -> None:
        """Raise ValueError for invalid options before anything starts."""
        inputs: list[Path | str] = [self.file, *([self.emulate] if self.emulate else [])]
        check_outputs((self.output, self.trace), inputs=inputs)
        if self.library not in UNDER_TORCHRUN:
            raise ValueError(f"--library {self.library} runs no job; write {' or '.join(UNDER_TORCHRUN)}")
        if self.settings and not self.emulate:
            raise ValueError(
                f"--set {self.settings[0]} changes an emulated cluster; add --emulate, for example star:4"
            )
        if self.emulate and self.library not in ON_SOCKETS:
            raise ValueError(f"--library {self.library} cannot run on an emulated network; write gloo")
        if self.library in ON_GPU:
            check_gpus(self.ranks)
        if not self.force:
            check_room(self.ranks, 0)

    def _measured(
        self, job: ProgramJob, proved: Program | None
    ) -> tuple[MeasuredProgram, ProgramTimeline | None]:
        """Return the measurement, and the prediction for a proved job on an emulated network."""
        with console.progress("starting", job.iterations) as bar:
            if not self.emulate:
                return measure_program(job, self.ranks, on_run=lambda _: bar.done("runs")), None
            graph = load(self.emulate, parse_settings(list(self.settings)), ranks=self.ranks)
            predicted = None
            with cluster(graph) as network:
                if proved and self.ranks <= len(network.network.hosts):
                    predicted = predict(proved, measured_graph(network, self.ranks)[0])
                runs = measure_program(job, self.ranks, cluster=network, on_run=lambda _: bar.done("runs"))
            return runs, predicted


def _content(measured: MeasuredProgram, predicted: ProgramTimeline | None) -> dict[str, Any]:
    timed = {
        "makespan_s": measured.makespan_s,
        "min_s": min(run.makespan_s for run in measured.runs),
        "max_s": max(run.makespan_s for run in measured.runs),
        "iterations": len(measured.runs),
        "ends_s": list(measured.ends_s),
    }
    if predicted is None:
        return {"measured": timed}
    ends = [predicted.times[rank].end_s for rank in range(predicted.ranks)]
    return {"makespan_s": predicted.makespan_s, "ends_s": ends, "measured": timed}


def _print(measured: MeasuredProgram, predicted: ProgramTimeline | None) -> None:
    times = sorted(run.makespan_s * 1e3 for run in measured.runs)
    comments = [
        f"measured: makespan {measured.makespan_s * 1e3:.2f} ms, median of {len(times)} from "
        f"{times[0]:.2f} to {times[-1]:.2f} ms"
    ]
    of_ranks = zip(*(run.ends_s for run in measured.runs), strict=True)
    rows: list[list[console.Cell]] = [
        [rank, end * 1e3, min(ends) * 1e3, max(ends) * 1e3]
        for rank, (end, ends) in enumerate(zip(measured.ends_s, of_ranks, strict=True))
    ]
    heads: tuple[tuple[str, str], ...] = HEADS
    if predicted:
        error = predicted.makespan_s / measured.makespan_s - 1
        comments.append(
            f"predicted from ping-pong: makespan {predicted.makespan_s * 1e3:.2f} ms, {error:+.1%}"
        )
        heads += PREDICTED_HEADS
        for rank, row in enumerate(rows):
            end = predicted.times[rank].end_s
            row += [end * 1e3, (end / measured.ends_s[rank] - 1) * 100]
    console.print_table(comments, heads, rows)
