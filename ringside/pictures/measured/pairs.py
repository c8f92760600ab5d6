"""Every pair of nodes as a heat map, and each node's cost to its partners."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, NullLocator
from numpy.typing import NDArray

from ringside.pictures.style import STYLE, save
from ringside.validation.pairs import PairMatrix, PairsVerdict

_LEAST_FACTOR = 1.5
"""The minimum range of colours, so that noise looks like noise."""

_TICKS = (1, 1.1, 1.2, 1.5, 2, 3, 5, 10, 20, 50, 100)

_MOST_LABELS = 40
"""With more nodes only every second, third, ... name is written."""


def draw_pairs(verdict: PairsVerdict, path: Path) -> None:
    """Draw a column per collective and number of GPUs per node: the pairs above, the nodes below.

    A pair's colour is its time over the median of all pairs, the median over sizes; a dot marks named pairs,
    hatching those that were not measured. Below is each node's own factor, a point per size; diamonds are
    named nodes.
    """
    groups: dict[tuple[str, int, tuple[str, ...]], list[PairMatrix]] = {}
    for matrix in verdict.matrices:
        groups.setdefault((matrix.collective, matrix.gpus_per_node, matrix.nodes), []).append(matrix)
    factors = [_factors(group) for group in groups.values()]
    most = max(*(float(np.nanmax(each)) for each in factors), _LEAST_FACTOR)
    side = max(3.2, 0.21 * max(min(len(nodes), _MOST_LABELS) for *_, nodes in groups))
    with mpl.rc_context(fname=STYLE):
        figure = Figure(figsize=(2 + (side + 0.2) * len(groups), 1.4 * side + 1.2))
        together: Literal["row", "none"] = "row" if len({nodes for *_, nodes in groups}) == 1 else "none"
        axes = figure.subplots(
            2, len(groups), sharex="col", sharey=together, squeeze=False, height_ratios=(3, 1)
        )
        for column, ((collective, gpus, nodes), group) in enumerate(groups.items()):
            above, below = axes[0][column], axes[1][column]
            image = _draw_matrix(above, factors[column], LogNorm(1, most))
            _mark(above, verdict, group[0])
            _draw_nodes(below, group, {node.node for node in verdict.nodes})
            above.set_title(f"{collective}, {gpus} GPU{'s' * (gpus > 1)} per node")
            _write_names(above, below, nodes)
        axes[1][0].set_ylabel("node, slower by")
        bar = figure.colorbar(image, ax=axes[0].tolist(), label="pair's time over the median", pad=0.02)
        bar.set_ticks([tick for tick in _TICKS if tick <= most])
        bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda factor, _: f"{factor:g}x"))
        bar.ax.yaxis.set_minor_locator(NullLocator())
        save(figure, path)


def _factors(group: Sequence[PairMatrix]) -> NDArray[np.float64]:
    """Return the median over sizes of each pair's time over its matrix' median; NaN without any size."""
    slower = np.stack([matrix.slower for matrix in group])
    measured = np.isfinite(slower).any(axis=0)
    factors = np.full(measured.shape, np.nan)
    factors[measured] = np.exp(np.nanmedian(slower[:, measured], axis=0))
    return factors


def _draw_matrix(axes: Axes, factors: NDArray[np.float64], colours: LogNorm) -> AxesImage:
    axes.set_facecolor("0.88")
    axes.grid(visible=False)
    for y, x in np.argwhere(np.isnan(factors)):
        if x != y:
            axes.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, fill=False, hatch="////", ec="0.6", lw=0))
    ends = -0.5, len(factors) - 0.5
    axes.plot(
        ends, ends, "-", marker="", color="0.5", lw=1
    )  # no pair of a node with itself, whatever the grey
    return axes.imshow(np.clip(factors, 1, None), cmap="Blues", norm=colours, aspect="auto")


def _mark(axes: Axes, verdict: PairsVerdict, matrix: PairMatrix) -> None:
    here = matrix.collective, matrix.gpus_per_node
    for pair in verdict.pairs:
        if (pair.collective, pair.gpus_per_node) == here and set(pair.nodes) <= set(matrix.nodes):
            i, j = map(matrix.nodes.index, pair.nodes)
            axes.plot([i, j], [j, i], linestyle="", marker="o", mfc="white", mec="black", markersize=4)


def _draw_nodes(axes: Axes, group: Sequence[PairMatrix], slow: set[str]) -> None:
    for matrix in group:
        named = np.array([node in slow for node in matrix.nodes])
        factors, places = np.exp(matrix.effects), np.arange(len(named))
        axes.plot(places[~named], factors[~named], "o", color="#08306b", markersize=3, alpha=0.5)
        axes.plot(places[named], factors[named], "D", color="#b2182b", markersize=5)
    axes.axhline(1, color="0.3", linewidth=1)
    low, high = axes.get_ylim()
    axes.set_ylim(min(low, 0.95), max(high, 1.05))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda factor, _: f"{factor - 1:+.0%}"))


def _write_names(above: Axes, below: Axes, nodes: tuple[str, ...]) -> None:
    every = -(-len(nodes) // _MOST_LABELS)
    above.set_yticks(range(0, len(nodes), every), nodes[::every], fontsize=7)
    below.set_xticks(range(0, len(nodes), every), nodes[::every], fontsize=7, rotation=90)
    above.tick_params(length=0, labelbottom=False)
