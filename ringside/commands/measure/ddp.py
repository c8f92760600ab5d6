"""``ringside measure ddp``: real DistributedDataParallel steps, with a model or with sleeping layers."""

from pathlib import Path
from typing import Annotated, Any

import typer

from ringside import console, options
from ringside.options import asks
from ringside.sim.record import DDP_SCHEMA, schema_of
from ringside.sim.training.ddp.step import DdpRecord
from ringside.topologies.disk import check_outputs, held, is_stream, write_file
from ringside.validation.questions.ddp_measurement import DdpMeasurement, DdpMeasurements

HEADS = (
    ("bucket", ""),
    ("size", "(B)"),
    ("ready", "(ms)"),
    ("launch", "(ms)"),
    ("start", "(ms)"),
    ("finish", "(ms)"),
)


@asks(DdpMeasurement)
def command(
    question: DdpMeasurement,
    output: options.Steps,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", callback=options.check_picture, help="Draw the median step."),
    ] = None,
    trace: Annotated[Path | None, typer.Option(metavar="FILE", help="Write its Perfetto trace.")] = None,
    force: options.ForceStart = False,
    all_columns: options.All = False,
    json: options.Json = False,
) -> None:
    """Measure steps of DistributedDataParallel, with a model or with sleeping layers."""
    check_outputs((output, trace, plot), inputs=[file for file in (question.model, question.emulate) if file])
    question.check(force=force)
    grows = not is_stream(output)
    if grows and output.exists() and schema_of(output) != DDP_SCHEMA:
        raise ValueError(f"{output} contains no steps; write another name after -o")
    with held(output), console.progress("starting", question.iterations) as bar:

        def keep(record: DdpRecord) -> None:
            if grows:  # the file always contains the steps so far; a device or a pipe gets all at the end
                write_file(output, record.dumps())
            bar.done("steps")

        answer = question.ask(force=force, on_record=keep)
    step = answer.record.median
    if not grows:
        write_file(output, answer.record.dumps())
    if trace:
        write_file(trace, step.dumps())
    if plot:
        from ringside.pictures.jobs.training import draw_timelines

        draw_timelines({f"{step.workload} on {step.ranks} ranks, measured": step}, plot)
    if json:
        console.print_json("measure_ddp", _content(answer, output))
    else:
        _print(answer, output)


def _content(answer: DdpMeasurements, output: Path) -> dict[str, Any]:
    """Return the median step for JSON, a row per bucket, and the time of each step."""
    measured, step = answer.record, answer.record.median
    return {
        "inputs": answer.inputs, "output": str(output),
        "workload": step.workload, "ranks": step.ranks, "step_s": step.step_s,
        "compute_s": step.compute_s, "communication_s": step.communication_s, "exposed_s": step.exposed_s,
        "overlap_efficiency": step.overlap_efficiency, "steps_s": [one.step_s for one in measured.steps],
        "rows": answer.rows,
    }  # fmt: skip


def _print(answer: DdpMeasurements, output: Path) -> None:
    step = answer.record.median
    rows: list[tuple[console.Cell, ...]] = [
        (
            *(run.name.removeprefix("bucket ").replace(" ", "_"), run.nbytes),
            *(time * 1e3 for time in (run.ready_s, run.launch_s, run.start_s, run.finish_s)),
        )
        for run in step.buckets
    ]
    headline = f"{answer.headline}; all steps in {output}"
    console.print_answer(headline, console.TextTable(HEADS, rows), rests_on=answer.rests_on)
