"""Goodput over the checkpoint interval, and the rest of the time by class."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator, PercentFormatter

from ringside.pictures.style import STYLE, save
from ringside.sim.goodput.formulas import expected_goodput, first_order_goodput
from ringside.sim.goodput.job import LongJob
from ringside.sim.goodput.study import Goodput
from ringside.topologies.units import format_span

_BLUE, _RED = "#08306b", "#b2182b"
_TICKS_S = (
    0.01,
    0.1,
    1,
    5,
    15,
    60,
    300,
    900,
    3600,
    4 * 3600,
    12 * 3600,
    86400,
    4 * 86400,
    16 * 86400,
    64 * 86400,
)
_POINTS = 100


def draw_goodput(
    job: LongJob, title: str, lives: Sequence[Goodput], given: Goodput, best_s: float, path: Path
) -> None:
    """Draw formula and simulation over the interval, with the best one; badput by class at the given one."""
    with mpl.rc_context(fname=STYLE):
        figure = Figure(figsize=(10.5, 3.9))
        left, right = figure.subplots(1, 2, width_ratios=(3, 2))
        _draw_curve(left, job, lives, best_s)
        _draw_badput(right, given)
        figure.suptitle(title, fontsize=11)
        save(figure, path)


def _draw_curve(axes: Axes, job: LongJob, lives: Sequence[Goodput], best_s: float) -> None:
    ends = lives[0].interval_s, lives[-1].interval_s
    places = [float(one) for one in np.geomspace(*ends, _POINTS)]
    exact = [expected_goodput(job, one) for one in places]
    axes.plot(places, exact, color=_BLUE, marker="", label="exact expectation (Daly)")
    axes.plot(
        places, [first_order_goodput(job, one) for one in places],
        color="0.45", marker="", linestyle="--", linewidth=1.2, label="first order (Young)",
    )  # fmt: skip
    points = [one.interval_s for one in lives]
    axes.fill_between(
        points, [one.p5 for one in lives], [one.p95 for one in lives],
        color=_BLUE, alpha=0.15, linewidth=0, label="90 % of simulated lives",
    )  # fmt: skip
    simulated = [one.simulated for one in lives]
    spread = [
        [one.simulated - one.low99 for one in lives],
        [max(0.0, one.high99 - one.simulated) for one in lives],
    ]
    axes.errorbar(
        points, simulated, yerr=spread, color=_BLUE, marker="o", markersize=4.5, markerfacecolor="white",
        linestyle="", capsize=3, label="simulated, 99 % interval",
    )  # fmt: skip
    low = min(*simulated, *exact)
    axes.set_ylim(max(0.0, low - 0.03), min(1.0, max(*simulated, *exact) + 0.03))
    axes.vlines(best_s, expected_goodput(job, best_s), axes.get_ylim()[1], color=_RED, linewidth=1.2)
    axes.annotate(
        f" best: every {format_span(best_s)}", (best_s, axes.get_ylim()[1]), color=_RED, va="top", fontsize=9
    )
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator(_TICKS_S))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda seconds, _: _short(seconds)))
    axes.set_xlim(ends[0] / 1.1, ends[1] * 1.1)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=None))
    axes.set(xlabel="training between two checkpoints", ylabel="goodput")
    axes.legend(fontsize=8, loc="lower center")


def _draw_badput(axes: Axes, given: Goodput) -> None:
    lost = sorted(given.badput.items(), key=lambda pair: pair[1])
    names, shares = [name for name, _ in lost], [share for _, share in lost]
    axes.barh(names, shares, color="0.55", height=0.65)
    for row, share in enumerate(shares):
        axes.text(share, row, f" {share:.1%}", va="center", fontsize=9)
    axes.set_xlim(0, max(*shares, 1e-3) * 1.25)
    axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=None))
    axes.grid(visible=False, axis="y")
    axes.set_title(f"badput, a checkpoint every {format_span(given.interval_s)}", fontsize=10)
    axes.set_xlabel("share of all time")


def _short(seconds: float) -> str:
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:g} {unit}"
    return f"{seconds:g} s"
