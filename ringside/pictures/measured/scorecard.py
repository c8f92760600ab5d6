"""A scorecard: a row per group of held-out rows, a mark for the prediction and each simple rule."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from ringside.pictures.style import STYLE, save
from ringside.validation.scorecard.judged import Score

_MARKS = {"s": 6.0, "^": 6.0, "D": 5.5, "v": 7.5, "x": 5.0}
"""Shapes and sizes distinguish the rules without colour; hollow, so that none hides another."""

LEAST, MOST = 1e-3, 10.0
"""Other errors are drawn there: the scale has no zero."""


def draw_scorecard(scores: Sequence[Score], path: Path) -> None:
    """Draw median errors on a logarithmic scale; the prediction's has a line to its 90th percentile."""
    groups = list(dict.fromkeys(score.group for score in scores))
    marks = dict(zip(scores[0].rules, _MARKS.items(), strict=False)) if scores else {}
    with mpl.rc_context(fname=STYLE):
        figure = Figure(figsize=(8.4, 0.27 * len(scores) + 0.34 * len(groups) + 1.5))
        axes = figure.subplots()
        place, ticks = 0.0, list[tuple[float, str]]()
        for group in groups:
            for score in (score for score in scores if score.group == group):
                ticks.append((place, f"{score.name or group}  ({score.errors.rows})"))
                middle, far = (min(max(end, LEAST), MOST) for end in (score.errors.median, score.errors.p90))
                axes.plot([middle, far], [place, place], color="#08306b", lw=1.4, marker="")
                axes.plot(middle, place, "o", color="#08306b", ms=7, zorder=3)
                for rule, (mark, size) in marks.items():
                    median = max(score.rules[rule].median, LEAST)
                    axes.plot(median, place, mark, mfc="none", mec="0.35", ms=size, zorder=4)
                place += 1.0
            axes.axhline(place - 0.35, color="0.8", lw=0.6)
            place += 0.3
        axes.plot([], [], "o-", color="#08306b", ms=7, label="prediction, to its 90th percentile")
        for rule, (mark, size) in marks.items():
            axes.plot([], [], mark, mfc="none", mec="0.35", ms=size, ls="", label=rule)
        axes.set_xscale("log")
        shown = [0.001, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5]
        axes.set_xticks(shown, [f"{at:.1%}" if at < 0.01 else f"{at:.0%}" for at in shown])
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_yticks([at for at, _ in ticks], [text for _, text in ticks])
        axes.set_ylim(max(place, 1.0), -0.8)
        axes.grid(visible=True, axis="x")
        axes.set_xlabel("median error on held-out rows (number of rows)")
        figure.legend(loc="outside upper center", ncols=3, fontsize=8)
        save(figure, path)
