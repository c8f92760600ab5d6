"""``ringside scorecard``: how far NCCL's calibrated times are off on rows that no fit has seen."""

import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from ringside import console, options
from ringside.pictures.style import check_format
from topologies.disk import check_outputs
from validation.measured.baselines import BASELINES
from validation.published import published

if TYPE_CHECKING:  # help must not wait for scipy
    from validation.measured.scorecard import Judged, Score, SiteScore

HEADS = (
    *(("by", ""), ("", ""), ("rows", ""), ("measured", "model (%)"), ("p90", "(%)"), ("inside", "(%)")),
    *((name, "(%)") for name in BASELINES),
)


def command(plot: options.Plot = None, json: options.Json = False) -> None:
    """Judge NCCL's calibrated times on published rows that no fit has seen, beside simple rules."""
    run(plot, as_json=json)


def run(plot: Path | None, *, as_json: bool) -> None:
    """Fit, judge, print and draw."""
    from validation.measured.scorecard import judge, questions, scores, site_scores

    check_format(plot)
    check_outputs([plot], inputs=[])
    asked = list(questions(published()))
    judged: list[Judged] = []
    with console.simulating("fitting", len(asked)) as bar:
        for question in asked:
            judged += judge(question)
            bar.done(f"{question.name} of {question.machine}")
    found, of_sites = scores(judged), site_scores(judged)
    if plot:
        from ringside.pictures.scorecard import draw_scorecard

        draw_scorecard(found, plot)
    if as_json:
        rows, sites = [_row(score) for score in found], [_of_sites(score) for score in of_sites]
        console.print_json("scorecard", {"rows": rows, "sites": sites})
        return
    comments = [
        f"{len(asked)} fits, {len(judged)} rows judged, none by a fit that it took part in",
        "median error of the measured model, its 90th percentile, how many rows lie in their 80 % interval; "
        "median error of simple rules on the same rows, - where one says nothing",
        "size, machine, collective and nodes part the rows of more nodes and another site",
        *_beaten(found),
    ]
    console.print_table(comments, HEADS, map(_cells, found))
    print("\n".join(f"# {_site_line(score)}" for score in of_sites))


def _site_line(score: "SiteScore") -> str:
    """Where each site counts once."""
    large = f", {score.large:.1%} for 128 MiB and more" if math.isfinite(score.large) else ""
    return (
        f"{score.name}: median of the medians of {score.sites} sites {score.median_of_medians:.1%}{large}; "
        f"mean of the medians {score.mean_of_medians:.1%}, mean of all rows {score.mean:.1%}"
    )


def _beaten(found: "list[Score]") -> list[str]:
    """Where a simple rule does better, by name."""
    lines = []
    for score in found:
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
