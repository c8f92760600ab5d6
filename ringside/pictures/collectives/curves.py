"""Collectives' time and bus bandwidth over nodes or sizes, and measured points beside predicted lines."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, pairwise
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, NullLocator, PercentFormatter

from ringside.pictures.collectives.looks import looks_of
from ringside.pictures.collectives.scales import mark_log
from ringside.pictures.style import DURATIONS, STYLE, save
from ringside.sim.collective import Collective
from ringside.topologies.units import format_duration, format_rate, format_size
from ringside.validation.compare import Compared

MOST_CURVES = 6
"""The number of curves that remain distinguishable."""

_LABEL_PT = 10
"""The minimum vertical distance of curves' names."""

_CURVE = "_curve"
_POINT: dict[str, Any] = {"mec": "0.25", "mew": 0.6, "ms": 6}
_LINE, _BAND = "0.55", "0.85"


@dataclass(frozen=True, slots=True)
class Point:
    """A collective on a number of nodes: its time between two bounds, in seconds, and its algorithm.

    ``nodes`` is ``None`` for a single cluster.
    """

    nodes: int | None
    collective: Collective
    time_s: float
    ends_s: tuple[float, float]
    algorithm: str


def draw_curves(points: Sequence[Point], title: str, path: Path, *, by_algorithm: bool = False) -> None:
    """Draw time, left, and bus bandwidth, right: a curve per size over nodes, or one over sizes.

    Or, ``by_algorithm``, a curve per algorithm, with a line where another one becomes the fastest. Points
    have their algorithm's colour; calibrated times have a band with their interval.
    """
    over_nodes = len({point.nodes for point in points}) > 1
    curves: dict[str, list[Point]] = {}
    for point in points:
        name = point.algorithm if by_algorithm else format_size(point.collective.nbytes) if over_nodes else ""
        curves.setdefault(name, []).append(point)
    shown = list(curves) if by_algorithm else _spread(list(curves))
    if len(shown) < len(curves):
        title += f" ({len(shown)} of {len(curves)} sizes)"
    with mpl.rc_context(fname=STYLE):
        figure = Figure(figsize=(9, 4.3))
        looks = looks_of({point.algorithm: point.algorithm for point in points})
        for axes, is_rate in zip(figure.subplots(1, 2), (False, True), strict=True):
            for name in shown:
                _draw_curve(axes, curves[name], looks, over_nodes=over_nodes, is_rate=is_rate)
            _dress(axes, [point for name in shown for point in curves[name]], over_nodes=over_nodes)
            unit = format_rate if is_rate else format_duration
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _, unit=unit: unit(value, 3)))
            axes.set_title("bus bandwidth" if is_rate else "time", loc="left", fontsize=10)
        figure.suptitle(title, fontsize=10)
        _add_legend(figure, [point for name in shown for point in curves[name]], looks)
        if by_algorithm:
            _mark_crossings(figure.axes, points, over_nodes=over_nodes)
        elif over_nodes:
            _name_curves(figure, shown)
        save(figure, path)


def crossings(points: Sequence[Point], *, over_nodes: bool) -> list[tuple[float, str, str]]:
    """Return where another algorithm becomes the fastest: size or nodes, the one before, and the one after.

    Times between two points lie on a line in logarithms.
    """
    times: dict[int, dict[str, float]] = {}
    for point in points:
        times.setdefault(_along(point, over_nodes=over_nodes), {})[point.algorithm] = point.time_s
    changes = []
    for low, high in pairwise(sorted(times)):
        before, after = (min(times[place], key=times[place].__getitem__) for place in (low, high))
        if before == after:
            continue
        where = math.sqrt(low * high)
        if before in times[high] and after in times[low]:
            lead = math.log(times[low][after] / times[low][before])
            lost = math.log(times[high][before] / times[high][after])
            where = low * (high / low) ** (lead / (lead + lost) if lead + lost else 0.5)
        changes.append((where, before, after))
    return changes


def _mark_crossings(panels: Sequence[Axes], points: Sequence[Point], *, over_nodes: bool) -> None:
    """Draw a line at each crossing; name it in the last panel, whose lower right corner is free."""
    for where, before, after in crossings(points, over_nodes=over_nodes):
        for axes in panels:
            axes.axvline(where, color="0.3", linewidth=0.8, linestyle=(0, (4, 3)), zorder=1)
        panels[-1].annotate(
            f"{before} to {after}: {_rounded(where, over_nodes=over_nodes)}", (where, 0.02), (-3, 0),
            xycoords=panels[-1].get_xaxis_transform(), textcoords="offset points", rotation=90, fontsize=7,
            va="bottom", ha="right",
        )  # fmt: skip


def _rounded(where: float, *, over_nodes: bool) -> str:
    """Return a size or a number of nodes with two digits: it was interpolated."""
    unit = 1 if over_nodes else 2 ** (10 * int(math.log2(max(where, 1)) / 10))
    value = float(f"{where / unit:.2g}")
    return f"{value:g} {'nodes' if over_nodes else format_size(unit).split()[1]}"


def _spread(names: list[str]) -> list[str]:
    """Return as many names as remain distinguishable, including the first and the last."""
    if len(names) <= MOST_CURVES:
        return names
    return [names[round(place * (len(names) - 1) / (MOST_CURVES - 1))] for place in range(MOST_CURVES)]


def _draw_curve(
    axes: Axes,
    curve: Sequence[Point],
    looks: Mapping[str, tuple[str, str]],
    *,
    over_nodes: bool,
    is_rate: bool,
) -> None:
    """Draw a grey line with its band, and points in their algorithms' colours and shapes."""
    curve = sorted(curve, key=lambda point: _along(point, over_nodes=over_nodes))
    places = [_along(point, over_nodes=over_nodes) for point in curve]
    values = [_value(point, point.time_s, is_rate=is_rate) for point in curve]
    low, high = ([_value(point, point.ends_s[side], is_rate=is_rate) for point in curve] for side in (0, 1))
    if low != high:
        axes.fill_between(places, low, high, color=_BAND, linewidth=0, alpha=0.7)
    axes.plot(places, values, color=_LINE, linewidth=1.2, marker="", zorder=2, label=_CURVE)
    for place, value, point in zip(places, values, curve, strict=True):
        colour, mark = looks[point.algorithm]
        axes.plot(place, value, marker=mark, color=colour, **_POINT, zorder=3)


def _name_curves(figure: Figure, names: Sequence[str]) -> None:
    """Write each curve's name after its last point, moved up where it would overlap another."""
    figure.draw_without_rendering()  # the positions of points are known only now
    for axes in figure.axes:
        curves = [np.asarray(line.get_xydata()) for line in axes.lines if line.get_label() == _CURVE]
        ends = [(float(curve[-1][0]), float(curve[-1][1])) for curve in curves]
        heights = [float(axes.transData.transform(end)[1]) for end in ends]
        free = -math.inf
        for place in sorted(range(len(names)), key=heights.__getitem__):
            free = max(free, heights[place])
            offset = (free - heights[place]) * 72 / figure.dpi
            axes.annotate(
                names[place], ends[place], (7, offset), textcoords="offset points", va="center", fontsize=8
            )
            free += _LABEL_PT * figure.dpi / 72


def _along(point: Point, *, over_nodes: bool) -> int:
    return (point.nodes or 0) if over_nodes else point.collective.nbytes


def _value(point: Point, seconds: float, *, is_rate: bool) -> float:
    """Return the time, or the bus bandwidth in bytes/s at that time."""
    if not is_rate:
        return seconds
    return point.collective.nbytes / seconds * point.collective.busbw_factor if seconds else 0.0


def _dress(axes: Axes, points: Sequence[Point], *, over_nodes: bool) -> None:
    places = sorted({_along(point, over_nodes=over_nodes) for point in points})
    if min(places) > 0:
        axes.set_xscale("log", base=2)
    if min(point.time_s for point in points) > 0:
        mark_log(axes)
    every = -(-len(places) // 8)
    labels = [str(place) if over_nodes else format_size(place) for place in places[::every]]
    axes.set_xticks(places[::every], labels, fontsize=8)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_xlabel("nodes" if over_nodes else "size")


def _add_legend(figure: Figure, points: Sequence[Point], looks: Mapping[str, tuple[str, str]]) -> None:
    """Add the algorithms in use, and the band if there is one."""
    handles: list[Line2D | Patch] = [
        Line2D([], [], marker=looks[name][1], color=_LINE, mfc=looks[name][0], label=name, **_POINT)
        for name in dict.fromkeys(point.algorithm for point in points)
    ]
    if any(point.ends_s[0] < point.ends_s[1] for point in points):
        handles.append(Patch(facecolor=_BAND, label="four of five runs"))
    figure.legend(handles=handles, loc="outside lower center", ncols=5, fontsize=9)


_DASHES: tuple[Any, ...] = ("-", "--", "-.", ":", (0, (5, 1)), (0, (1, 1)))
"""Lines, which together with marks distinguish algorithms without colour."""


def draw_comparison(rows: Sequence[Compared], path: Path) -> None:
    """Draw measured points, predicted lines with their band, residuals below; a column per rank count."""
    shapes = sorted({(row.record.num_nodes, row.record.ranks) for row in rows})
    looks = looks_of({_label(row): row.record.algorithm for row in rows})
    with mpl.rc_context(fname=STYLE):
        figure = Figure(figsize=(1.2 + 5.2 * len(shapes), 6.2))
        axes = figure.subplots(
            2, len(shapes), sharex="col", sharey="row", squeeze=False, height_ratios=(3, 1.4)
        )
        for column, shape in enumerate(shapes):
            above, below = axes[0][column], axes[1][column]
            here = [row for row in rows if (row.record.num_nodes, row.record.ranks) == shape]
            for (way, look), line in zip(looks.items(), cycle(_DASHES), strict=False):
                _draw_way([row for row in here if _label(row) == way], way, (*look, line), above, below)
            nodes = f", {shape[0]} nodes" if shape[0] > 1 else ""
            above.set_title(f"{shape[1]} ranks{nodes}")
            _dress_both(above, below, sorted({row.record.nbytes for row in here}))
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


def _dress_both(above: Axes, below: Axes, sizes: list[int]) -> None:
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
