"""``ringside program``: whether a job of collectives and messages ends, and how long it takes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer

from ringside import console, options
from ringside.commands.program.training_script import is_training_script
from ringside.options import asks_one_of
from ringside.real.questions.program_run import ProgramRun
from ringside.sim.flight.file import is_flight
from ringside.sim.formats.program_files import check_export, write
from ringside.sim.questions.hang_cause import HangCause
from ringside.sim.questions.program_time import ProgramTime
from ringside.sim.questions.program_verdict import ProgramProof, ProgramVerdict
from ringside.sim.questions.question import Question, options_of

Asked = TypeVar("Asked", bound=Question)

_FIELDS: dict[type[Question], set[str]] = {
    question: {one.name for one in options_of(question)}
    for question in (ProgramVerdict, ProgramTime, ProgramRun, HangCause)
}
_OF_RUNS = {*(_FIELDS[ProgramRun] - _FIELDS[ProgramTime]), "output"}
_OF_SIMULATIONS = {*(_FIELDS[ProgramTime] - _FIELDS[ProgramRun]), "plot"}


@asks_one_of(ProgramVerdict, ProgramTime, ProgramRun, HangCause)
def command(
    values: dict[str, Any],
    context: typer.Context,
    only_check: Annotated[bool, typer.Option("--check", help="Only prove that it ends.")] = False,
    real: Annotated[bool, typer.Option("--real", help="Run it for real, over torch.distributed.")] = False,
    output: Annotated[
        Path | None, typer.Option("-o", metavar="FILE.jsonl", help="Real: one line per run.")
    ] = None,
    plot: options.Plot = None,
    trace: options.Trace = None,
    export: options.Export = None,
    force: options.Force = False,
    all_columns: options.All = False,
    json: options.Json = False,
) -> None:
    """Prove that a job of collectives and messages ends, or show who waits; simulate or run it."""
    file, more = values.get("file"), values.get("more")
    if file is not None and is_training_script(file):
        _training_script(values, tuple(more or ()), console.given(context), as_json=json)
        return
    if file is not None and file.suffix != ".py" and is_flight(file):
        _hang(values, console.given(context), plot, as_json=json)
        return
    if more:
        raise ValueError(
            f"{more[0]}: only a training script has arguments, and only dumps are several; remove it"
        )
    placed = "cluster" in values
    _refuse_misplaced(console.given(context), real=real, only_check=only_check, placed=placed)
    if real:
        from ringside.commands.program import real as program_real

        run: ProgramRun = _made(ProgramRun, values)
        program_real.run(run, output, trace, _print, force=force, as_json=json)
    elif placed and not only_check:
        from ringside.commands.program import on_cluster

        unproved = on_cluster.run(_made(ProgramTime, values), plot, trace, export, as_json=json)
        if unproved:
            _show(unproved, None, as_json=json)
    else:
        question: ProgramVerdict = _made(ProgramVerdict, values)
        if export:
            check_export(export, (question.file or "",))
        with console.simulating("recording") as bar:
            proof = question.ask(tell=bar.done)
        _show(proof, export, as_json=json)


def _hang(values: dict[str, Any], given: set[str], plot: Path | None, *, as_json: bool) -> None:
    """Say why a job hangs, by its dumps."""
    from ringside.commands.program import dumps

    if misplaced := _flags(given - {"file", "more", "ranks", "plot", "json", "all_columns"}):
        raise ValueError(f"{misplaced}: dumps of a job that hangs are not simulated or run; remove it")
    dumps.run(_made(HangCause, values), plot, as_json=as_json)


def _training_script(
    values: dict[str, Any], more: tuple[str, ...], given: set[str], *, as_json: bool
) -> None:
    """Prove a training script's step, as `ringside record` records it."""
    from ringside.commands.program import training_script

    file = values["file"]
    if misplaced := _flags(given - {"file", "more", "ranks", "library", "only_check", "json", "all_columns"}):
        raise ValueError(
            f"{misplaced}: {file} is a training script, which is only proved; for times ringside record "
            f"-o job.json {file}, and job.json in its place"
        )
    _show(
        training_script.proof(file, more, values.get("ranks"), values.get("library")), None, as_json=as_json
    )


def _made(question: type[Asked], values: dict[str, Any]) -> Asked:
    """Make a question from the options that are its fields."""
    return question(**{name: values[name] for name in _FIELDS[question] & values.keys()})


def _show(proof: ProgramProof, export: Path | None, *, as_json: bool) -> None:
    """Print a verdict, and export a proved job; exit 1 unless it is proved."""
    exports = export is not None and proof.is_proved
    lost = write(proof.program, export, proof.schedule_of) if export and exports else []
    if as_json:
        notes = {"notes": list(proof.notes)} if proof.notes else {}
        written = {"export": str(export), "lost": list(lost)} if exports else {}
        console.print_json("program", proof.content | notes | written)
    else:
        _print(proof, [f"written to {export}", *lost] if exports else [])
    if not proof.is_proved:
        raise typer.Exit(1)


def _print(proof: ProgramProof, written: Sequence[str] = ()) -> None:
    """Print a verdict, and who waits for whom."""
    notes = [*proof.notes, *written]
    console.print_answer(proof.headline, *proof.verdict.story, rests_on=proof.rests_on, notes=notes)


def _refuse_misplaced(given: set[str], *, real: bool, only_check: bool, placed: bool) -> None:
    """Raise ValueError for options without effect; ``placed`` is a job on a cluster."""
    if only_check and real:
        raise ValueError("--check only proves, --real runs; remove one of them")
    if misplaced := _flags(given & (_OF_SIMULATIONS if real else _OF_RUNS)):
        advice = "--real does not simulate; remove one of them" if real else "add --real, or remove it"
        raise ValueError(f"{misplaced}: {advice}")
    if real and "export" in given:
        raise ValueError("--export: --real runs the job and exports nothing; remove one of them")
    if only_check and (pictures := _flags(given & {"plot", "trace", "export"})):
        raise ValueError(f"{pictures}: --check only proves; remove one of them")
    lost = _flags(given & {*_OF_SIMULATIONS, "settings", "trace"})
    if lost and not (real or placed):
        raise ValueError(
            f"{lost} has no effect without --cluster or --real; add --cluster NAME, or remove it"
        )


def _flags(names: set[str]) -> str:
    """Return the options' names on the command line."""
    short = {"output": "-o", "settings": "--set", "only_check": "--check"}
    return ", ".join(short.get(name, f"--{name.replace('_', '-')}") for name in sorted(names))
