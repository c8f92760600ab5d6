"""The errors of published trainings: a row per table, beside its naive rule."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from ringside.pictures.style import STYLE, save
from ringside.validation.published.training.judging.judged import Score

LEAST = 1e-3
"""Smaller errors are drawn there: the scale has no zero."""


def draw_training(scores: Sequence[Score], path: Path) -> None:
    """Draw median errors on a logarithmic scale, each with a line to its 90th percentile."""
    places = range(len(scores))
    with mpl.rc_context(fname=STYLE):
        figure = Figure(figsize=(7.6, 0.3 * len(scores) + 1.4))
        axes = figure.subplots()
        for place, score in zip(places, scores, strict=True):
            rule, ours = (score.rule_median, score.rule_p90), (score.median, score.p90)
            for ends, at, colour, face in (
                (rule, place + 0.16, "0.45", "white"),
                (ours, place - 0.16, "#08306b", "#08306b"),
            ):
                middle, far = (max(end, LEAST) for end in ends)
                axes.plot([middle, far], [at, at], color=colour, lw=1.4, marker="")
                axes.plot(middle, at, "o", color=colour, mfc=face, ms=6, zorder=3)
            if place and scores[place - 1].table != score.table:
                axes.axhline(place - 0.5, color="0.8", lw=0.6)
        axes.plot([], [], "o-", color="#08306b", label="Ringside, to its 90th percentile")
        axes.plot([], [], "o-", color="0.45", mfc="white", label="naive rule of the table, likewise")
        axes.set_xscale("log")
        axes.set_xlim(LEAST, 1)
        axes.set_xticks(
            shown := [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5], [f"{at:.1%}" for at in shown]
        )
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_yticks(
            list(places), [f"{f'{one.table} {one.part}'.rstrip()} ({one.rows})" for one in scores]
        )
        axes.set_ylim(len(scores) - 0.4, -0.6)
        axes.grid(visible=True, axis="x")
        axes.set_xlabel("median error on held-out rows (number of rows)")
        figure.legend(loc="outside upper center", ncols=2, fontsize=8)
        save(figure, path)
