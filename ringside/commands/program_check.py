"""``ringside program``: the verdict on a job, in words or as JSON."""

from pathlib import Path
from typing import Any

import typer

from ringside import console
from sim.program.check import PROVED, Verdict, check
from sim.program.script import program_of


def run(file: Path, ranks: int, library: str, *, eager: bool, as_json: bool) -> None:
    """Record, prove and print."""
    verdict = check(program_of(file, ranks, library, eager=eager))
    told(file, ranks, library, verdict, as_json=as_json)


def told(file: Path, ranks: int, library: str, verdict: Verdict, *, as_json: bool) -> None:
    """Print a verdict; end with exit code 1 unless it is proved."""
    if as_json:
        console.print_json("program", content(file, ranks, library, verdict))
    else:
        print_told(file, ranks, library, verdict)
    if verdict.verdict != PROVED:
        raise typer.Exit(1)


def print_told(file: Path, ranks: int, library: str, verdict: Verdict) -> None:
    """Print a verdict in words."""
    print(f"{file} on {ranks} ranks of {library}: {verdict.verdict}, {verdict.operations} operations")
    print("".join(f"# {sentence}\n" for sentence in verdict.story), end="")


def content(file: Path, ranks: int, library: str, verdict: Verdict) -> dict[str, Any]:
    """A verdict for JSON; without a cluster there is no makespan."""
    return {
        "inputs": {"file": str(file), "ranks": ranks, "library": library},
        "verdict": verdict.verdict,
        "makespan_s": None,
        "story": list(verdict.story),
        "operations": verdict.operations,
    }
