"""A step under a layout: the activity and the waits of each pipeline stage."""

from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from ringside.pictures.style import COLUMNS, DURATIONS, STYLE, Floats, Stretch, occupied, prevailing, save
from ringside.sim.program.timeline import NO_COMMUNICATION, Span, union
from ringside.sim.training.stage import STREAM
from ringside.sim.training.step import StagedStep
from ringside.topologies.units import format_duration

MOST_STAGES = 32
"""The number of rows that remain distinguishable."""

# dark to light, so that they differ in grey
_COLOURS = {"forward": "#9ecae1", "backward": "#08306b", "weight gradient": "#4292c6",
            "compute": "#4d4d4d", "optimizer": "#238b45", "copy": "#e08214"}  # fmt: skip
_KINDS = {"forward": "forward", "backward": "backward", "input gradient": "backward",
          "recomputation": "forward", "weight gradient": "weight gradient", "optimizer": "optimizer",
          "copy": "copy", "clip": "copy", "compute": "compute"}  # fmt: skip
"""The drawn kind of each operation."""

_COMMUNICATION = "#b2182b"
_SHARE = "communication, height is its share of a bin"


def kind_of_work(span: Span) -> str | None:
    """Return the drawn kind of what a rank computes; None for waits and communication."""
    return _KINDS.get(span.kind)


def draw_pipeline(step: StagedStep, path: Path) -> None:
    """Draw a row per stage: compute above, collectives and messages below, waits in white."""
    stages = step.stages[:MOST_STAGES]
    with mpl.rc_context(fname=STYLE):
        figure = Figure(figsize=(10, 1.6 + 0.42 * len(stages)))
        axes = figure.subplots()
        shown: set[str] = set()
        edges = np.linspace(0.0, step.step_s, COLUMNS + 1)
        for row, stage in enumerate(stages):
            shown |= _draw_stage(axes, row, step.timeline.spans[stage.rank], edges)
        several = len(stages) > 1
        names = [f"stage {row}" if several else "all ranks" for row in range(len(stages))]
        axes.set_yticks(range(len(stages)), names)
        axes.set_ylim(len(stages) - 0.4, -0.6)
        axes.set_xlim(0, step.step_s)
        axes.grid(visible=False, axis="y")
        axes.xaxis.set_major_formatter(DURATIONS)
        left_out = len(step.stages) - len(stages)
        more = f"; {left_out} more stages" if left_out else ""
        axes.set_xlabel(
            f"time from the step's start; {COLUMNS} bins, the dominant activity of each is shown{more}"
        )
        bubble = f", bubble {step.bubble_share:.1%}" if several else ""
        took = format_duration(step.step_s, 4)
        axes.set_title(f"{step.workload} on {step.ranks} ranks: {took}{bubble}", loc="left", fontsize=10)
        looks = {**_COLOURS, _SHARE: _COMMUNICATION}
        figure.legend(
            handles=[Patch(facecolor=colour, label=kind) for kind, colour in looks.items() if kind in shown],
            loc="outside lower center", ncols=len(looks), fontsize=8,
        )  # fmt: skip
        save(figure, path)


def _draw_stage(axes: Axes, row: int, spans: tuple[Span, ...], edges: Floats) -> set[str]:
    """Draw a stage in columns, because it may have thousands of spans; return the kinds drawn."""
    computing: dict[str, list[Stretch]] = {kind: [] for kind in _COLOURS}
    communicating: list[Stretch] = []
    for span in spans:
        if span.lane == STREAM and span.kind in _KINDS:
            computing[_KINDS[span.kind]].append((span.begin, span.end))
        elif span.lane != STREAM and span.kind not in (*NO_COMMUNICATION, *_KINDS, "launch", "unpack"):
            communicating.append((span.start, span.end))
    drawn = set()
    for kind, runs in zip(computing, prevailing(computing.values(), edges), strict=True):
        bars = [(start, end - start) for start, end in runs]
        axes.broken_barh(bars, (row - 0.4, 0.55), facecolors=_COLOURS[kind], linewidth=0)
        drawn |= {kind} if bars else set()
    if communicating:
        share = occupied(union(communicating), edges) / np.diff(edges)
        axes.stairs(
            row + 0.42 - 0.24 * share,
            edges,
            baseline=row + 0.42,
            fill=True,
            color=_COMMUNICATION,
            linewidth=0,
        )
        drawn.add(_SHARE)
    return drawn
