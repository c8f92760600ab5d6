"""Figures of predictions against measured collectives."""

from collections.abc import Mapping, Sequence
from html import escape

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from ringside.pictures.collectives.looks import looks_of
from ringside.report.charts import (
    SHARE,
    SYMBOLS,
    add_band,
    chart,
    hover_text,
    log_axis,
    seconds,
    sizes_axis,
)
from ringside.topologies.units import format_rate, format_size
from ringside.validation.compare import Compared

MOST_FIGURES = 8
"""The number of cluster shapes drawn; the table has all."""


def comparison_figures(rows: Sequence[Compared]) -> dict[str, go.Figure]:
    """Draw time over size, its error below, per number of nodes and ranks."""
    shapes = sorted({(row.record.num_nodes, row.record.ranks) for row in rows})
    looks = looks_of({_way(row): row.record.algorithm for row in rows})
    figures = {}
    for nodes, ranks in shapes[:MOST_FIGURES]:
        title = f"{ranks} ranks{f' on {nodes} nodes' if nodes > 1 else ''}"
        here = [row for row in rows if (row.record.num_nodes, row.record.ranks) == (nodes, ranks)]
        left = f" (the first {MOST_FIGURES} of {len(shapes)} shapes)" if len(shapes) > MOST_FIGURES else ""
        figures[f"{title}: predicted lines, measured points{left}; hollow points set the parameters"
              if any(row.set == "fitted" for row in here)
              else f"{title}: predicted lines, measured points{left}"] = _figure(here, looks)  # fmt: skip
    return figures


def _figure(rows: Sequence[Compared], looks: Mapping[str, tuple[str, str]]) -> go.Figure:
    figure = make_subplots(
        2, 1, shared_xaxes=True, row_heights=[0.68, 0.32], vertical_spacing=0.06,
        figure=chart(height=620, showlegend=True),
    )  # fmt: skip
    for way, (colour, mark) in looks.items():
        own = sorted((row for row in rows if _way(row) == way), key=lambda row: row.record.nbytes)
        if own:
            _draw_way(figure, own, way, colour, SYMBOLS[mark])
    times = [time for row in rows for time in (*_ends(row), row.predicted_s, row.lo_s, row.hi_s)]
    figure.update_yaxes(title={"text": "time", "standoff": 12}, row=1, col=1, **log_axis(times, seconds))
    figure.update_yaxes(title="error", row=2, col=1, zeroline=True, **SHARE)
    figure.update_xaxes(**sizes_axis([row.record.nbytes for row in rows]))
    return figure


def _draw_way(figure: go.Figure, rows: Sequence[Compared], way: str, colour: str, mark: str) -> None:
    sizes = [row.record.nbytes for row in rows]
    shared = {"legendgroup": way, "hoverinfo": "text", "name": escape(way)}
    texts = [_hover(row, way) for row in rows]
    marker = {"color": colour, "size": 9, "line": {"width": 1.5, "color": colour},
              "symbol": [f"{mark}-open" if row.set == "fitted" else mark for row in rows]}  # fmt: skip
    add_band(figure, sizes, ([row.lo_s for row in rows], [row.hi_s for row in rows]), colour,
             legendgroup=way, row=1, col=1)  # fmt: skip
    figure.add_scatter(
        x=sizes, y=[row.predicted_s for row in rows], mode="lines", line={"color": colour},
        hovertext=texts, showlegend=False, row=1, col=1, **shared,
    )  # fmt: skip
    figure.add_scatter(
        x=sizes, y=[row.record.time_s for row in rows], mode="markers", marker=marker, hovertext=texts,
        error_y={
            "type": "data", "symmetric": False, "thickness": 1, "width": 3,
            "array": [_ends(row)[1] - row.record.time_s for row in rows],
            "arrayminus": [row.record.time_s - _ends(row)[0] for row in rows],
        },
        row=1, col=1, **shared,
    )  # fmt: skip
    figure.add_scatter(
        x=sizes, y=[row.error for row in rows], mode="markers", marker=marker, hovertext=texts,
        showlegend=False, row=2, col=1, **shared,
    )  # fmt: skip


def _ends(row: Compared) -> tuple[float, float]:
    """Return the fastest iteration and the 95th percentile; the time itself where they are unknown."""
    time = row.record.time_s
    return min(row.record.min_s or time, time), max(row.record.p95_s or time, time)


def _hover(row: Compared, way: str) -> str:
    record = row.record
    first = f"{escape(way)}, {format_size(record.nbytes)}<br>"
    spread = {"spread": f"{record.spread:.0%}"} if record.spread else {}
    return first + hover_text(
        measured=f"{seconds(record.time_s)}, {format_rate(record.busbw, 3)}", **spread,
        predicted=f"{seconds(row.predicted_s)} ({seconds(row.lo_s)} to {seconds(row.hi_s)})",
        error=f"{row.error:+.1%}", set=row.set.replace("_", " "),
    )  # fmt: skip


def _way(row: Compared) -> str:
    kind, way = row.record.collective, row.way.replace("_", " ")
    return way if kind == "all_reduce" else f"{kind.replace('_', ' ')}, {way}"
