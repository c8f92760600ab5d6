"""``ringside validate disturbances``: quantiles of disturbed steps, predicted and measured."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ringside import console, options
from ringside.commands.validate.ddp import check_line
from ringside.report.page import Page, Table, check_page, write_page
from ringside.validation.emulated.disturbances import STEPS, ComparedDraws, DisturbedCase, checks, judge, only

SHORT_STEPS = 20

HEADS = (
    *(("case", ""), ("steps", ""), ("median", "(ms)"), ("predicted", "(ms)"), ("error", "(%)")),
    *(("p95", "(ms)"), ("predicted", "(ms)"), ("error", "(%)")),
)


def command(
    short: options.Short = False,
    family: options.Cases = None,
    html: options.Html = None,
    all_columns: options.All = False,
    json: options.Json = False,
) -> None:
    """Predict, then measure, disturbed steps on emulated networks, in quantiles."""
    check_page(html)
    plan = only(family or [])
    judged: list[tuple[DisturbedCase, ComparedDraws]] = []
    try:
        with console.progress("building a network", len(plan)) as bar:

            def keep(case: DisturbedCase, one: ComparedDraws) -> None:
                judged.append((case, one))
                bar.done(case.name)

            judge(plan, keep, SHORT_STEPS if short else STEPS)
    finally:
        if judged:
            _report(judged, html, len(plan), as_json=json)
    past = [check.what for check in checks(judged) if not check.passed]
    if past:
        raise RuntimeError(f"past the tolerance: {', '.join(past)}")


def _report(
    judged: list[tuple[DisturbedCase, ComparedDraws]], html: Path | None, planned: int, *, as_json: bool
) -> None:
    results = checks(judged)
    content: dict[str, Any] = {
        "inputs": {},
        "planned_cells": planned,
        "complete": len(judged) == planned,
        "checks": [
            {"what": one.what, "error": one.error, "most": one.most, "passed": one.passed} for one in results
        ],
        "rows": [_row(case, one) for case, one in judged],
    }
    if html:
        write_page(_page(judged, content), html)
    if as_json:
        console.print_json("validation_disturbances", content)
        return
    console.print_table([], HEADS, [_cells(case, one) for case, one in judged])
    console.print_comments(map(check_line, results))
    if len(judged) < planned:
        console.print_comments([f"interrupted: {len(judged)} of {planned} cells"])


def _page(judged: list[tuple[DisturbedCase, ComparedDraws]], raw: Mapping[str, Any]) -> Page:
    from ringside.report.charts import beside

    cases = [one for _, one in judged]
    times = {
        f"{word}, {name}": [find(one, share) for one in cases]
        for name, share in (("median", 0.5), ("95th percentile", 0.95))
        for word, find in (
            ("measured", ComparedDraws.measured),
            ("predicted", lambda one, share: one.drawn.quantile(share)),
        )
    }
    results = checks(judged)
    passed = sum(check.passed for check in results)
    worst = max(results, key=lambda check: check.error)
    return Page(
        title="Disturbed training steps, predicted and measured",
        headline=f"{passed} of {len(results)} quantiles are within their tolerance; "
        f"worst error {worst.error:.1%}, {worst.what}.",
        figures={"Time of a step": beside([case.name for case, _ in judged], times)},
        tables=[Table("Every case", HEADS, [_cells(case, one) for case, one in judged])],
        told=[check_line(check) for check in results],
        raw=raw,
    )


def _row(case: DisturbedCase, one: ComparedDraws) -> dict[str, Any]:
    return {
        "case": case.name,
        "measured_s": list(one.measured_s),
        **{
            f"{word}_{name}": value
            for name, share in (("median", 0.5), ("p95", 0.95))
            for word, value in (
                ("measured", one.measured(share)),
                ("predicted", one.drawn.quantile(share)),
                ("error", one.error(share)),
            )
        },
        "undisturbed_s": one.drawn.undisturbed_s,
        "draws": len(one.drawn.times_s),
    }


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
