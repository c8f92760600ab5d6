"""``ringside program --real``: run a job of collectives and messages for real, and time each rank.

On an emulated network the prediction from ping-pong is shown too.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer

from ringside import console
from ringside.real.questions.program_run import ProgramRun, ProgramRuns
from ringside.sim.formats.program_files import holds_program
from ringside.sim.program.timeline import ProgramTimeline
from ringside.sim.questions.program_verdict import ProgramProof
from ringside.topologies.disk import check_outputs, write_file
from ringside.validation.emulated.programs import predict

HEADS = (("rank", ""), ("end", "(ms)"), ("fastest", "(ms)"), ("slowest", "(ms)"))
PREDICTED_HEADS = (("predicted", "(ms)"), ("error", "(%)"))


def run(
    question: ProgramRun, output: Path | None, trace: Path | None,
    print_proof: Callable[[ProgramProof], None], *, force: bool, as_json: bool,
) -> None:  # fmt: skip
    """Prove, run, write and print; exit 1 unless the job is proved."""
    if holds_program(question.path):
        raise ValueError(f"{question.path}: --real runs scripts only; remove it, or write FILE.py")
    inputs: list[Path | str] = [question.path, *([question.emulate] if question.emulate else [])]
    check_outputs((output, trace), inputs=inputs)

    def show(proof: ProgramProof) -> None:
        if not as_json and not proof.is_proved:
            print_proof(proof)
        elif not proof.is_proved and question.timeout is None:
            console.print_json("program", proof.content)

    with console.progress("starting", question.iterations) as bar:
        answer = question.ask(force=force, on_proof=show, on_run=bar.done)
    measured, program = answer.measured, answer.proof.program
    predicted = predict(program, answer.links) if answer.links else None
    if output:
        write_file(output, measured.lines())
    if trace:
        write_file(trace, measured.trace())
    if as_json:
        console.print_json("program", _content(answer, predicted))
    else:
        _print(answer, predicted)
    if not answer.proof.is_proved:
        raise typer.Exit(1)


def _content(answer: ProgramRuns, predicted: ProgramTimeline | None) -> dict[str, Any]:
    measured = answer.measured
    whole: dict[str, Any] = {**answer.proof.content, "inputs": answer.inputs}
    if predicted:
        ends = [predicted.times[rank].end_s for rank in range(predicted.ranks)]
        whole |= {"makespan_s": predicted.makespan_s, "ends_s": ends}
    return whole | {
        "measured": {
            "makespan_s": measured.makespan_s,
            "min_s": min(run.makespan_s for run in measured.runs),
            "max_s": max(run.makespan_s for run in measured.runs),
            "iterations": len(measured.runs),
            "ends_s": list(measured.ends_s),
        }
    }


def _print(answer: ProgramRuns, predicted: ProgramTimeline | None) -> None:
    measured, rests_on = answer.measured, answer.rests_on
    rows: list[list[console.Cell]] = [
        [row["rank"], *(row[name] * 1e3 for name in ("end_s", "min_s", "max_s"))] for row in answer.rows
    ]
    heads: tuple[tuple[str, str], ...] = HEADS
    if predicted:
        error = predicted.makespan_s / measured.makespan_s - 1
        rests_on = [f"predicted from ping-pong: makespan {predicted.makespan_s * 1e3:.2f} ms, {error:+.1%}"]
        heads += PREDICTED_HEADS
        for rank, row in enumerate(rows):
            end = predicted.times[rank].end_s
            row += [end * 1e3, (end / measured.ends_s[rank] - 1) * 100]
    grid = console.TextTable(heads, rows)
    console.print_answer(answer.headline, grid, rests_on=rests_on, notes=answer.notes)
