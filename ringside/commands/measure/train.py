"""``ringside measure train``: real steps of FSDP2, pipelines and tensor parallelism."""

from ringside import console, options
from ringside.commands.compare import training as compare_training
from ringside.options import asks
from ringside.real.questions.training_measurement import TrainingMeasurement, TrainingMeasurements
from ringside.real.training.record import TrainingRecord
from ringside.sim.record import TRAINING_SCHEMA, schema_of
from ringside.topologies.disk import check_outputs, held, is_stream, write_file
from ringside.validation.training.compare import compare_training as compared

HEADS = (("kind", ""), ("size", "(B)"), ("ranks", ""), ("count", "per step"))


@asks(TrainingMeasurement)
def command(
    question: TrainingMeasurement,
    output: options.Steps,
    force: options.ForceStart = False,
    all_columns: options.All = False,
    json: options.Json = False,
) -> None:
    """Measure steps of FSDP2, pipelines, tensor, context and expert parallelism."""
    check_outputs((output,), inputs=[question.emulate] if question.emulate else [])
    grows = not is_stream(output)
    if grows and output.exists() and schema_of(output) != TRAINING_SCHEMA:
        raise ValueError(f"{output} contains no such steps; write another name after -o")
    question.check(force=force)
    with held(output), console.progress("starting", question.iterations) as bar:

        def keep(record: TrainingRecord) -> None:
            if grows:  # the file always contains the steps so far; a device or a pipe gets all at the end
                write_file(output, record.dumps())
            bar.done("steps")

        answer = question.ask(force=force, on_record=keep)
    if not grows:
        write_file(output, answer.record.dumps())
    if json:
        record = answer.record
        steps = {"step_s": record.step_s, "steps": len(record.steps), "rows": answer.rows}
        console.print_json("measure_train", {"inputs": answer.inputs, "output": str(output), **steps})
    else:
        _print(answer, str(output))


def _print(answer: TrainingMeasurements, output: str) -> None:
    grid = console.TextTable(HEADS, [list(row.values()) for row in answer.rows])
    beside = compare_training.sentences(compared(answer.record))
    console.print_answer(f"{answer.headline}; all steps in {output}", grid, rests_on=beside)
