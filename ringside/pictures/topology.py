"""The picture of a cluster."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import matplotlib as mpl
import networkx as nx
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from ringside.pictures.grouping import grouped
from ringside.pictures.style import STYLE, save
from ringside.topologies import Topology
from ringside.topologies.units import format_duration, format_rate

_NODE_LOOKS = {"gpu": ("#c6dbef", "o"), "nvswitch": ("#fdd0a2", "s"), "switch": ("#d9d9d9", "s"),
               "nic": ("#c7e9c0", "d"), "pcie": ("#dadaeb", "h"), "cpu": ("#fcbba1", "h")}  # fmt: skip
_MAX_WIDTH_LABELLED = 18
_MAX_WIDTH = 9.6
"""Inches: the maximum legible size."""

_SUMMARISED = 32
"""Number of ranks from which one machine represents all similar ones."""

_GROUPED = 64
"""Number of nodes above which those that are joined alike are one, with their number."""

_ARC_POINTS = 25

_BUSY = "cividis_r"
"""From light to dark, in grey too."""


def draw_topology(graph: Topology, path: Path, busy: Mapping[str, float] | None = None) -> None:
    """Draw the graph in tiers, ranks at the bottom, each machine in a box; link rates are in the title.

    From 32 ranks on one machine represents all, if they are alike; in large fabrics nodes that are joined
    alike are one, with their number. ``busy`` is the busy share of the time of
    links, ``a -> b``; a cable shows its busier one, and all machines are drawn.
    """
    more = 0 if busy is not None else _alike(graph)
    shown = _first_machine(graph) if more else graph
    if busy is None and not more and len(graph) > _GROUPED:
        shown = grouped(graph, _MAX_WIDTH_LABELLED)
    place, boxes = _places(shown)
    widest = max(Counter(y for _, y in place.values()).values())
    with mpl.rc_context(fname=STYLE):
        tiers = len({y for _, y in place.values()})
        figure = Figure(figsize=(min(max(5.0, 0.6 * widest), _MAX_WIDTH), 1.5 + 1.1 * tiers))
        axes = figure.subplots()
        cables = list({frozenset(edge): edge for edge in shown.edges}.values())
        if busy is None:
            axes.add_collection(LineCollection(_courses(place, cables), colors="0.6", linewidths=1, zorder=0))
        else:
            _draw_busy(figure, axes, place, cables, busy)
        for kind, (colour, shape) in _NODE_LOOKS.items():
            nodes = [node for node, data in shown.nodes(data=True) if data["kind"] == kind]
            if nodes:
                drawn = nx.draw_networkx_nodes(
                    shown, place, nodelist=nodes, ax=axes, node_color=colour, node_shape=shape,
                    edgecolors="0.3", node_size=380 if widest <= _MAX_WIDTH_LABELLED else 60,
                )  # fmt: skip
                drawn.set_label(kind)
        if widest <= _MAX_WIDTH_LABELLED:
            names = {node: _label(node, data.get("count", 1)) for node, data in shown.nodes(data=True)}
            nx.draw_networkx_labels(shown, place, labels=names, ax=axes, font_size=6)
        for name, (left, right, top) in boxes.items():
            axes.add_patch(
                Rectangle((left, -0.45), right - left, top + 0.9, fill=False, edgecolor="0.5", linestyle="--")
            )
            caption = f"{name}, and {more} machines like it" if more else name
            axes.annotate(caption, ((left + right) / 2, -0.5), ha="center", va="top", fontsize=8)
        axes.set_title(f"{graph.graph['name']}\n{_rates(graph)}", fontsize=9)
        figure.legend(loc="outside lower center", ncols=len(_NODE_LOOKS), markerscale=0.6, fontsize=9)
        axes.axis("off")
        axes.margins(0.06, 0.15)
        save(figure, path)


def _label(node: str, count: int) -> str:
    """Return a node's name, or how many a group has."""
    return node.rpartition("/")[2] if count == 1 else f"{count}x"


def _rates(graph: Topology) -> str:
    """Return the bandwidth and latency of each kind of link."""
    rates = {
        f"{d['kind']} {format_rate(d['bandwidth'], 3)}, {format_duration(d['latency'], 3)}"
        for _, _, d in graph.edges(data=True)
    }
    return "; ".join(sorted(rates))


def _machine(node: str) -> str:
    """Return the machine of a node, or '' without one."""
    return node.rpartition("/")[0]


def _alike(graph: Topology) -> int:
    """Return the number of machines like the first, which need no drawing; 0 where all are drawn."""
    kinds: dict[str, Counter[str]] = {}
    ranks = 0
    for node, data in graph.nodes(data=True):
        ranks += "rank" in data
        if _machine(node):
            kinds.setdefault(_machine(node), Counter())[data["kind"]] += 1
    same = len({frozenset(each.items()) for each in kinds.values()}) == 1
    return len(kinds) - 1 if ranks >= _SUMMARISED and same else 0


def _first_machine(graph: Topology) -> Topology:
    """Return the graph with only its first machine."""
    first = next(_machine(node) for node in graph if _machine(node))
    kept = graph.copy()
    kept.remove_nodes_from([node for node in graph if _machine(node) not in ("", first)])
    return kept


def _places(
    graph: Topology,
) -> tuple[dict[str, tuple[float, float]], dict[str, tuple[float, float, float]]]:
    """Return positions of nodes, each machine in a column of its own; and its left, right and top."""
    machines = list(dict.fromkeys(_machine(node) for node in graph if _machine(node))) or [""]
    tiers: dict[tuple[str, float], list[str]] = {}
    for node, data in graph.nodes(data=True):
        tier = float(data.get("tier", 0 if data["kind"] == "gpu" else 1))
        tiers.setdefault((_machine(node), tier), []).append(node)
    place: dict[str, tuple[float, float]] = {}
    for (machine, tier), nodes in tiers.items():
        left, width = (machines.index(machine), 0.94) if machine else (0.0, len(machines) - 0.06)
        place |= {node: (left + width * (index + 0.5) / len(nodes), tier) for index, node in enumerate(nodes)}
    boxes = {
        machine: (number - 0.02, number + 0.96, max(tier for name, tier in tiers if name == machine))
        for number, machine in enumerate(machines)
        if machine
    }
    return place, boxes


def _courses(
    place: Mapping[str, tuple[float, float]], cables: list[tuple[str, str]]
) -> list[list[tuple[float, float]]]:
    """Return each cable's line: straight, or an arc past nodes between its ends.

    Arcs of the lowest tier hang, others rise; a longer one goes farther out, so none hides another.
    """
    tiers: dict[float, list[float]] = {}
    for x, y in place.values():
        tiers.setdefault(y, []).append(x)
    number = {(x, y): at for y, row in tiers.items() for at, x in enumerate(sorted(row))}
    lowest = min(tiers)
    courses = []
    for (x, y), end in ((place[a], place[b]) for a, b in cables):
        passed = abs(number[end] - number[x, y]) - 1 if end[1] == y else 0
        if not passed:
            courses.append([(x, y), end])
            continue
        height = (0.15 + 0.25 * passed / len(tiers[y])) * (-1 if y == lowest else 1)
        courses.append(
            [(x + (end[0] - x) * at, y + 4 * height * at * (1 - at)) for at in np.linspace(0, 1, _ARC_POINTS)]
        )
    return courses


def _draw_busy(
    figure: Figure,
    axes: Axes,
    place: Mapping[str, tuple[float, float]],
    cables: list[tuple[str, str]],
    busy: Mapping[str, float],
) -> None:
    """Draw cables in the colour and width of their busy share, the busiest on top."""
    share = {(a, b): max(busy.get(f"{a} -> {b}", 0.0), busy.get(f"{b} -> {a}", 0.0)) for a, b in cables}
    ordered = sorted(cables, key=share.__getitem__)
    lines = LineCollection(
        _courses(place, ordered),
        cmap=_BUSY, norm=Normalize(0.0, 1.0), array=[share[cable] for cable in ordered],
        linewidths=[0.6 + 3.4 * share[cable] for cable in ordered], zorder=0,
    )  # fmt: skip
    axes.add_collection(lines)
    figure.colorbar(lines, ax=axes, fraction=0.03, pad=0.02, location="left", label="busy share of the time")
