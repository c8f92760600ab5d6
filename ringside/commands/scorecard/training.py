"""``ringside scorecard training``: published trainings beside their predictions and naive rules."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from ringside import console, options
from ringside.pictures.style import check_format
from ringside.report.page import Page, Table, check_page, write_page
from ringside.topologies.disk import check_outputs

if TYPE_CHECKING:  # help must not wait for simulations
    from ringside.validation.published.training.judging.judged import Counted, Judged, Score, TrainingTable

HEADS = (
    *(("table", ""), ("part", ""), ("series", ""), ("rows", "")),
    *(("median", "(%)"), ("p90", "(%)"), ("worst", "(%)"), ("bias", "(%)")),
    *(("naive", "(%)"), ("its p90", "(%)")),
)

TITLE = "Published trainings beside predictions that did not use them"

WORST = 3
"""The number of worst rows named per table."""


def command(
    names: Annotated[
        list[str] | None, typer.Option("--table", metavar="NAME", help="Only this table; repeat for more.")
    ] = None,
    plot: options.Plot = None,
    html: options.Html = None,
    all_columns: options.All = False,
    json: options.Json = False,
) -> None:
    """Score predicted training steps on published ones, given one row of each series."""
    from ringside.validation.published.training.judging.judged import scores
    from ringside.validation.published.training.tables import find_tables

    check_format(plot)
    check_outputs([plot], inputs=[])
    check_page(html, [plot])
    tables = find_tables(names or [])
    results: list[tuple[TrainingTable, Sequence[Judged], Sequence[Counted]]] = []
    with console.simulating(tables[0].name, len(tables)) as bar:
        for table in tables:
            bar.text = table.name
            results.append((table, table.judged(), table.counted()))
            bar.done(table.name)
    summed = [one for table, rows, _ in results for one in scores(table.name, rows)]
    if plot:
        from ringside.pictures.measured.training import draw_training

        draw_training(summed, plot)
    content = {"tables": [_as_json(table, rows, counted) for table, rows, counted in results]}
    comments = [
        f"{sum(len(rows) for _, rows, _ in results)} held-out published rows beside predictions; "
        "one row of each series sets its compute rate",
        "median, 90th percentile and worst error, signed median (bias), and the errors of each table's "
        "naive rule",
        *(
            f"{table.name}: {table.title}; calibrated by: {table.sets}; naive: {table.rule}"
            for table in tables
        ),
    ]
    if html:
        write_page(_page(summed, comments, content), html, [plot])
    if json:
        console.print_json("scorecard_training", content)
        return
    console.print_table(comments, HEADS, map(_cells, summed))
    lines: list[str] = []
    for table, rows, counted in results:
        if rows:
            worst = ", ".join(f"{row.series} {row.what} {row.error:+.1%}" for row in _worst(rows))
            lines.append(f"worst of {table.name}: {worst}")
        for one in counted:
            naive = "" if one.by_rule is None else f", naive {one.by_rule}"
            lines.append(f"{table.name}: {one.question}: {one.right} of {one.of}{naive}")
        for alike in table.correlated():
            naive = "" if alike.by_rule is None else f", naive {alike.by_rule:.3f}"
            lines.append(f"{table.name}: Spearman's correlation of {alike.what}: {alike.spearman:.3f}{naive}")
    console.print_comments(lines)


def _page(summed: "Sequence[Score]", notes: Sequence[str], raw: Mapping[str, object]) -> Page:
    from ringside.report.charts import errors

    if not summed:
        return Page(title=TITLE, headline="These tables have no rows.", told=notes, raw=raw)
    best, worst = (pick(summed, key=lambda score: score.median) for pick in (min, max))
    kinds = {
        "Ringside": ([score.median for score in summed], [score.p90 for score in summed]),
        "naive rule": ([score.rule_median for score in summed], [score.rule_p90 for score in summed]),
    }
    return Page(
        title=TITLE,
        headline=f"The median error over {best.rows} rows of {best.table} is {best.median:.1%}."
        if len(summed) == 1
        else f"Over {sum(score.rows for score in summed)} rows the median error of a table is between "
        f"{best.median:.1%} ({best.table}) and {worst.median:.1%} ({worst.table}).",
        figures={"Median errors of the predictions and of each table's naive rule": errors(
            [f"{f'{one.table} {one.part}'.rstrip()} ({one.rows})" for one in summed], kinds)},
        tables=[Table("Every table", HEADS, [_cells(one) for one in summed])],
        told=notes,
        raw=raw,
    )  # fmt: skip


def _worst(rows: "Sequence[Judged]") -> "list[Judged]":
    return sorted(rows, key=lambda row: -abs(row.error))[:WORST]


def _cells(score: "Score") -> tuple[console.Cell, ...]:
    errors = (score.median, score.p90, score.worst, score.bias, score.rule_median, score.rule_p90)
    shown = (f"{error * 100:.2f}" if math.isfinite(error) else "-" for error in errors)
    return score.table, score.part or "all", score.series, score.rows, *shown


def _as_json(
    table: "TrainingTable", rows: "Sequence[Judged]", counted: "Sequence[Counted]"
) -> dict[str, object]:
    """Return a table with its scores and rows; null where the naive rule gives no value."""
    from ringside.validation.published.training.judging.judged import scores

    summed = [asdict(one) for one in scores(table.name, rows)]
    judged = [row._asdict() | {"error": row.error, "rule_error": row.rule_error} for row in rows]
    return {
        **{name: getattr(table, name) for name in ("name", "title", "source", "sets", "rule", "unit")},
        "scores": [_finite(one) for one in summed],
        "rows": [_finite(one) for one in judged],
        "counted": [one._asdict() for one in counted],
        "correlated": [one._asdict() for one in table.correlated()],
    }


def _finite(numbers: dict[str, object]) -> dict[str, object]:
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in numbers.items()
    }
