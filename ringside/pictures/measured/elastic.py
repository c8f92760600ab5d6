"""Predicted against measured goodput of elastic runs, and the time by class."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from ringside.pictures.style import STYLE, save
from ringside.sim.goodput.study import PRODUCTIVE, RECOVERY, RESTORE, SAVE, START, WASTED
from ringside.validation.elastic import ComparedRun

_SHADES = {
    PRODUCTIVE: ("#08306b", ""), SAVE: ("#4292c6", ""), WASTED: ("#b2182b", "///"), RESTORE: ("0.35", ""),
    START: ("0.75", ""), RECOVERY: ("0.93", "..."),
}  # fmt: skip


def draw_elastic(compared: Sequence[ComparedRun], path: Path) -> None:
    """Draw goodput over the interval, left; each run's time by class, predicted and measured, right."""
    runs = sorted(compared, key=lambda one: one.run.interval)
    with mpl.rc_context(fname=STYLE):
        figure = Figure(figsize=(10.5, 3.9))
        left, right = figure.subplots(1, 2, width_ratios=(2, 3))
        _draw_goodput(left, runs)
        _draw_shares(right, runs)
        save(figure, path)


def _draw_goodput(axes: Axes, runs: Sequence[ComparedRun]) -> None:
    places = [one.run.interval for one in runs]
    axes.plot(places, [one.predicted for one in runs], "-", marker="", color="#08306b", label="predicted")
    axes.fill_between(
        places, [one.predicted - 0.05 for one in runs], [one.predicted + 0.05 for one in runs],
        color="#08306b", alpha=0.12, linewidth=0, label="within 5 points",
    )  # fmt: skip
    axes.plot(places, [one.run.goodput for one in runs], "o", color="#b2182b", label="measured")
    axes.set_xscale("log")
    axes.set_xticks(places, [str(place) for place in places])
    axes.minorticks_off()
    axes.set_ylim(0, 1)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.set(xlabel="steps between two checkpoints", ylabel="goodput")
    axes.legend(fontsize=8)


def _draw_shares(axes: Axes, runs: Sequence[ComparedRun]) -> None:
    names, rows = [], []
    for one in runs:
        names += [f"{one.run.interval}, predicted", "measured"]
        rows += [one.predicted_shares, one.measured_shares]
    places = [row // 2 * 2.4 + row % 2 for row in range(len(rows))]
    begins = [0.0] * len(rows)
    for name, (colour, hatch) in _SHADES.items():
        shares = [row[name] for row in rows]
        axes.barh(
            places, shares, left=begins, height=0.9, color=colour, hatch=hatch, label=name,
            edgecolor="0.5" if name == RECOVERY else "white", linewidth=0.3,
        )  # fmt: skip
        begins = [begin + share for begin, share in zip(begins, shares, strict=True)]
    axes.set_yticks(places, names, fontsize=8)
    axes.invert_yaxis()
    axes.set_xlim(0, 1)
    axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("share of the run's time")
    axes.legend(fontsize=8, ncols=3, loc="lower center", bbox_to_anchor=(0.5, 1.0))
