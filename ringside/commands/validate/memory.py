"""``ringside validate memory``: predicted peaks of memory beside torch's own accounting of real training."""

from ringside import console, options
from ringside.commands.validate.outcome import carry_out, content, print_outcome
from ringside.options import asks
from ringside.validation.questions.emulated_validation import MemoryValidation, MemoryValidations
from ringside.validation.training.memory import ComparedPeak

HEADS = (
    ("job", ""),
    ("rank", ""),
    ("measured", "(MiB)"),
    ("predicted", "(MiB)"),
    ("error", "(%)"),
    ("when measured", ""),
    ("when predicted", ""),
)


@asks(MemoryValidation)
def command(question: MemoryValidation, all_columns: options.All = False, json: options.Json = False) -> None:
    """Predict, then measure, peaks of memory of small training jobs."""

    def report(answer: MemoryValidations) -> None:
        if json:
            console.print_json("validation_memory", content(answer))
            return
        rows = [_cells(case.name, one) for case, peaks in answer.cases for one in peaks.ranks]
        grid = console.TextTable(HEADS, rows)
        print_outcome(answer, grid, [check.sentence for check in answer.checks])

    carry_out(question, MemoryValidations, report)


def _cells(name: str, one: ComparedPeak) -> tuple[console.Cell, ...]:
    measured, predicted = (sum(by_kind.values()) / 2**20 for by_kind in (one.measured, one.predicted))
    when = one.during.split(",")[0].replace(" ", "_")
    return name.replace(" ", "_"), one.rank, measured, predicted, one.error * 100, one.operator, when
