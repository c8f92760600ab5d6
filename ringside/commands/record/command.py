"""``ringside record``: a training script as a job, without a GPU."""

from pathlib import Path
from typing import Annotated

import typer

from ringside import console, options
from ringside.commands.record.beside import print_beside
from ringside.options import asks
from ringside.real.questions.recording import Recording, RoleCounts, ScriptRecording, size_text
from ringside.sim.questions.question import QuestionError
from ringside.sim.recorded.file import is_job_file, read_job, write_job
from ringside.topologies.disk import check_outputs
from ringside.validation.beside import beside_text
from ringside.validation.questions.training import MODEL

HEADS = (
    ("rank", ""),
    ("ranks alike", ""),
    ("operators", ""),
    ("collectives", ""),
    ("bytes", "(all)"),
    ("memory", "(peak)"),
    ("waits", "(host)"),
    ("messages", ""),
    ("bytes", "(all)"),
)


@asks(ScriptRecording)
def command(
    question: ScriptRecording,
    output: Annotated[
        Path | None, typer.Option("-o", metavar="FILE.json", help="Write the job to this file.")
    ] = None,
    beside: Annotated[
        str | None,
        typer.Option(
            metavar="'STRATEGY OPTION=VALUE ...'",
            help="Differences from a strategy of ringside train; SCRIPT may be a job that was recorded.",
        ),
    ] = None,
    model: Annotated[
        str | None, typer.Option(metavar="NAME[:SIZE]|FILE", help=f"With --beside: {MODEL}")
    ] = None,
    all_columns: options.All = False,
    json: options.Json = False,
) -> None:
    """Record an unmodified training script as a job, without a GPU."""
    check_outputs((output,))
    if (beside is None) != (model is None):
        raise QuestionError(
            "`beside` and `model` go together; write for example --beside 'fsdp batch=4' --model llama3-8b"
        )
    script = question.command[0]
    if is_job_file(script) and not question.module:
        if beside is None:
            raise QuestionError(
                f"{script} is a job that was recorded; ask `ringside train --model {script}`, or add `beside`"
            )
        answer = Recording(question, read_job(script))
    else:
        with console.progress("recording", None) as bar:
            answer = question.ask(on_rank=lambda rank: bar.done(f"rank {rank}"))
    if output:
        write_job(answer.job, output)
    own = beside_text(answer.job, model, beside) if beside is not None and model is not None else None
    if json:
        content = {"inputs": answer.inputs, "rows": answer.rows, "notes": list(answer.notes)}
        console.print_json("record", content | ({} if own is None else {"beside": own.content}))
    elif own is not None:
        print_beside(own, all_rows=all_columns)
    else:
        _print(answer, output)


def _print(answer: Recording, output: Path | None) -> None:
    roles = answer.roles
    rows: list[tuple[console.Cell, ...]] = [
        (
            *(one.rank, one.alike, one.operators, one.collectives, size_text(one.collective_bytes)),
            *(size_text(one.peak_bytes), one.waits, one.messages, size_text(one.message_bytes)),
        )
        for one in roles
    ]
    notes = [_samples(answer.job.samples), *_memory(roles), *answer.doubts]
    notes += [f"the job is in {output}; ringside train --model {output} predicts it"] if output else []
    console.print_answer(
        answer.headline, console.TextTable(HEADS, rows), rests_on=answer.rests_on, notes=notes
    )


def _samples(samples: int | None) -> str:
    unknown = "samples of a step are unknown: write --samples for samples/s of a prediction"
    return unknown if samples is None else f"{samples:,} samples a step of all ranks"


def _memory(roles: list[RoleCounts]) -> list[str]:
    most = max(roles, key=lambda one: one.peak_bytes)
    parts = ", ".join(f"{pool} {size_text(nbytes)}" for pool, nbytes in most.peak.items())
    return [f"at rank {most.rank}'s peak: {parts}"]
