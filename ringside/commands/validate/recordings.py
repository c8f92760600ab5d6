"""``ringside validate recordings``: recorded scripts, predicted and really run."""

from ringside import console, options
from ringside.commands.validate.outcome import carry_out, content, print_outcome
from ringside.options import asks
from ringside.validation.emulated.recordings import ComparedScript
from ringside.validation.questions.emulated_validation import RecordingValidation, RecordingValidations

HEADS = (
    ("script", ""),
    ("measured", "(ms)"),
    ("predicted", "(ms)"),
    ("error", "(%)"),
    ("spread", "(%)"),
    ("exposed", "(%)"),
    ("waiting", "(%)"),
)


@asks(RecordingValidation)
def command(
    question: RecordingValidation, all_columns: options.All = False, json: options.Json = False
) -> None:
    """Record scripts, predict their steps, then really run them while operators sleep."""

    def report(answer: RecordingValidations) -> None:
        if json:
            console.print_json("validation_recordings", content(answer))
            return
        grid = console.TextTable(HEADS, [_cells(case.name, one) for case, one in answer.cases])
        print_outcome(answer, grid, [check.sentence for check in answer.checks])

    carry_out(question, RecordingValidations, report)


def _cells(name: str, one: ComparedScript) -> tuple[console.Cell, ...]:
    predicted = one.predicted
    return (
        *(name.replace(" ", "_"), one.measured.step_s * 1e3, predicted.step_s * 1e3, one.error * 100),
        *(one.measured.spread * 100, one.exposed * 100, predicted.bubble_share * 100),
    )
