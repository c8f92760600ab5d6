"""``ringside scorecard``: errors of predictions on published rows that they did not use."""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ringside import console, options
from ringside.options import asks
from ringside.report.page import Page, Table, write_page
from ringside.topologies.disk import check_outputs
from ringside.validation.questions.scorecard import (
    COLLECTIVES,
    EXPERTS,
    MEMORY,
    MPI,
    TRAINING,
    Scorecard,
    ScorecardAnswer,
    label,
)

if TYPE_CHECKING:  # help must not wait for scipy and simulations
    from ringside.validation.scorecard.collectives import SiteScore
    from ringside.validation.scorecard.judged import JudgedRow, Score, TableResult

Heads = Sequence[tuple[str, str]]

ABSOLUTE = "absolute"
"""The scores of trainings with nothing known, among those of other kinds."""

TITLES = {
    ABSOLUTE: "Published trainings beside predictions from no measured row",
    COLLECTIVES: "NCCL's calibrated times, judged on held-out published rows",
    TRAINING: "Published trainings beside predictions that did not use them",
    MPI: "Open MPI's calibrated times, judged on held-out published rows",
    EXPERTS: "Exchanges of experts' tokens, judged on held-out published rows",
    MEMORY: "Published peaks of GPUs' memory beside predictions from their arguments alone",
}
SCHEMAS = {
    COLLECTIVES: "scorecard", TRAINING: "scorecard_training", MPI: "scorecard_mpi",
    ABSOLUTE: "scorecard_absolute", MEMORY: "scorecard_memory", EXPERTS: "scorecard_experts",
}  # fmt: skip
WORST = 3
"""The number of worst rows named per table."""


@asks(Scorecard)
def command(
    question: Scorecard,
    plot: options.Plot = None,
    html: options.Html = None,
    all_columns: options.All = False,
    json: options.Json = False,
) -> None:
    """Score predicted collectives or steps on held-out published rows, beside simple rules."""
    check_outputs([plot, html])
    parts = question.parts
    with console.simulating(parts[0], len(parts)) as bar:
        answer = question.ask(bar.done)
    if plot:
        from ringside.pictures.measured.scorecard import draw_scorecard

        draw_scorecard(answer.scores, plot)
    kind = ABSOLUTE if question.absolute else question.what
    notes, heads, rows, findings = _FORMS[kind](answer)
    if html:
        write_page(_page(answer, TITLES[kind], notes, heads, rows, findings), html, [plot])
    if json:
        console.print_json(SCHEMAS[kind], answer.content)
    else:
        grid = console.TextTable(heads, rows)
        console.print_answer(answer.headline, grid, rests_on=notes[:1], notes=[*notes[1:], *findings])


Form = tuple[list[str], Heads, list[tuple[console.Cell, ...]], list[str]]
"""Comments before the table, its heads and rows, comments after it."""


def _of_collectives(answer: ScorecardAnswer) -> Form:
    rules = list(answer.scores[0].rules)
    heads = (
        *(("by", ""), ("", ""), ("rows", ""), ("measured", "model (%)"), ("p90", "(%)"), ("inside", "(%)")),
        *((name, "(%)") for name in rules),
    )
    beaten = [line for score in answer.scores if (line := _beaten(score))]
    notes = [
        f"{len(answer.results)} fits, {answer.judged} rows judged, each held out of its fit",
        "median error of the measured model, its 90th percentile, share of rows inside their 80 % interval; "
        "median error of simple rules on the same rows, - where a rule does not apply",
        "size, machine, collective and nodes group the rows of more nodes and another site",
        *beaten,
    ]
    rows = [
        (
            *(score.group, score.name, score.errors.rows),
            *(100 * one for one in (score.errors.median, score.errors.p90, score.errors.inside)),
            *(100 * one.median if math.isfinite(one.median) else "-" for one in score.rules.values()),
        )
        for score in answer.scores
    ]
    return notes, heads, rows, [*(_site_line(site) for site in answer.sites), *_of_logs(answer)]


def _of_logs(answer: ScorecardAnswer) -> list[str]:
    """Return a line about the logs that `explain` judged, if it did."""
    logs = answer.logs
    if logs is None:
        return []
    return [
        f"healthy logs judged by explain: a cause is named in {logs.blamed} of {logs.sound}; with "
        f"half the bandwidth between nodes {logs.caught} of {logs.slowed}"
    ]


def _of_training(answer: ScorecardAnswer) -> Form:
    heads = (
        *(("table", ""), ("part", ""), ("series", ""), ("rows", "")),
        *(("median", "(%)"), ("p90", "(%)"), ("worst", "(%)"), ("bias", "(%)")),
        *(("naive", "(%)"), ("its p90", "(%)")),
    )
    tables = [one.table for one in answer.results]
    notes = [
        f"{answer.judged} held-out published rows beside predictions; one row of each series sets its "
        "compute rate",
        "median, 90th percentile and worst error, signed median (bias), and the errors of each table's "
        "naive rule",
        *(
            f"{table.name}: {table.title}; calibrated by: {table.sets}; naive: {table.rule}"
            for table in tables
        ),
    ]
    rows: list[tuple[console.Cell, ...]] = []
    for score in answer.scores:
        own, (naive,) = score.errors, score.rules.values()
        errors = own.median, own.p90, own.worst, own.bias, naive.median, naive.p90
        shown = (f"{error * 100:.2f}" if math.isfinite(error) else "-" for error in errors)
        rows.append((score.group, score.name or "all", score.series, own.rows, *shown))
    return notes, heads, rows, [line for one in answer.results for line in _findings(one)]


def _of_absolute(answer: ScorecardAnswer) -> Form:
    assert answer.absolute is not None
    scored, spread = answer.absolute, answer.absolute.deviations
    heads = (
        *(("by", ""), ("", ""), ("sources", ""), ("rows", "")),
        *(("median", "(%)"), ("p90", "(%)"), ("worst", "(%)"), ("bias", "(%)"), ("inside", "(%)")),
    )
    factors = ", ".join(f"{name} {factor:.3f}" for name, factor in spread.factors.items())
    notes = [
        f"{len(scored.rows)} published steps beside predictions from their questions alone: no measured row",
        "median, 90th percentile and worst error, signed median (bias), share of steps inside the 80 % "
        "interval that other sources give",
        f"four of five steps, each source weighing the same, lie within a factor of {spread.half_width:.3f}, "
        f"with a row of the same source known {spread.known_half_width:.3f}; log time deviates by "
        f"{spread.between:.3f} between sources and by {spread.within:.3f} within one",
        f"measured over predicted, by family of stacks: {factors}",
        "each source once: median error {:.1%}, 90th percentile {:.1%}, bias {:+.1%}".format(*scored.once),
    ]
    rows: list[tuple[console.Cell, ...]] = []
    for score in (*scored.scores, scored.left_out):
        own = score.errors
        errors = own.median, own.p90, own.worst, own.bias, own.inside
        shown = (f"{100 * error:.1f}" if math.isfinite(error) else "-" for error in errors)
        rows.append((score.group, score.name, score.series, own.rows, *shown))
    worst = sorted(scored.rows, key=lambda row: -abs(row.error))[: 3 * WORST]
    known = [_shown(row) for row in scored.shown]
    named = [f"worst: {row.traits['source']} {row.what} {row.error:+.1%}" for row in worst]
    return notes, heads, rows, [*named, *known]


def _shown(row: "JudgedRow") -> str:
    """Describe a row that judges nothing."""
    where = "inside" if row.low <= row.measured <= row.high else "outside"
    return (
        f"{row.traits['source']}: {row.what}: measured {row.measured:.4g} s, "
        f"predicted {row.predicted:.4g} s, {row.error:+.1%}, {where} its interval"
    )


def _of_mpi(answer: ScorecardAnswer) -> Form:
    heads = (
        *(
            ("machine", ""),
            ("collective", ""),
            ("fitted", ""),
            ("rows", ""),
            ("median", "(%)"),
            ("p90", "(%)"),
        ),
        *(("inside", "(%)"), ("fastest", "named"), ("or tied", ""), ("rows", "fitted"), ("median", "(%)")),
    )
    rows: list[tuple[console.Cell, ...]] = []
    for one, score in zip(answer.results, answer.scores, strict=True):
        errors, kind = score.errors, one.rows[0].part or "all"
        counts = [f"{count.right} of {count.of}" if count.of else "-" for count in one.counted]
        judged = errors.rows, 100 * errors.median, 100 * errors.p90, 100 * errors.inside
        fitted = one.fitted.rows, 100 * one.fitted.median
        rows.append((one.rows[0].series, kind, one.table.sets, *judged, *counts, *fitted))
    notes = [f"{answer.judged} rows judged by {len(answer.results)} fits, each held out of its fit"]
    return notes, heads, rows, []


def _of_experts(answer: ScorecardAnswer) -> Form:
    heads = (
        *(("judged", ""), ("exchange", ""), ("rows", ""), ("median", "(%)"), ("p90", "(%)")),
        *(("bias", "(%)"), ("inside", "(%)"), ("links", "alone (%)")),
    )
    notes = [
        f"{answer.judged} phases judged by {len(answer.results)} fits, each held out of its fit",
        "median error, its 90th percentile, signed median (bias), share of rows inside their 80 % interval; "
        "median error of the bytes over the slower link's full rate",
        *(f"{one.table.name}: fitted to {one.table.sets}" for one in answer.results),
    ]
    rows: list[tuple[console.Cell, ...]] = []
    for score in answer.scores:
        own, (naive,) = score.errors, score.rules.values()
        figures = own.median, own.p90, own.bias, own.inside, naive.median
        shown = (f"{100 * one:.1f}" if math.isfinite(one) else "-" for one in figures)
        rows.append((score.group, score.name or "all", own.rows, *shown))
    return notes, heads, rows, [line for one in answer.results for line in _findings(one)]


def _of_memory(answer: ScorecardAnswer) -> Form:
    assert answer.memory is not None
    scored = answer.memory
    heads = (
        *(("by", ""), ("", ""), ("cases", ""), ("rows", ""), ("median", "(%)"), ("p90", "(%)")),
        *(("worst", "(%)"), ("bias", "(%)"), ("too low", "(%)")),
    )
    notes = [
        f"{scored.judged} of {scored.cases} functional tests of Megatron-LM, and SimuMax's trainings: the "
        "peak of torch's allocator on the last rank (SimuMax: on each stage) beside the predicted one",
        "median, 90th percentile and worst error, signed median (bias), share of rows that are predicted "
        "more than 5 % too low",
    ]
    rows: list[tuple[console.Cell, ...]] = []
    for one in scored.scores:
        own = one.score.errors
        shown = (f"{100 * error:.1f}" for error in (own.median, own.p90, own.worst, own.bias, one.too_low))
        rows.append((one.score.group, one.score.name, one.score.series, own.rows, *shown))
    worst = sorted(scored.rows, key=lambda row: -abs(row.error))[: 3 * WORST]
    return notes, heads, rows, [
        *(f"worst: {row.series} {row.what} {row.error:+.1%}" for row in worst),
        *(f"not judged, {count}: {reason}" for reason, count in Counter(scored.refused).most_common()),
        *(f"judged and not modelled, {count}: {name}"
          for name, count in Counter(scored.unmodelled).most_common()),
    ]  # fmt: skip


_FORMS: dict[str, Callable[[ScorecardAnswer], Form]] = {
    COLLECTIVES: _of_collectives,
    TRAINING: _of_training,
    MPI: _of_mpi,
    ABSOLUTE: _of_absolute,
    MEMORY: _of_memory,
    EXPERTS: _of_experts,
}


def _page(
    answer: ScorecardAnswer,
    title: str,
    notes: Sequence[str],
    heads: Heads,
    rows: Sequence[tuple[console.Cell, ...]],
    findings: Sequence[str],
) -> Page:
    from ringside.report.charts import errors

    scores = answer.scores
    lines = [*notes, *findings]
    if not scores:
        return Page(title=title, headline=answer.headline, notes=lines, raw=answer.content)
    kinds = {"Ringside": ([one.errors.median for one in scores], [one.errors.p90 for one in scores])}
    for rule in scores[0].rules:
        own = [score.rules[rule] for score in scores]
        kinds[rule] = [one.median for one in own], [one.p90 for one in own]
    return Page(
        title=title,
        headline=answer.headline,
        figures={"Median errors of the predictions and of simple rules": errors(
            [f"{label(one)} ({one.errors.rows})" for one in scores], kinds)},
        tables=[Table("Every group of rows", heads, rows)],
        notes=lines,
        raw=answer.content,
    )  # fmt: skip


def _beaten(score: "Score") -> str:
    """Describe which simple rules do better on a group; empty for none."""
    median = score.errors.median
    better = [f"{name} {rule.median:.1%}" for name, rule in score.rules.items() if rule.median < median]
    return f"better than the model's {median:.1%} on {score.name}: {', '.join(better)}" if better else ""


def _site_line(site: "SiteScore") -> str:
    """Describe the error with each site counted once."""
    large = f", {site.large:.1%} for 128 MiB and more" if math.isfinite(site.large) else ""
    inside = f"; {site.inside:.0%} inside their intervals" if math.isfinite(site.inside) else ""
    return (
        f"{site.name}: median of the medians of {site.sites} sites {site.median_of_medians:.1%}{large}; "
        f"mean of the medians {site.mean_of_medians:.1%}, mean of all rows {site.mean:.1%}{inside}"
    )


def _findings(one: "TableResult") -> list[str]:
    """Describe a table's worst rows and its other answers."""
    name, lines = one.table.name, []
    if one.rows:
        rows = sorted(one.rows, key=lambda row: -abs(row.error))[:WORST]
        worst = ", ".join(f"{row.series} {row.what} {row.error:+.1%}" for row in rows)
        lines.append(f"worst of {name}: {worst}")
    for count in one.counted:
        naive = "" if count.by_rule is None else f", naive {count.by_rule}"
        lines.append(f"{name}: {count.question}: {count.right} of {count.of}{naive}")
    for order in one.correlated:
        naive = "" if order.by_rule is None else f", naive {order.by_rule:.3f}"
        lines.append(f"{name}: Spearman's correlation of {order.what}: {order.spearman:.3f}{naive}")
    return lines
