"""``ringside program``: whether a job of collectives and messages ends, whatever the library does."""

from pathlib import Path
from typing import Annotated, Any

import typer

from ringside import console, options
from sim.program.check import PROVED, Verdict, check
from sim.program.script import program_of

Script = Annotated[
    Path, typer.Argument(metavar="FILE.py", help="A script with def main(dist), as for torch.distributed.")
]


def command(
    file: Script,
    ranks: Annotated[int, typer.Option("-g", "--ranks", min=1, help="How many ranks run it.")],
    library: Annotated[str, typer.Option(help="Whose rules: gloo or nccl.")] = "gloo",
    eager: Annotated[
        bool, typer.Option("--eager", help="NCCL, with init_process_group(device_id=...): one communicator.")
    ] = False,
    json: options.Json = False,
) -> None:
    """Prove that a job of collectives and messages ends, or say who waits for whom."""
    run(file, ranks, library, eager=eager, as_json=json)


def run(file: Path, ranks: int, library: str, *, eager: bool, as_json: bool) -> None:
    """Record, prove and print."""
    verdict = check(program_of(file, ranks, library, eager=eager))
    if as_json:
        console.print_json("program", _content(file, ranks, library, verdict))
    else:
        print(f"{file} on {ranks} ranks of {library}: {verdict.verdict}, {verdict.operations} operations")
        print("".join(f"# {sentence}\n" for sentence in verdict.story), end="")
    if verdict.verdict != PROVED:
        raise typer.Exit(1)


def _content(file: Path, ranks: int, library: str, verdict: Verdict) -> dict[str, Any]:
    return {
        "inputs": {"file": str(file), "ranks": ranks, "library": library},
        "verdict": verdict.verdict,
        "story": list(verdict.story),
        "operations": verdict.operations,
    }
