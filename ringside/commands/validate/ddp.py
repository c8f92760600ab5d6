"""``ringside validate ddp``: predicted and real training steps on emulated networks."""

from collections.abc import Mapping, Sequence
from typing import Any

from ringside import console, options
from ringside.commands.compare.ddp import HEADS as STEP_HEADS
from ringside.commands.compare.ddp import cells, steps_headline, timelines
from ringside.commands.validate.outcome import carry_out, content, print_outcome
from ringside.options import asks
from ringside.report.page import Page, Table, write_page
from ringside.topologies.disk import check_outputs
from ringside.validation.compare_ddp import ComparedSteps
from ringside.validation.emulated.plan import MBIT
from ringside.validation.emulated.training import StepCase
from ringside.validation.questions.emulated_validation import DdpValidation, DdpValidations

HEADS = (("link", "(Mb/s)"), ("workers", ""), ("cap", "(MiB)"), ("hook", ""), *STEP_HEADS[2:])


@asks(DdpValidation)
def command(
    question: DdpValidation,
    plot: options.Plot = None,
    html: options.Html = None,
    all_columns: options.All = False,
    json: options.Json = False,
) -> None:
    """Predict, then measure, steps of DistributedDataParallel on emulated networks."""
    check_outputs([plot, html])

    def report(answer: DdpValidations) -> None:
        whole, table = content(answer), [_cells(case, one) for case, one in answer.cases]
        if json:
            console.print_json("validation_ddp", whole)
        else:
            grid = console.TextTable(HEADS, table)
            print_outcome(answer, grid, [check.sentence for check in answer.checks])
        if plot:
            from ringside.pictures.jobs.training import draw_timelines

            draw_timelines(timelines(*_worst(answer)), plot)
        if html:
            write_page(_page(answer, table, whole), html, [plot])

    carry_out(question, DdpValidations, report)


def _worst(answer: DdpValidations) -> tuple[str, ComparedSteps]:
    """Return the case whose step has the largest error, by name."""
    case, one = max(answer.cases, key=lambda pair: abs(pair[1].step_error))
    return case.name, one


def _cells(case: StepCase, one: ComparedSteps) -> tuple[console.Cell, ...]:
    return (
        *(f"{case.bandwidth / MBIT:g}", case.workers, f"{case.cap_mb:g}"),
        *("powersgd" if case.powersgd else "", *cells("", one)[2:]),
    )


def _page(answer: DdpValidations, table: Sequence[Sequence[console.Cell]], raw: Mapping[str, Any]) -> Page:
    from ringside.report.charts import beside
    from ringside.report.training import timelines_figure

    name, worst = _worst(answer)
    times = {
        "measured": [one.measured_s for _, one in answer.cases],
        "predicted": [one.predicted.step_s for _, one in answer.cases],
    }
    return Page(
        title="Training steps on emulated networks, predicted and measured",
        headline=steps_headline({case.name: one.step_error for case, one in answer.cases}),
        figures={
            "Time of a step": beside([case.name for case, _ in answer.cases], times),
            f"The worst, {name}: what ran when": timelines_figure(timelines(name, worst)),
        },
        tables=[Table("Every cell", HEADS, table)],
        notes=[check.sentence for check in answer.checks],
        raw=raw,
    )
