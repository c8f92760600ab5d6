"""``ringside program``: the verdict on a job, as text or JSON."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from ringside import console
from ringside.commands.program.source import Asked, by_default, exported, print_exported
from ringside.sim.formats.program_files import check_export, write
from ringside.sim.program.proof.check import PROVED, Verdict, check


def run(job: Asked, library: str, *, eager: bool, export: Path | None, as_json: bool) -> None:
    """Record or read the job, prove and print it; export a proved one to ``export``."""
    check_export(export, (job.file,))
    program = job.program(library, eager=eager)
    verdict = check(program)
    lost = []
    if export and verdict.verdict == PROVED:
        lost = write(program, export, by_default)
    if export is not None and verdict.verdict != PROVED:
        export = None
    told(job, library, verdict, export, lost, as_json=as_json)


def told(
    job: Asked,
    library: str,
    verdict: Verdict,
    export: Path | None = None,
    lost: Sequence[str] = (),
    *,
    as_json: bool,
) -> None:
    """Print a verdict and the export; exit 1 unless the job is proved."""
    if as_json:
        notes = {"notes": list(job.notes)} if job.notes else {}
        answer = content(job.file, job.ranks, library, verdict)
        console.print_json("program", answer | notes | exported(export, lost))
    else:
        print_told(job.file, job.ranks, library, verdict)
        console.print_comments(job.notes)
        print_exported(export, lost)
    if verdict.verdict != PROVED:
        raise typer.Exit(1)


def print_told(file: Path, ranks: int, library: str, verdict: Verdict) -> None:
    """Print a verdict as text."""
    answer = f"{verdict.verdict}, {verdict.operations} operations"
    console.print_wrapped(f"{file} on {ranks} ranks of {library}: {answer}")
    console.print_comments(verdict.story)


def content(file: Path, ranks: int, library: str, verdict: Verdict) -> dict[str, Any]:
    """Return a verdict for JSON; without a cluster it has no makespan."""
    return {
        "inputs": {"file": str(file), "ranks": ranks, "library": library},
        "verdict": verdict.verdict,
        "makespan_s": None,
        "story": list(verdict.story),
        "operations": verdict.operations,
    }
