"""Pictures of comparisons, topologies and picks."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import networkx as nx
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import FuncFormatter, NullLocator, PercentFormatter

from ringside.pictures.style import STYLE, save
from sim.pick import Pick
from topologies import Topology
from topologies.units import format_duration, format_rate, format_size
from validation.compare import Compared

# dark to light, so that colours stay apart in grey; shapes tell them apart without any
_LOOKS = (("#08306b", "o", "-"), ("#b2182b", "s", "--"), ("#238b45", "^", "-."), ("#e08214", "D", ":"),
          ("#6a51a3", "v", (0, (5, 1))), ("#737373", "P", (0, (1, 1))))  # fmt: skip
_NODE_LOOKS = {"gpu": ("#c6dbef", "o"), "nvswitch": ("#fdd0a2", "s"), "switch": ("#d9d9d9", "s"),
               "nic": ("#c7e9c0", "d"), "pcie": ("#dadaeb", "h"), "cpu": ("#fcbba1", "h")}  # fmt: skip
_MAX_WIDTH_LABELLED = 32


def draw_comparison(rows: Sequence[Compared], path: Path) -> None:
    """Measured points, predicted lines with their band, residuals below; a column for each rank count."""
    shapes = sorted({(row.record.num_nodes, row.record.ranks) for row in rows})
    ways = list(dict.fromkeys(_way(row) for row in rows))
    with mpl.rc_context(fname=STYLE):
        figure = Figure(figsize=(1.2 + 5.2 * len(shapes), 6.2))
        axes = figure.subplots(
            2, len(shapes), sharex="col", sharey="row", squeeze=False, height_ratios=(3, 1.4)
        )
        for column, shape in enumerate(shapes):
            above, below = axes[0][column], axes[1][column]
            here = [row for row in rows if (row.record.num_nodes, row.record.ranks) == shape]
            for way, look in zip(ways, _LOOKS * len(ways), strict=False):
                _draw_way([row for row in here if _way(row) == way], way, look, above, below)
            nodes = f", {shape[0]} nodes" if shape[0] > 1 else ""
            above.set_title(f"{shape[1]} ranks{nodes}")
            _dress(above, below, sorted({row.record.nbytes for row in here}))
        axes[0][0].set_ylabel("time")
        axes[1][0].set_ylabel("predicted / measured − 1")
        points = "points measured"
        if any(row.set == "fitted" for row in rows):
            points += " (hollow: fitted, filled: held out)"
        axes[0][0].legend(title=f"lines predicted, {points}", fontsize=9, title_fontsize=9)
        save(figure, path)


def draw_topology(graph: Topology, path: Path) -> None:
    """The graph in tiers, ranks at the bottom; link rates are written where there is room."""
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
        nx.draw_networkx_edges(graph, place, edgelist=cables, ax=axes, arrows=False, edge_color="0.6")
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


def draw_picks(picks: Sequence[Pick], title: str, path: Path) -> None:
    """A map of winners, size by node count; hatched where the next is too close to call."""
    nodes, sizes = sorted({p.nodes for p in picks}), sorted({p.nbytes for p in picks})
    pairs = list(dict.fromkeys(p.pair for p in picks))
    shades = {pair: str(0.95 - 0.6 * i / max(len(pairs) - 1, 1)) for i, pair in enumerate(pairs)}
    with mpl.rc_context(fname=STYLE):
        figure = Figure(figsize=(2.5 + 0.42 * len(sizes), 1.6 + 0.42 * len(nodes)))
        axes = figure.subplots()
        for p in picks:
            x, y = sizes.index(p.nbytes), nodes.index(p.nodes)
            hatch = "////" if p.too_close else None
            edge = "0.25" if float(shades[p.pair]) > 0.6 else "0.95"
            axes.add_patch(
                Rectangle((x, y), 1, 1, facecolor=shades[p.pair], edgecolor=edge, hatch=hatch, lw=0.4)
            )
        for pair in pairs:
            _name_area(
                axes, [(sizes.index(p.nbytes), nodes.index(p.nodes)) for p in picks if p.pair == pair], pair
            )
        handles = [Patch(facecolor=shades[pair], edgecolor="0.6", label="/".join(pair)) for pair in pairs]
        handles.append(Patch(facecolor="white", edgecolor="0.6", hatch="////", label="too close to call"))
        axes.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.0, 1.0))
        axes.set(xlim=(0, len(sizes)), ylim=(0, len(nodes)), xlabel="size", ylabel="nodes", title=title)
        every = max(1, len(sizes) // 8)
        axes.set_xticks(
            [i + 0.5 for i in range(0, len(sizes), every)], [format_size(s) for s in sizes[::every]]
        )
        axes.set_yticks([i + 0.5 for i in range(len(nodes))], [str(n) for n in nodes])
        axes.grid(visible=False)
        save(figure, path)


def _name_area(axes: Axes, cells: list[tuple[int, int]], pair: tuple[str, str]) -> None:
    """Write the pair into the middle of the widest row of its area."""
    row = max({y for _, y in cells}, key=lambda y: (sum(b == y for _, b in cells), -y))
    columns = [x for x, y in cells if y == row]
    if len(columns) > 3:
        text = axes.text(
            (min(columns) + max(columns) + 1) / 2,
            row + 0.5,
            "/".join(pair),
            ha="center",
            va="center",
            fontsize=8,
        )
        text.set_bbox({"facecolor": "white", "edgecolor": "none", "pad": 1.0, "alpha": 0.85})


def _draw_way(
    rows: Sequence[Compared], way: str, look: tuple[str, str, Any], above: Axes, below: Axes
) -> None:
    """One algorithm's line, band and points, and its residuals."""
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
    above.set(xscale="log", yscale="log")
    above.yaxis.set_major_formatter(FuncFormatter(lambda seconds, _: format_duration(seconds, 3)))
    below.axhline(0, color="0.3", linewidth=1)
    below.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    shown = sizes[:: max(1, -(-len(sizes) // 6))]
    below.set_xticks(shown, [format_size(size) for size in shown])
    below.xaxis.set_minor_locator(NullLocator())
    below.set_xlabel("size")


def _way(row: Compared) -> str:
    """What carried the collective out: an algorithm, or a library of its own accord."""
    record = row.record
    way = record.algorithm if record.library == "ideal" else f"{record.library}'s own"
    return way.replace("_", " ") if record.collective == "all_reduce" else f"{record.collective}, {way}"
