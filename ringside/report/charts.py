"""Style, time axes and charts that several pages share."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from textwrap import wrap
from typing import Any

import plotly.graph_objects as go

from ringside.pictures.collectives.looks import WIDE
from ringside.topologies.units import format_duration, format_size

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6d31", "#7f7f7f")
"""Okabe and Ito's colours, safe for the colour-blind, all visible on white and on black."""

MARKS = ("circle", "square", "triangle-up", "diamond", "x", "star", "triangle-down", "pentagon")

SYMBOLS = {"o": "circle", "s": "square", "D": "diamond", "^": "triangle-up", "v": "triangle-down",
           "P": "cross", "X": "x", "*": "star", "p": "pentagon", "h": "hexagon", "d": "diamond-tall",
           "<": "triangle-left", ">": "triangle-right", "8": "octagon"}  # fmt: skip
"""Plotly's names of matplotlib's marks."""

SECONDS: dict[str, Any] = {"tickformat": "~s", "ticksuffix": "s"}
"""An axis of seconds, written as 5ms or 20µs."""

SHARE: dict[str, Any] = {"tickformat": ".0%"}

_NARROW = 18
"""Letters per line of a row's label, so that a narrow page has room for the figure."""


def chart(height: int = 450, **layout: Any) -> go.Figure:
    """Return an empty figure in the page's look; colours of text and lines are the page's own."""
    figure = go.Figure()
    figure.update_layout(
        template="none", height=height, paper_bgcolor="rgba(0,0,0,0)", plot_bgcolor="rgba(0,0,0,0)",
        font={"family": "system-ui, sans-serif", "size": 12}, margin={"l": 10, "r": 10, "t": 30, "b": 10},
        legend={"orientation": "h", "yref": "container", "y": 0, "yanchor": "bottom"},
        hoverlabel={"align": "left"}, hovermode="closest", dragmode=False,
        modebar={"bgcolor": "rgba(0,0,0,0)", "color": "#888", "activecolor": COLOURS[0]}, **layout,
    )  # fmt: skip
    figure.update_xaxes(automargin=True, zeroline=False)
    figure.update_yaxes(automargin=True, zeroline=False)
    return figure


def label(text: str) -> str:
    """Return a row's label: in short lines, with HTML escaped."""
    return "<br>".join(escape(line) for line in wrap(text, _NARROW)) or " "


def hover_text(**fields: object) -> str:
    """Return a point's hover text: a line per name and value, with HTML escaped."""
    return "<br>".join(
        f"{escape(name.replace('_', ' '))}: {escape(str(value))}" for name, value in fields.items()
    )


def seconds(value: float) -> str:
    """Format a duration for hover text."""
    return format_duration(value, 4) if value > 0 else "0 s"


def sizes_axis(sizes: Sequence[int]) -> dict[str, Any]:
    """Return a logarithmic axis of sizes, with all labels that fit."""
    named = sorted(set(sizes))
    shown = named[:: max(1, -(-len(named) // 6))]
    kind = "log" if named[0] > 0 else "linear"
    return {
        "type": kind,
        "tickvals": shown,
        "ticktext": [format_size(size) for size in shown],
    }


def log_axis(values: Iterable[float], show: Callable[[float], str]) -> dict[str, Any]:
    """Return a logarithmic axis for these values, with a mark at 1, 2 and 5 of each power of ten.

    A wide one has marks at powers of ten only.
    """
    known = [value for value in values if 0 < value < float("inf")] or [1.0]
    low, high = min(known) / 1.6, max(known) * 1.6
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1, 2, 5) if high <= low * WIDE else (1,)
    marks = [mark for power in powers for step in steps if low <= (mark := float(f"{step}e{power}")) <= high]
    return {"type": "log", "range": [math.log10(low), math.log10(high)],
            "tickvals": marks, "ticktext": [show(mark) for mark in marks]}  # fmt: skip


def add_band(
    figure: go.Figure,
    along: Sequence[float],
    ends: tuple[Sequence[float], Sequence[float]],
    colour: str,
    **where: Any,
) -> None:
    """Fill between two curves, in a lighter shade of the colour."""
    low, high = ends
    figure.add_scatter(
        x=[*along, *reversed(along)], y=[*low, *reversed(high)], mode="lines", line={"width": 0},
        fill="toself", fillcolor=colour, opacity=0.15, hoverinfo="skip", showlegend=False, **where,
    )  # fmt: skip


def beside(
    names: Sequence[str], times: Mapping[str, Sequence[float | None]], more: Sequence[str] = ()
) -> go.Figure:
    """Draw a row of bars per name, first names above: seconds of each kind; ``more`` is extra hover text."""
    rows = [label(f"{number}. {name}") for number, name in enumerate(names, 1)]
    lines = max((row.count("<br>") + 1 for row in rows), default=1)
    figure = chart(height=140 + max(26 * (1 + len(times)), 16 * (1 + lines)) * len(names), barmode="group")
    for (kind, own), colour in zip(times.items(), COLOURS, strict=False):
        texts = [
            "<br>".join(filter(None, [escape(name), hover_text(**{kind: seconds(value)}), extra]))
            if value is not None
            else ""
            for name, value, extra in zip(names, own, more or [""] * len(names), strict=True)
        ]
        figure.add_bar(
            y=rows, x=list(own), orientation="h", name=kind, marker_color=colour, hovertext=texts,
            hoverinfo="text",
        )  # fmt: skip
    figure.update_xaxes(title="time", rangemode="tozero", **SECONDS)
    figure.update_yaxes(autorange="reversed")
    return figure


def stacked(
    names: Sequence[str], parts: Mapping[str, Sequence[float]], title: str = "time of the step"
) -> go.Figure:
    """Draw a bar per name, made of seconds of each part."""
    figure = chart(height=150 + 30 * len(names), barmode="stack")
    for (part, own), colour in zip(parts.items(), COLOURS * len(parts), strict=False):
        figure.add_bar(
            y=[label(name) for name in names], x=list(own), orientation="h", name=part, marker_color=colour,
            hovertext=[f"{escape(name)}<br>{hover_text(**{part: seconds(value)})}"
                       for name, value in zip(names, own, strict=True)],
            hoverinfo="text",
        )  # fmt: skip
    figure.update_xaxes(title=title, **SECONDS)
    figure.update_yaxes(autorange="reversed")
    return figure


def errors(
    rows: Sequence[str], kinds: Mapping[str, tuple[Sequence[float], Sequence[float] | None]]
) -> go.Figure:
    """Draw a row per name on a logarithmic scale: each kind's median error, a line to its 90th percentile.

    Unknown (not finite) values are left out.
    """
    figure = chart(height=170 + 34 * len(rows))
    places = [label(row) for row in rows]
    least = 1e-3
    looks = zip(kinds.items(), COLOURS * len(kinds), MARKS * len(kinds), strict=False)
    for (kind, (medians, ends)), colour, mark in looks:
        known = [at for at, median in enumerate(medians) if 0 <= median < float("inf")]
        figure.add_scatter(
            x=[max(medians[at], least) for at in known], y=[places[at] for at in known], mode="markers",
            name=escape(kind), marker={"color": colour, "symbol": mark, "size": 10}, hoverinfo="text",
            hovertext=[
                f"{escape(rows[at])}<br>"
                + hover_text(**{kind: f"{medians[at]:.1%}"})
                + (f"<br>90th percentile: {ends[at]:.1%}" if ends else "")
                for at in known
            ],
            error_x=None if ends is None else {
                "type": "data", "symmetric": False, "array": [max(ends[at] - medians[at], 0) for at in known],
                "arrayminus": [0] * len(known), "width": 0, "thickness": 2,
            },
        )  # fmt: skip
    every = [max(value, least) for medians, ends in kinds.values() for value in (*medians, *(ends or ()))]
    figure.update_xaxes(
        title="median error, line to the 90th percentile",
        **log_axis(every, lambda share: f"{100 * share:.4g}%"),
    )
    figure.update_yaxes(autorange="reversed", showgrid=True)
    return figure
