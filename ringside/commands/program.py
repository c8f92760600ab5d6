"""``ringside program``: whether a job of collectives and messages ends, and how it goes when really run."""

from pathlib import Path
from typing import Annotated, Any

import typer

from ringside import console, options
from sim.program.check import PROVED, Verdict, check
from sim.program.script import program_of

Script = Annotated[
    Path, typer.Argument(metavar="FILE.py", help="A script with def main(dist), as for torch.distributed.")
]

_OF_REAL_RUNS = {"emulate", "settings", "compute", "iterations", "warmup", "timeout", "output", "force"}


def command(
    context: typer.Context,
    file: Script,
    ranks: Annotated[int, typer.Option("-g", "--ranks", min=1, help="How many ranks run it.")],
    library: Annotated[str, typer.Option(help="Whose rules: gloo or nccl.")] = "gloo",
    eager: Annotated[
        bool, typer.Option("--eager", help="NCCL, with init_process_group(device_id=...): one communicator.")
    ] = False,
    only_check: Annotated[bool, typer.Option("--check", help="Prove that it ends, and no more.")] = False,
    real: Annotated[bool, typer.Option("--real", help="Really run it, over torch.distributed.")] = False,
    emulate: options.Emulate = None,
    settings: options.Settings = None,
    compute: Annotated[str, typer.Option(help="Real: compute by sleep or matmul.")] = "sleep",
    iterations: Annotated[int, typer.Option("-n", "--iterations", help="Real: timed runs.")] = 5,
    warmup: Annotated[int, typer.Option("-w", "--warmup", help="Real: untimed runs before them.")] = 1,
    timeout: Annotated[
        float | None,
        typer.Option(help="Real: seconds a rank may wait for another; runs what is not proved, too."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", metavar="FILE.jsonl", help="Real: a line for each run.")
    ] = None,
    trace: options.Trace = None,
    force: Annotated[bool, typer.Option("--force", help="Real: more ranks than 16 a core.")] = False,
    json: options.Json = False,
) -> None:
    """Prove that a job of collectives and messages ends, or say who waits for whom; really run it."""
    given = console.given(context)
    if only_check and real:
        raise ValueError("--check proves and no more, --real runs; leave one of them out")
    misplaced = sorted((given & {*_OF_REAL_RUNS, "trace"}) - (given if real else set()))
    if misplaced:
        words = ", ".join(_word(name) for name in misplaced)
        raise ValueError(f"for a real run only: {words}; add --real, or leave out what is")
    if not real:
        run(file, ranks, library, eager=eager, as_json=json)
        return
    from ringside.commands.program_real import RealRun

    asked = RealRun(
        emulate=emulate, settings=tuple(settings or ()), compute=compute, iterations=iterations,
        warmup=warmup, timeout_s=timeout, output=output, trace=trace, force=force,
    )  # fmt: skip
    run_really(asked, file, ranks, library, eager=eager, as_json=json)


def run(file: Path, ranks: int, library: str, *, eager: bool, as_json: bool) -> None:
    """Record, prove and print."""
    verdict = check(program_of(file, ranks, library, eager=eager))
    if as_json:
        console.print_json("program", _content(file, ranks, library, verdict))
    else:
        _print(file, ranks, library, verdict)
    if verdict.verdict != PROVED:
        raise typer.Exit(1)


def run_really(asked: Any, file: Path, ranks: int, library: str, *, eager: bool, as_json: bool) -> None:
    """Prove, run and print; what is not proved is run only with a time limit of its own."""
    from ringside.commands.program_real import content, measured, report

    asked.check(file, ranks, library, eager=eager)
    verdict = check(program_of(file, ranks, library, eager=eager))
    if not as_json:
        _print(file, ranks, library, verdict)
    if verdict.verdict != PROVED and asked.timeout_s is None:
        if as_json:
            console.print_json("program", _content(file, ranks, library, verdict))
        raise RuntimeError("not run, for it is not proved; to see what it does add --timeout SECONDS")
    found = measured(asked, file, ranks, library, eager=eager)
    if as_json:
        console.print_json("program", {**_content(file, ranks, library, verdict), "measured": content(found)})
    else:
        report(found)
    if verdict.verdict != PROVED:
        raise typer.Exit(1)


def _word(name: str) -> str:
    return {"settings": "--set", "output": "-o"}.get(name, f"--{name}")


def _print(file: Path, ranks: int, library: str, verdict: Verdict) -> None:
    print(f"{file} on {ranks} ranks of {library}: {verdict.verdict}, {verdict.operations} operations")
    print("".join(f"# {sentence}\n" for sentence in verdict.story), end="")


def _content(file: Path, ranks: int, library: str, verdict: Verdict) -> dict[str, Any]:
    return {
        "inputs": {"file": str(file), "ranks": ranks, "library": library},
        "verdict": verdict.verdict,
        "story": list(verdict.story),
        "operations": verdict.operations,
    }
