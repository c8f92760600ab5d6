"""The picture of a cluster."""

from collections.abc import Mapping
from pathlib import Path

import matplotlib as mpl
import networkx as nx
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from ringside.pictures.style import STYLE, save
from topologies import Topology
from topologies.units import format_duration, format_rate

_NODE_LOOKS = {"gpu": ("#c6dbef", "o"), "nvswitch": ("#fdd0a2", "s"), "switch": ("#d9d9d9", "s"),
               "nic": ("#c7e9c0", "d"), "pcie": ("#dadaeb", "h"), "cpu": ("#fcbba1", "h")}  # fmt: skip
_MAX_WIDTH_LABELLED = 32

_BUSY = "cividis_r"
"""From light to dark, in grey too."""


def draw_topology(graph: Topology, path: Path, busy: Mapping[str, float] | None = None) -> None:
    """The graph in tiers, ranks at the bottom; link rates are written where there is room.

    ``busy`` has the share of the time in which links, ``a -> b``, are in use; a cable shows its busier one.
    """
    tiers: dict[int, list[str]] = {}
    for node, data in graph.nodes(data=True):
        tiers.setdefault(data.get("tier", 0 if data["kind"] == "gpu" else 1), []).append(node)
    place = {
        node: ((index + 0.5) / len(nodes), float(tier))
        for tier, nodes in tiers.items()
        for index, node in enumerate(nodes)
    }
    widest = max(map(len, tiers.values()))
    with mpl.rc_context(fname=STYLE):
        figure = Figure(figsize=(min(max(5.0, 0.9 * widest), 24.0), 1.2 + 1.5 * len(tiers)))
        axes = figure.subplots()
        cables = list({frozenset(edge): edge for edge in graph.edges}.values())
        if busy is None:
            nx.draw_networkx_edges(graph, place, edgelist=cables, ax=axes, arrows=False, edge_color="0.6")
        else:
            _draw_busy(figure, axes, place, cables, busy)
        for kind, (colour, shape) in _NODE_LOOKS.items():
            nodes = [node for node, data in graph.nodes(data=True) if data["kind"] == kind]
            if nodes:
                drawn = nx.draw_networkx_nodes(
                    graph, place, nodelist=nodes, ax=axes, node_color=colour, node_shape=shape,
                    edgecolors="0.3", node_size=380 if widest <= 24 else 60,
                )  # fmt: skip
                drawn.set_label(kind)
        if widest <= _MAX_WIDTH_LABELLED:
            nx.draw_networkx_labels(
                graph, place, labels={n: n.rpartition("/")[2] for n in graph}, ax=axes, font_size=7
            )
        rates = {
            f"{d['kind']} {format_rate(d['bandwidth'], 3)}, {format_duration(d['latency'], 3)}"
            for _, _, d in graph.edges(data=True)
        }
        axes.set_title(f"{graph.graph['name']}: {'; '.join(sorted(rates))}", fontsize=9)
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), labelspacing=1.0, markerscale=0.6)
        axes.axis("off")
        axes.margins(0.08, 0.2)
        save(figure, path)


def _draw_busy(
    figure: Figure,
    axes: Axes,
    place: Mapping[str, tuple[float, float]],
    cables: list[tuple[str, str]],
    busy: Mapping[str, float],
) -> None:
    """Cables in the colour and the width of what they carry, the busiest on top."""
    share = {(a, b): max(busy.get(f"{a} -> {b}", 0.0), busy.get(f"{b} -> {a}", 0.0)) for a, b in cables}
    ordered = sorted(cables, key=share.__getitem__)
    lines = LineCollection(
        [(place[a], place[b]) for a, b in ordered],
        cmap=_BUSY, norm=Normalize(0.0, 1.0), array=[share[cable] for cable in ordered],
        linewidths=[0.6 + 3.4 * share[cable] for cable in ordered], zorder=0,
    )  # fmt: skip
    axes.add_collection(lines)
    figure.colorbar(lines, ax=axes, fraction=0.03, pad=0.02, location="left", label="busy share of the time")
