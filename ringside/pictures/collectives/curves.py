"""Collectives' time and bus bandwidth, over nodes or over sizes."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from ringside.pictures.algorithms import colour_of
from ringside.pictures.style import STYLE, save
from ringside.sim.collective import Collective
from ringside.topologies.units import format_duration, format_rate, format_size

MOST_CURVES = 6
"""The number of curves that remain distinguishable."""

_LABEL_PT = 10
"""The minimum vertical distance of curves' names."""

_CURVE = "_curve"
_MARKS = "osD^vPX*"
"""Shapes that distinguish algorithms without colour."""

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


def draw_curves(points: Sequence[Point], title: str, path: Path) -> None:
    """Draw time, left, and bus bandwidth, right: a curve per size over nodes, or one over sizes.

    Points have their algorithm's colour; measured times have a band with their interval.
    """
    over_nodes = len({point.nodes for point in points}) > 1
    curves: dict[str, list[Point]] = {}
    for point in points:
        name = format_size(point.collective.nbytes) if over_nodes else ""
        curves.setdefault(name, []).append(point)
    shown = _spread(list(curves))
    if len(shown) < len(curves):
        title += f" ({len(shown)} of {len(curves)} sizes)"
    with mpl.rc_context(fname=STYLE):
        figure = Figure(figsize=(9, 4.3))
        looks = dict(zip(dict.fromkeys(point.algorithm for point in points), cycle(_MARKS), strict=False))
        for axes, is_rate in zip(figure.subplots(1, 2), (False, True), strict=True):
            for name in shown:
                _draw_curve(axes, curves[name], looks, over_nodes=over_nodes, is_rate=is_rate)
            _dress(axes, [point for name in shown for point in curves[name]], over_nodes=over_nodes)
            unit = format_rate if is_rate else format_duration
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _, unit=unit: unit(value, 3)))
            axes.set_title("bus bandwidth" if is_rate else "time", loc="left", fontsize=10)
        figure.suptitle(title, fontsize=10)
        _add_legend(figure, [point for name in shown for point in curves[name]], looks)
        if over_nodes:
            _name_curves(figure, shown)
        save(figure, path)


def mark_log(axes: Axes) -> None:
    """Set a logarithmic y axis with a mark at each power of ten, and at 2 and 5 for few powers."""
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 100 * low else (1,)))
    axes.yaxis.set_minor_locator(NullLocator())


def _spread(names: list[str]) -> list[str]:
    """Return as many names as remain distinguishable, including the first and the last."""
    if len(names) <= MOST_CURVES:
        return names
    return [names[round(place * (len(names) - 1) / (MOST_CURVES - 1))] for place in range(MOST_CURVES)]


def _draw_curve(
    axes: Axes, curve: Sequence[Point], looks: Mapping[str, str], *, over_nodes: bool, is_rate: bool
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
        axes.plot(place, value, looks[point.algorithm], color=colour_of(point.algorithm), **_POINT, zorder=3)


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


def _add_legend(figure: Figure, points: Sequence[Point], looks: Mapping[str, str]) -> None:
    """Add the algorithms in use, and the band if there is one."""
    handles: list[Line2D | Patch] = [
        Line2D([], [], marker=looks[name], color=_LINE, mfc=colour_of(name), label=name, **_POINT)
        for name in dict.fromkeys(point.algorithm for point in points)
    ]
    if any(point.ends_s[0] < point.ends_s[1] for point in points):
        handles.append(Patch(facecolor=_BAND, label="interval of the measured times"))
    figure.legend(handles=handles, loc="outside lower center", ncols=5, fontsize=9)
