"""``ringside validate training``: predicted and real steps of FSDP, pipelines and tensor parallelism."""

from ringside import console, options
from ringside.commands.compare.training import HEADS, MOST_SHOWN, cells, trainings_page
from ringside.commands.validate.outcome import carry_out, content, print_outcome
from ringside.options import asks
from ringside.report.page import write_page
from ringside.topologies.disk import check_outputs
from ringside.validation.questions.emulated_validation import TrainingValidation, TrainingValidations


@asks(TrainingValidation)
def command(
    question: TrainingValidation,
    html: options.Html = None,
    all_columns: options.All = False,
    json: options.Json = False,
) -> None:
    """Predict, then measure, steps of FSDP and pipelines on emulated networks."""
    check_outputs([html])

    def report(answer: TrainingValidations) -> None:
        whole, sentences = content(answer), [check.sentence for check in answer.checks]
        if html:
            steps = {case.name: one for case, one in answer.cases}
            write_page(trainings_page(steps, whole, sentences), html)
        if json:
            console.print_json("validation_training", whole)
            return
        lines = [
            f"{case.name}: {line}" for case, one in answer.cases for line in one.differences[:MOST_SHOWN]
        ]
        grid = console.TextTable(HEADS, [cells(case.name, one) for case, one in answer.cases])
        print_outcome(answer, grid, [*sentences, *lines])

    carry_out(question, TrainingValidations, report)
