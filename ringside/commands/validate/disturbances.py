"""``ringside validate disturbances``: quantiles of disturbed steps, predicted and measured."""

from collections.abc import Mapping
from typing import Any

from ringside import console, options
from ringside.commands.validate.outcome import carry_out, content, print_outcome
from ringside.options import asks
from ringside.report.page import Page, Table, write_page
from ringside.topologies.disk import check_outputs
from ringside.validation.emulated.disturbances import ComparedDraws, DisturbedCase
from ringside.validation.questions.emulated_validation import DisturbanceValidation, DisturbanceValidations

HEADS = (
    *(("case", ""), ("steps", ""), ("median", "(ms)"), ("predicted", "(ms)"), ("error", "(%)")),
    *(("p95", "(ms)"), ("predicted", "(ms)"), ("error", "(%)")),
)


@asks(DisturbanceValidation)
def command(
    question: DisturbanceValidation,
    html: options.Html = None,
    all_columns: options.All = False,
    json: options.Json = False,
) -> None:
    """Predict, then measure, disturbed steps on emulated networks, in quantiles."""
    check_outputs([html])

    def report(answer: DisturbanceValidations) -> None:
        whole = content(answer)
        if html:
            write_page(_page(answer, whole), html)
        if json:
            console.print_json("validation_disturbances", whole)
            return
        grid = console.TextTable(HEADS, [_cells(case, one) for case, one in answer.cases])
        print_outcome(answer, grid, [check.sentence for check in answer.checks])

    carry_out(question, DisturbanceValidations, report)


def _page(answer: DisturbanceValidations, raw: Mapping[str, Any]) -> Page:
    from ringside.report.charts import beside

    cases = [one for _, one in answer.cases]
    times = {
        f"{word}, {name}": [find(one, share) for one in cases]
        for name, share in (("median", 0.5), ("95th percentile", 0.95))
        for word, find in (
            ("measured", ComparedDraws.measured),
            ("predicted", lambda one, share: one.drawn.quantile(share)),
        )
    }
    results = answer.checks
    passed = sum(check.passed for check in results)
    worst = max(results, key=lambda check: check.error)
    return Page(
        title="Disturbed training steps, predicted and measured",
        headline=f"{passed} of {len(results)} quantiles are within their tolerance; "
        f"worst error {worst.error:.1%}, {worst.what}.",
        figures={"Time of a step": beside([case.name for case, _ in answer.cases], times)},
        tables=[Table("Every case", HEADS, [_cells(case, one) for case, one in answer.cases])],
        notes=[check.sentence for check in results],
        raw=raw,
    )


def _cells(case: DisturbedCase, one: ComparedDraws) -> tuple[console.Cell, ...]:
    return (
        *(case.name.replace(" ", "_"), len(one.measured_s)),
        *(
            cell
            for share in (0.5, 0.95)
            for cell in (
                one.measured(share) * 1e3,
                one.drawn.quantile(share) * 1e3,
                one.error(share) * 100,
            )
        ),
    )
