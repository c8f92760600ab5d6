"""A disturbed answer: the distribution of its draws' times, and the waits of ranks in the typical one."""

from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from ringside.pictures.jobs.program import MOST_RANKS, add_legend, draw_rows
from ringside.pictures.style import STYLE, save
from ringside.pictures.ticks import DURATIONS
from ringside.sim.disturbance import Drawn
from ringside.sim.questions.disturbed_time import QUANTILES, DisturbedTime
from ringside.topologies.units import format_duration

_BLUE, _RED = "#08306b", "#b2182b"
_DASHES = ("-", "--", ":")


def draw_disturbed(title: str, disturbed: DisturbedTime, path: Path) -> None:
    """Draw the cumulative share of draws, with quantiles; below it the typical draw, rank by rank."""
    typical = disturbed.typical
    rows = min(len(typical.spans), MOST_RANKS) if typical else 0
    with mpl.rc_context(fname=STYLE):
        figure = Figure(figsize=(10, 3.6 + 0.4 * rows))
        panels = figure.subplots(
            2 if typical else 1, 1, squeeze=False, height_ratios=[3.2, 0.4 * rows + 0.4][: 1 + bool(typical)]
        )[:, 0]
        _draw_times(panels[0], disturbed.drawn)
        panels[0].set_title(title, loc="left")
        if typical:
            kinds = draw_rows(panels[1], typical)
            panels[1].set_xlim(0, typical.makespan_s or 1)
            caption = next(iter(disturbed.blame()), "no rank waits")
            panels[1].set_title(f"the median draw: {caption}", loc="left", fontsize=10)
            add_legend(figure, kinds)
        save(figure, path)


def _draw_times(axes: Axes, drawn: Drawn) -> None:
    times = np.sort(drawn.times_s)
    axes.step(times, np.arange(1, len(times) + 1) / len(times), where="post", color=_BLUE)
    axes.axvline(
        drawn.undisturbed_s, color="0.4", label=f"undisturbed {format_duration(drawn.undisturbed_s, 3)}"
    )
    for (name, share), dashes in zip(QUANTILES.items(), _DASHES, strict=True):
        seconds = drawn.quantile(share)
        axes.axvline(seconds, color=_RED, linestyle=dashes, label=f"{name} {format_duration(seconds, 3)}")
    axes.set_ylim(0, 1.02)
    axes.yaxis.set_major_formatter(PercentFormatter(1))
    axes.xaxis.set_major_formatter(DURATIONS)
    axes.set_ylabel("share of draws up to this time")
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=4)
