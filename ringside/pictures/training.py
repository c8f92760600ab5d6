"""Pictures of training steps: what ran when, and what a sweep found."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter

from ringside.pictures.style import STYLE, save
from sim.training.step import Pace, Reduction, TrainingStep
from topologies.units import format_duration

# dark to light, so that they stay apart in grey
_COLOURS = {"backward": "#08306b", "forward": "#4292c6", "copy": "#e08214", "optimizer": "#238b45",
            "wait": "#f0f0f0"}  # fmt: skip
_BUCKETS = ("#b2182b", "#ef8a62")
_OTHERS = "#737373"


def draw_timelines(steps: Mapping[str, TrainingStep], path: Path) -> None:
    """Steps above one another on one axis of time: compute of the slowest rank, collectives below it."""
    rows = {title: lanes(step) for title, step in steps.items()}
    heights = [1 + max(len(runs), 1) for runs in rows.values()]
    with mpl.rc_context(fname=STYLE):
        figure = Figure(figsize=(10, 1.2 + 0.55 * sum(heights)))
        axes = figure.subplots(len(steps), 1, sharex=True, squeeze=False, height_ratios=heights)[:, 0]
        for (title, step), panel in zip(steps.items(), axes, strict=True):
            _draw_step(panel, step, rows[title])
            panel.set_title(f"{title}: {format_duration(step.step_s, 5)}", loc="left", fontsize=10)
        axes[-1].xaxis.set_major_formatter(FuncFormatter(lambda seconds, _: format_duration(seconds, 3)))
        axes[-1].set_xlabel("time from the step's start")
        _legend(figure)
        save(figure, path)


def draw_sweep(
    parameter: str, values: Sequence[float], steps: Sequence[TrainingStep], best: float | None, path: Path
) -> None:
    """Step time between its two bounds over one parameter, the recommended value marked."""
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
        axes.yaxis.set_major_formatter(FuncFormatter(lambda seconds, _: format_duration(seconds, 3)))
        axes.set_xlabel(parameter)
        axes.set_ylabel("time")
        axes.set_title(f"{steps[0].workload}, {_ranks(steps)} ranks")
        axes.legend()
        save(figure, path)


def lanes(step: TrainingStep) -> list[list[Reduction]]:
    """The step's collectives in as few rows as they fit in without overlap."""
    rows: list[list[Reduction]] = []
    for run in sorted((*step.others, *step.buckets), key=lambda run: (run.start_s, run.end_s)):
        row = next((row for row in rows if row[-1].end_s <= run.start_s), None)
        if row is None:
            rows.append([run])
        else:
            row.append(run)
    return rows


def _draw_step(axes: Axes, step: TrainingStep, rows: Sequence[Sequence[Reduction]]) -> None:
    for kind, colour in _COLOURS.items():
        spans = [(span.start, span.end - span.start) for span in _slowest(step).spans if span.kind == kind]
        if spans:
            axes.broken_barh(spans, (-0.4, 0.8), facecolors=colour, edgecolor="white", linewidth=0.3)
    numbers = {run.name: number for number, run in enumerate(step.buckets)}
    for row, runs in enumerate(rows, 1):
        for run in runs:
            number = numbers.get(run.name)
            colour = _OTHERS if number is None else _BUCKETS[number % 2]
            width = run.end_s - run.start_s
            axes.broken_barh([(run.start_s, width)], (row - 0.4, 0.8), facecolors=colour, edgecolor="white",
                             linewidth=0.3)  # fmt: skip
            if number is not None and width > 0.03 * step.step_s:
                axes.text(run.start_s + width / 2, row, str(number), ha="center", va="center", fontsize=8)
    for run in step.buckets:
        axes.plot([run.ready_s], [0.5], marker="v", color="0.2", markersize=3, linestyle="")
    names = [
        "compute",
        *(f"collectives {row}" if len(rows) > 1 else "collectives" for row in range(len(rows))),
    ]
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.grid(visible=False, axis="y")


def _legend(figure: Figure) -> None:
    shown = {**_COLOURS, "bucket": _BUCKETS[0]}
    handles = [
        Patch(facecolor=colour, edgecolor="0.6", linewidth=0.3, label=kind) for kind, colour in shown.items()
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles), fontsize=8)


def _slowest(step: TrainingStep) -> Pace:
    return max(step.paces, key=lambda pace: pace.slowdown)


def _ranks(steps: Sequence[TrainingStep]) -> str:
    counts = sorted({step.ranks for step in steps})
    return f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
