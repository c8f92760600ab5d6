"""A simulated program: the activity of each rank over time."""

from collections.abc import Collection
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from ringside.pictures.style import STYLE, save
from ringside.pictures.ticks import DURATIONS
from ringside.sim.program.timeline import NO_COMMUNICATION, ProgramTimeline
from ringside.sim.training.stage import STREAM
from ringside.topologies.units import format_duration

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
