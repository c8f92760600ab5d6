"""Training steps: their timelines, and the result of a sweep."""

import math
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from ringside.pictures.style import COLUMNS, DURATIONS, STYLE, prevailing, save
from ringside.sim.training.ddp.step import Pace, Reduction, TrainingStep
from ringside.topologies.units import format_duration

# dark to light, so that they differ in grey
_COLOURS = {"backward": "#08306b", "forward": "#4292c6", "copy": "#e08214", "optimizer": "#238b45",
            "wait": "#f0f0f0"}  # fmt: skip
_NAMES = {"copy": "copy into buckets", "wait": "wait for collectives"}
_BUCKETS = ("#b2182b", "#ef8a62")
_OTHERS = "#737373"


def draw_timelines(steps: Mapping[str, TrainingStep], path: Path) -> None:
    """Draw steps above one another on one time axis: compute of the slowest rank, collectives below it."""
    rows = {title: lanes(step) for title, step in steps.items()}
    heights = [1 + max(len(runs), 1) for runs in rows.values()]
    with mpl.rc_context(fname=STYLE):
        figure = Figure(figsize=(10, 1.2 + 0.55 * sum(heights)))
        axes = figure.subplots(len(steps), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
        drawn: set[str] = set()
        for (title, step), panel in zip(steps.items(), axes, strict=True):
            drawn |= _draw_compute(panel, step)
            _draw_collectives(panel, step, rows[title])
            panel.set_title(f"{title}: {format_duration(step.step_s, 5)}", loc="left", fontsize=10)
        axes[-1].xaxis.set_major_formatter(DURATIONS)
        axes[-1].set_xlabel(
            f"time from the step's start; {COLUMNS} bins, the dominant activity of each is shown"
        )
        _legend(figure, list(steps.values()), drawn)
        save(figure, path)


def draw_sweep(
    parameter: str, values: Sequence[float], steps: Sequence[TrainingStep], best: float | None, path: Path
) -> None:
    """Draw step time between its two bounds over one parameter, with the recommended value."""
    with mpl.rc_context(fname=STYLE):
        figure = Figure(figsize=(7, 4.4))
        axes = figure.subplots()
        lower, upper = [step.lower_s for step in steps], [step.upper_s for step in steps]
        axes.fill_between(values, lower, upper, color="#08306b", alpha=0.1, lw=0, label="between the bounds")
        axes.plot(values, [step.step_s for step in steps], color="#08306b", marker="o", label="step")
        axes.plot(values, [step.exposed_s for step in steps], color="#b2182b", marker="s", linestyle="--",
                  label="exposed communication")  # fmt: skip
        if best is not None:
            axes.axvline(best, color="0.4", linestyle=":", label=f"recommended: {best:g}")
        if min(values) > 0:
            axes.set_xscale("log", base=2)
        axes.set_xticks(values, [f"{value:g}" for value in values])
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter(DURATIONS)
        axes.set_xlabel(parameter)
        axes.set_ylabel("time")
        axes.set_title(f"{steps[0].workload}, {_ranks(steps)} ranks")
        figure.legend(loc="outside lower center", ncols=4, fontsize=8)
        save(figure, path)


def lanes(step: TrainingStep) -> list[list[Reduction]]:
    """Return the step's collectives in the fewest rows without overlap."""
    rows: list[list[Reduction]] = []
    for run in sorted((*step.others, *step.buckets), key=lambda run: (run.start_s, run.end_s)):
        row = next((row for row in rows if row[-1].end_s <= run.start_s), None)
        if row is None:
            rows.append([run])
        else:
            row.append(run)
    return rows


def _draw_compute(axes: Axes, step: TrainingStep) -> set[str]:
    """Draw the slowest rank's compute in visible columns; return the kinds drawn."""
    spans = _slowest(step).spans
    parts = [[(span.start, span.end) for span in spans if span.kind == kind] for kind in _COLOURS]
    edges = np.linspace(0.0, step.step_s, COLUMNS + 1)
    runs_by_kind = dict(zip(_COLOURS, prevailing(parts, edges), strict=True))
    for kind, runs in runs_by_kind.items():
        bars = [(start, end - start) for start, end in runs]
        axes.broken_barh(bars, (-0.4, 0.8), facecolors=_COLOURS[kind], linewidth=0)
    return {kind for kind, runs in runs_by_kind.items() if runs}


def _draw_collectives(axes: Axes, step: TrainingStep, rows: Sequence[Sequence[Reduction]]) -> None:
    """Draw each collective in its row; buckets have their numbers where there is room."""
    numbers = {run.name: number for number, run in enumerate(step.buckets)}
    room = 0.03 * step.step_s
    for row, runs in enumerate(rows, 1):
        nexts = [*(run.start_s for run in runs[1:]), math.inf]
        for run, following in zip(runs, nexts, strict=True):
            number = numbers.get(run.name)
            colour = _OTHERS if number is None else _BUCKETS[number % 2]
            width = run.end_s - run.start_s
            axes.broken_barh([(run.start_s, width)], (row - 0.4, 0.8), facecolors=colour, linewidth=0)
            if number is not None and width > room:
                axes.text(run.start_s + width / 2, row, str(number), ha="center", va="center", fontsize=8,
                          color="black" if number % 2 else "white")  # fmt: skip
            elif number is not None and following - run.end_s > 0.6 * room:
                axes.text(run.end_s, row, f" {number}", ha="left", va="center", fontsize=8)
    for run in step.buckets:
        axes.plot([run.ready_s], [0.5], marker="v", color="0.2", markersize=3, linestyle="")
    several = len(rows) > 1
    names = ["compute", *(f"collectives {row}" if several else "collectives" for row in range(len(rows)))]
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")


def _legend(figure: Figure, steps: Sequence[TrainingStep], drawn: Collection[str]) -> None:
    """Add a legend of what the pictures show."""
    shown = [(colour, _NAMES.get(kind, kind)) for kind, colour in _COLOURS.items() if kind in drawn]
    count = max(len(step.buckets) for step in steps)
    if count:
        shown.append((_BUCKETS[0], "sum of bucket 0" + (", 2, ..." if count > 2 else "")))
    if count > 1:
        shown.append((_BUCKETS[1], "sum of bucket 1" + (", 3, ..." if count > 3 else "")))
    if any(step.others for step in steps):
        shown.append((_OTHERS, "other collectives"))
    handles: list[Patch | Line2D] = [
        Patch(facecolor=colour, edgecolor="0.6", linewidth=0.3, label=name) for colour, name in shown
    ]
    if count:
        handles.append(
            Line2D([], [], marker="v", color="0.2", markersize=3, linestyle="", label="bucket ready")
        )
    figure.legend(handles=handles, loc="outside lower center", ncols=4, fontsize=8)


def _slowest(step: TrainingStep) -> Pace:
    return max(step.paces, key=lambda pace: pace.slowdown)


def _ranks(steps: Sequence[TrainingStep]) -> str:
    counts = sorted({step.ranks for step in steps})
    return f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
