"""The map of winners."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from ringside.pictures.style import STYLE, save
from sim.pick import Pick
from topologies.units import format_size


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
