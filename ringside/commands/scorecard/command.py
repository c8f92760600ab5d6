"""``ringside scorecard``: errors of predictions on published rows; here of NCCL's calibrated times."""

import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ringside import console, options
from ringside.pictures.style import check_format
from ringside.report.page import Page, Table, check_page, write_page
from ringside.topologies.disk import check_outputs
from ringside.topologies.names import one_of
from ringside.validation.nccl.baselines import BASELINES
from ringside.validation.published import published

if TYPE_CHECKING:  # help must not wait for scipy
    from ringside.validation.nccl.scorecard import Judged, Score, SiteScore

COLLECTIVES, TRAINING = "collectives", "training"
"""The scorecards; the second is a command of its own."""

HEADS = (
    *(("by", ""), ("", ""), ("rows", ""), ("measured", "model (%)"), ("p90", "(%)"), ("inside", "(%)")),
    *((name, "(%)") for name in BASELINES),
)


def command(
    what: Annotated[
        str,
        typer.Argument(
            autocompletion=lambda: [COLLECTIVES, TRAINING],
            help="scorecard training has options of its own.",
        ),
    ] = COLLECTIVES,
    plot: options.Plot = None,
    html: options.Html = None,
    all_columns: options.All = False,
    json: options.Json = False,
) -> None:
    """Score NCCL's predicted times on held-out published rows, beside simple rules."""
    if what == TRAINING:
        raise ValueError("training is a command with its own options; write ringside scorecard training")
    if what != COLLECTIVES:
        raise ValueError(f"unknown scorecard {what!r}; write {one_of((COLLECTIVES, TRAINING), what)}")
    run(plot, html, as_json=json)


def run(plot: Path | None, html: Path | None, *, as_json: bool) -> None:
    """Fit, judge, print and draw."""
    from ringside.validation.nccl.scorecard import judge, questions, scores, site_scores

    check_format(plot)
    check_outputs([plot], inputs=[])
    check_page(html, [plot])
    fits = list(questions(published()))
    judged: list[Judged] = []
    with console.simulating("fitting", len(fits)) as bar:
        for question in fits:
            judged += judge(question)
            bar.done(f"{question.name} of {question.machine}")
    by_group, by_site = scores(judged), site_scores(judged)
    if plot:
        from ringside.pictures.measured.scorecard import draw_scorecard

        draw_scorecard(by_group, plot)
    rows, sites = [_row(score) for score in by_group], [_of_sites(score) for score in by_site]
    content = {"rows": rows, "sites": sites}
    if html:
        write_page(_page(by_group, by_site, len(judged), content), html, [plot])
    if as_json:
        console.print_json("scorecard", content)
        return
    comments = [
        f"{len(fits)} fits, {len(judged)} rows judged, each held out of its fit",
        "median error of the measured model, its 90th percentile, share of rows inside their 80 % interval; "
        "median error of simple rules on the same rows, - where a rule does not apply",
        "size, machine, collective and nodes group the rows of more nodes and another site",
        *_beaten(by_group),
    ]
    console.print_table(comments, HEADS, map(_cells, by_group))
    console.print_comments(map(_site_line, by_site))


def _page(groups: "list[Score]", sites: "list[SiteScore]", judged: int, raw: Mapping[str, object]) -> Page:
    from ringside.report.charts import errors

    kinds = {"measured model": ([score.median for score in groups], [score.p90 for score in groups])}
    rules = {name: ([score.baselines[name] for score in groups], None) for name in BASELINES}
    best, worst = (pick(groups, key=lambda score: score.median) for pick in (min, max))
    return Page(
        title="NCCL's calibrated times, judged on held-out published rows",
        headline=f"The median error over {judged} judgements is {best.median:.1%} at best ({best.name}) and "
        f"{worst.median:.1%} at worst ({worst.name}).",
        figures={"Median errors of the measured model and of simple rules": errors(
            [f"{score.name} ({score.rows})" for score in groups], {**kinds, **rules})},
        tables=[Table("Every group of rows", HEADS, [_cells(score) for score in groups])],
        told=[*map(_site_line, sites), *_beaten(groups)],
        raw=raw,
    )  # fmt: skip


def _site_line(score: "SiteScore") -> str:
    """Describe the error with each site counted once."""
    large = f", {score.large:.1%} for 128 MiB and more" if math.isfinite(score.large) else ""
    return (
        f"{score.name}: median of the medians of {score.sites} sites {score.median_of_medians:.1%}{large}; "
        f"mean of the medians {score.mean_of_medians:.1%}, mean of all rows {score.mean:.1%}"
    )


def _beaten(by_group: "list[Score]") -> list[str]:
    """Describe the groups in which a simple rule does better."""
    lines = []
    for score in by_group:
        better = [f"{name} {error:.1%}" for name, error in score.baselines.items() if error < score.median]
        if better:
            lines.append(f"better than the model's {score.median:.1%} on {score.name}: {', '.join(better)}")
    return lines


def _cells(score: "Score") -> tuple[console.Cell, ...]:
    others = (error * 100 if math.isfinite(error) else "-" for error in score.baselines.values())
    return (
        *(score.group, score.name, score.rows, score.median * 100, score.p90 * 100, score.inside * 100),
        *others,
    )


def _row(score: "Score") -> dict[str, object]:
    others = {name: error if math.isfinite(error) else None for name, error in score.baselines.items()}
    return asdict(score) | {"baselines": others}


def _of_sites(score: "SiteScore") -> dict[str, object]:
    return asdict(score) | {"large": score.large if math.isfinite(score.large) else None}
