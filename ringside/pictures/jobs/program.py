"""A program's ranks over time, simulated, traced or disturbed, and the distribution of disturbed times."""

from collections.abc import Collection
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import PercentFormatter

from ringside.pictures.style import DURATIONS, STYLE, save
from ringside.sim.disturbance import Drawn
from ringside.sim.program.timeline import NO_COMMUNICATION, ProgramTimeline
from ringside.sim.questions.disturbed_time import QUANTILES, DisturbedTime
from ringside.sim.training.stage import STREAM
from ringside.topologies.units import format_duration
from ringside.validation.traces.replay import TraceReplay

MOST_RANKS = 32
"""The number of rows that remain distinguishable."""

# light to dark, so that they differ in grey
_COLOURS = {"waiting": "#d9d9d9", "communication": "#ef8a62", "compute": "#08306b"}


def draw_program(timeline: ProgramTimeline, path: Path) -> None:
    """Draw a row per rank: compute above, communication below, the wait for others before it."""
    ranks = list(timeline.spans)[:MOST_RANKS]
    with mpl.rc_context(fname=STYLE):
        figure = Figure(figsize=(10, 1.4 + 0.4 * len(ranks)))
        axes = figure.subplots()
        kinds = draw_rows(axes, timeline)
        axes.set_xlim(0, timeline.makespan_s or 1)
        took = format_duration(timeline.makespan_s, 3)
        axes.set_title(f"{timeline.name} on {timeline.ranks} ranks: {took}", loc="left")
        add_legend(figure, kinds)
        save(figure, path)


def draw_rows(axes: Axes, timeline: ProgramTimeline) -> set[str]:
    """Draw the rows of a timeline's ranks, up to a limit; return the kinds drawn."""
    ranks, drawn = list(timeline.spans)[:MOST_RANKS], set()
    for row, rank in enumerate(ranks):
        parts: dict[str, list[tuple[float, float]]] = {kind: [] for kind in _COLOURS}
        for span in timeline.spans[rank]:
            if span.kind == "compute" or (span.lane == STREAM and span.kind != "wait"):
                parts["compute"].append((span.begin, span.end - span.begin))
            elif span.kind not in NO_COMMUNICATION:
                parts["waiting"].append((span.begin, span.start - span.begin))
                parts["communication"].append((span.start, span.end - span.start))
        for kind, bars in parts.items():
            low = row - 0.4 if kind == "compute" else row
            axes.broken_barh(bars, (low, 0.4), color=_COLOURS[kind], lw=0)
            drawn |= {kind} if any(length for _, length in bars) else set()
    axes.set_yticks(range(len(ranks)), [f"rank {rank}" for rank in ranks])
    axes.invert_yaxis()
    axes.xaxis.set_major_formatter(DURATIONS)
    left_out = len(timeline.spans) - len(ranks)
    axes.set_xlabel("time" + (f"; {left_out} more ranks are not drawn" if left_out else ""))
    return drawn


def add_legend(figure: Figure, drawn: Collection[str]) -> None:
    """Add the legend above all panels."""
    figure.legend(
        handles=[Patch(color=colour, label=kind) for kind, colour in _COLOURS.items() if kind in drawn],
        loc="outside upper right", ncols=3,
    )  # fmt: skip


def draw_trace(comparison: TraceReplay, path: Path) -> None:
    """Draw a row per traced rank; below, on the same scale, the replay on another cluster, if any."""
    drawn = [("as recorded", comparison.recorded)]
    if comparison.other:
        drawn.append(
            (f"on {comparison.other.cluster} with {comparison.other.library}", comparison.other.timeline)
        )
    ranks = min(MOST_RANKS, len(comparison.recorded.spans))
    with mpl.rc_context(fname=STYLE):
        figure = Figure(figsize=(10, 0.8 + len(drawn) * (0.8 + 0.4 * ranks)))
        kinds: set[str] = set()
        for axes, (what, timeline) in zip(
            figure.subplots(len(drawn), squeeze=False)[:, 0], drawn, strict=True
        ):
            kinds |= draw_rows(axes, timeline)
            axes.set_xlim(0, max(one.makespan_s for _, one in drawn) or 1)
            axes.set_title(f"{what}: {format_duration(timeline.makespan_s, 4)}", loc="left")
        add_legend(figure, kinds)
        save(figure, path)


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
