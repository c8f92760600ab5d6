"""Figures of a validation on emulated networks: the errors first."""

from collections.abc import Sequence
from html import escape

import plotly.graph_objects as go

from ringside.pictures.collectives.looks import looks_of
from ringside.report.charts import SHARE, SYMBOLS, chart, hover_text, label, log_axis, seconds
from ringside.topologies.units import format_size
from ringside.validation.emulated.collectives import MeasuredCase, verdicts
from ringside.validation.emulated.plan import MBIT


def validation_figures(cells: Sequence[MeasuredCase]) -> dict[str, go.Figure]:
    """Draw every cell's error by its family, and its measured time over the predicted one."""
    return {
        "Errors by family; grey is the median's tolerance, hollow points are noisy": _errors(cells),
        "Measured over predicted: on the line both are equal": _times(cells),
    }


def _errors(cells: Sequence[MeasuredCase]) -> go.Figure:
    judged = verdicts(cells)
    figure = chart(height=130 + 44 * len(judged), showlegend=False)
    looks = _looks(cells)
    for row, verdict in enumerate(judged):
        limit = verdict.tolerance.median
        figure.add_shape(
            type="rect", x0=-limit, x1=limit, y0=row - 0.35, y1=row + 0.35, fillcolor="#888", opacity=0.25,
            line_width=0, layer="below",
        )  # fmt: skip
        own = [cell for cell in cells if cell.family == verdict.family]
        figure.add_scatter(
            x=[cell.error for cell in own], y=[row] * len(own), mode="markers", hoverinfo="text",
            hovertext=[_hover(cell) for cell in own],
            marker={"color": looks[verdict.family][0], "size": 9,
                    "symbol": [_mark("circle", cell) for cell in own]},
        )  # fmt: skip
    names = [label(f"{verdict.family} ({verdict.median_error:.1%})") for verdict in judged]
    figure.update_yaxes(tickvals=list(range(len(judged))), ticktext=names, range=[len(judged) - 0.5, -0.5],
                        showgrid=False)  # fmt: skip
    figure.update_xaxes(title="error; in brackets the median absolute error", zeroline=True, **SHARE)
    return figure


def _times(cells: Sequence[MeasuredCase]) -> go.Figure:
    figure = chart(height=480)
    times = [time for cell in cells for time in (cell.predicted_s, cell.measured_s)]
    ends = [min(times), max(times)]
    figure.add_scatter(
        x=ends, y=ends, mode="lines", line={"color": "#888"}, hoverinfo="skip", showlegend=False
    )
    for family, (colour, mark) in _looks(cells).items():
        own = [cell for cell in cells if cell.family == family]
        figure.add_scatter(
            x=[cell.predicted_s for cell in own], y=[cell.measured_s for cell in own], mode="markers",
            name=escape(family), hoverinfo="text", hovertext=[_hover(cell) for cell in own],
            marker={"color": colour, "size": 8, "symbol": [_mark(mark, cell) for cell in own]},
        )  # fmt: skip
    axis = log_axis(times, seconds)
    figure.update_xaxes(title="predicted", **axis)
    figure.update_yaxes(title="measured", **axis)
    return figure


def _looks(cells: Sequence[MeasuredCase]) -> dict[str, tuple[str, str]]:
    """Return the colour and the mark of each family of cells, those of its first cell's algorithm."""
    algorithms: dict[str, str] = {}
    for cell in cells:
        algorithms.setdefault(cell.family, cell.algorithm)
    return {name: (colour, SYMBOLS[mark]) for name, (colour, mark) in looks_of(algorithms).items()}


def _mark(mark: str, cell: MeasuredCase) -> str:
    return f"{mark}-open" if cell.noisy else mark


def _hover(cell: MeasuredCase) -> str:
    what = f"{cell.collective} by {cell.algorithm}, {format_size(cell.size_bytes)}"
    where = f"{cell.ranks} ranks, {cell.bandwidth / MBIT:g} Mb/s, placement {cell.placement}"
    return f"{escape(what)}<br>{escape(where)}<br>" + hover_text(
        measured=f"{seconds(cell.measured_s)}, repeats spread {cell.spread:.1%}",
        predicted=seconds(cell.predicted_s), error=f"{cell.error:+.1%}",
    )  # fmt: skip
