"""Measured points and predicted lines."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator, PercentFormatter

from ringside.pictures.collectives.curves import mark_log
from ringside.pictures.style import STYLE, save
from ringside.pictures.ticks import DURATIONS
from ringside.topologies.units import format_size
from ringside.validation.compare import Compared

# dark to light, so that colours differ in grey; shapes distinguish them without colour
_LOOKS = (("#08306b", "o", "-"), ("#b2182b", "s", "--"), ("#238b45", "^", "-."), ("#e08214", "D", ":"),
          ("#6a51a3", "v", (0, (5, 1))), ("#737373", "P", (0, (1, 1))))  # fmt: skip


def draw_comparison(rows: Sequence[Compared], path: Path) -> None:
    """Draw measured points, predicted lines with their band, residuals below; a column per rank count."""
    shapes = sorted({(row.record.num_nodes, row.record.ranks) for row in rows})
    ways = list(dict.fromkeys(_label(row) for row in rows))
    with mpl.rc_context(fname=STYLE):
        figure = Figure(figsize=(1.2 + 5.2 * len(shapes), 6.2))
        axes = figure.subplots(
            2, len(shapes), sharex="col", sharey="row", squeeze=False, height_ratios=(3, 1.4)
        )
        for column, shape in enumerate(shapes):
            above, below = axes[0][column], axes[1][column]
            here = [row for row in rows if (row.record.num_nodes, row.record.ranks) == shape]
            for way, look in zip(ways, _LOOKS * len(ways), strict=False):
                _draw_way([row for row in here if _label(row) == way], way, look, above, below)
            nodes = f", {shape[0]} nodes" if shape[0] > 1 else ""
            above.set_title(f"{shape[1]} ranks{nodes}")
            _dress(above, below, sorted({row.record.nbytes for row in here}))
        axes[0][0].set_ylabel("time")
        axes[1][0].set_ylabel("error: predicted /\nmeasured − 1")
        points = "points measured"
        if any(row.set == "fitted" for row in rows):
            points += " (hollow: fitted, filled: held out)"
        axes[0][0].legend(title=f"lines predicted with their band, {points}", fontsize=9, title_fontsize=9)
        save(figure, path)


def _draw_way(
    rows: Sequence[Compared], way: str, look: tuple[str, str, Any], above: Axes, below: Axes
) -> None:
    """Draw one algorithm's line, band and points, and its residuals."""
    if not rows:
        return
    colour, marker, line = look
    rows = sorted(rows, key=lambda row: row.record.nbytes)
    sizes = [row.record.nbytes for row in rows]
    above.plot(sizes, [row.predicted_s for row in rows], color=colour, linestyle=line, label=way, marker="")
    above.fill_between(
        sizes, [row.lo_s for row in rows], [row.hi_s for row in rows], color=colour, alpha=0.12, lw=0
    )
    for row in rows:
        record = row.record
        fill = "white" if row.set == "fitted" else colour
        style: dict[str, Any] = {"color": colour, "marker": marker, "markerfacecolor": fill, "linestyle": ""}
        low, high = (record.min_s or record.time_s), (record.p95_s or record.time_s)
        above.errorbar(
            [record.nbytes], [record.time_s], [[record.time_s - low], [max(high - record.time_s, 0)]],
            elinewidth=0.8, capsize=2, **style,
        )  # fmt: skip
        below.plot([record.nbytes], [row.error], **style)


def _dress(above: Axes, below: Axes, sizes: list[int]) -> None:
    above.set_xscale("log")
    mark_log(above)
    above.yaxis.set_major_formatter(DURATIONS)
    below.axhline(0, color="0.3", linewidth=1)
    below.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    shown = sizes[:: max(1, -(-len(sizes) // 6))]
    below.set_xticks(shown, [format_size(size) for size in shown])
    below.xaxis.set_minor_locator(NullLocator())
    below.set_xlabel("size")


def _label(row: Compared) -> str:
    kind, way = row.record.collective, row.way
    return way.replace("_", " ") if kind == "all_reduce" else f"{kind}, {way}"
