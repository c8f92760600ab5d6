"""Figures of training steps: their timelines, a sweep, disturbances."""

from collections.abc import Mapping, Sequence
from html import escape

import numpy as np
import plotly.graph_objects as go

from ringside.report.charts import (
    COLOURS,
    SECONDS,
    SHARE,
    add_band,
    chart,
    hover_text,
    label,
    seconds,
    stacked,
)
from ringside.sim.disturbance import Drawn
from ringside.sim.program.timeline import union
from ringside.sim.questions.disturbed_time import QUANTILES
from ringside.sim.training.ddp.step import TrainingStep
from ringside.sim.training.step import StagedStep

_COLOURS = {"backward": "#0072b2", "forward": "#56b4e9", "copy": "#e69f00", "optimizer": "#009e73",
            "wait": "#9aa4af", "bucket": "#d55e00", "other collective": "#cc79a7"}  # fmt: skip
_NAMES = {"copy": "copy into buckets", "wait": "wait for collectives"}


def timelines_figure(steps: Mapping[str, TrainingStep]) -> go.Figure:
    """Draw steps above one another on one time axis: compute of the slowest rank, collectives below it."""
    figure = chart(height=170 + 120 * len(steps), barmode="overlay")
    bars: dict[str, list[tuple[str, float, float, str]]] = {}
    rows = []
    for number, (title, step) in enumerate(steps.items(), 1):
        prefix, whose = (f"{number}. ", f", {title}") if len(steps) > 1 else ("", "")
        compute, collectives = label(f"{prefix}compute{whose}"), label(f"{prefix}collectives{whose}")
        rows += [compute, collectives]
        slowest = max(step.paces, key=lambda pace: pace.slowdown)
        for kind in dict.fromkeys(span.kind for span in slowest.spans):
            own = union([(span.start, span.end) for span in slowest.spans if span.kind == kind])
            bars.setdefault(kind, []).extend((compute, start, end, "") for start, end in own)
        for run in step.buckets:
            more = f"ready at {seconds(run.ready_s)}"
            bars.setdefault("bucket", []).append((collectives, run.start_s, run.end_s, f"{run.name}, {more}"))
        for run in step.others:
            bars.setdefault("other collective", []).append((collectives, run.start_s, run.end_s, run.name))
    for kind in (*(kind for kind in _COLOURS if kind in bars), *(bars.keys() - _COLOURS.keys())):
        runs = bars[kind]
        name = _NAMES.get(kind, kind)
        figure.add_bar(
            y=[row for row, *_ in runs], base=[start for _, start, _, _ in runs],
            x=[end - start for _, start, end, _ in runs], orientation="h", name=name, hoverinfo="text",
            marker={"color": _COLOURS.get(kind, "#7f7f7f"),
                    "line": {"width": 0.5 if kind == "bucket" else 0, "color": "white"}},
            hovertext=[
                f"{escape(more or name)}<br>{seconds(end - start)}, from {seconds(start)} to {seconds(end)}"
                for _, start, end, more in runs
            ],
        )  # fmt: skip
    figure.update_xaxes(title="time from the step's start", **SECONDS)
    figure.update_yaxes(categoryorder="array", categoryarray=rows, autorange="reversed", showgrid=False)
    return figure


def roles_figure(step: StagedStep, names: Sequence[str], waiting: str) -> go.Figure:
    """Draw the time of each stage or role by activity; ``waiting`` names the time without any."""
    stages = step.stages
    return stacked(
        names,
        {
            "compute": [stage.busy_s for stage in stages],
            **{f"{name}, exposed": [stage.exposed_by_s.get(name, 0.0) for stage in stages]
               for name in step.exposed_by_s},
            waiting: [stage.bubble_s for stage in stages],
        },
    )  # fmt: skip


def sweep_figure(
    parameter: str, values: Sequence[float], steps: Sequence[TrainingStep], best: float | None
) -> go.Figure:
    """Draw the step between its two bounds over one parameter, with the recommended value."""
    figure = chart()
    lines = {
        "upper bound": [step.upper_s for step in steps],
        "step": [step.step_s for step in steps],
        "lower bound": [step.lower_s for step in steps],
        "exposed communication": [step.exposed_s for step in steps],
    }
    add_band(figure, values, (lines["lower bound"], lines["upper bound"]), COLOURS[0])
    looks = zip(lines.items(), ("#7f7f7f", COLOURS[0], "#7f7f7f", COLOURS[1]), strict=True)
    for (name, times), colour in looks:
        bound = name.endswith("bound")
        figure.add_scatter(
            x=list(values), y=times, name=name, mode="lines+markers", marker_color=colour,
            line_dash="dot" if bound else "solid", hoverinfo="text",
            hovertext=[
                hover_text(**{parameter: f"{value:g}", name: seconds(time)},
                      throughput=f"{step.throughput:.4g} samples/s")
                for value, time, step in zip(values, times, steps, strict=True)
            ],
        )  # fmt: skip
    if best is not None:
        figure.add_vline(best, line_dash="dash", line_color="#888", annotation_text=f"take {best:g}")
        if min(values) > 0:  # plotly places shapes on a logarithmic axis by the logarithm
            figure.layout.annotations[0].x = np.log10(best)
    kind = {"type": "log"} if min(values) > 0 else {}
    figure.update_xaxes(title=parameter, tickvals=list(values), ticktext=[f"{v:g}" for v in values], **kind)
    figure.update_yaxes(title="time", rangemode="tozero", **SECONDS)
    return figure


def draws_figure(drawn: Drawn) -> go.Figure:
    """Draw the cumulative share of draws over time, with the reported quantiles."""
    figure = chart()
    times = np.sort(drawn.times_s)
    shares = np.arange(1, len(times) + 1) / len(times)
    figure.add_scatter(
        x=times.tolist(), y=shares.tolist(), mode="lines+markers", line={"shape": "hv", "color": COLOURS[0]},
        marker_size=4, name="draws", hoverinfo="text",
        hovertext=[f"{share:.0%} of draws take no longer than {seconds(time)}"
                   for time, share in zip(times.tolist(), shares.tolist(), strict=True)],
    )  # fmt: skip
    marks = {"undisturbed": (drawn.undisturbed_s, 0.0),
             **{name: (drawn.quantile(share), share) for name, share in QUANTILES.items()}}  # fmt: skip
    for (name, (time, share)), colour in zip(marks.items(), COLOURS[1:], strict=False):
        figure.add_scatter(
            x=[time], y=[share], mode="markers", marker={"size": 12, "symbol": "diamond", "color": colour},
            name=f"{name} {seconds(time)}", hoverinfo="text", hovertext=[hover_text(**{name: seconds(time)})],
        )  # fmt: skip
    figure.update_xaxes(title="time", **SECONDS)
    figure.update_yaxes(title="share of draws up to this time", range=[-0.03, 1.03], **SHARE)
    return figure
