"""A schedule: rings as circles, trees with their root on top."""

from pathlib import Path

import matplotlib as mpl
import networkx as nx
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ringside.pictures.style import STYLE, save
from ringside.sim.schedule import Links


def draw_schedule(links: Links, title: str, path: Path) -> None:
    """Draw two channels side by side: the first, and the first of the second half, with the other tree."""
    different = sorted({tuple(sorted(pairs)): channel for channel, pairs in reversed(links.items())}.values())
    shown = [(channel, links[channel]) for channel in sorted({different[0], different[len(different) // 2]})]
    with mpl.rc_context(fname=STYLE):
        figure = Figure(figsize=(4.6 * len(shown), 5.0))
        columns = figure.subplots(1, len(shown), squeeze=False)[0]
        for axes, (channel, pairs) in zip(columns, shown, strict=True):
            _draw(axes, pairs)
            tree = _tree_places(pairs) is not None
            axes.set_title(
                f"channel {channel}" + (": sums go up, the result comes down" if tree else ""), fontsize=9
            )
        figure.suptitle(f"{title} ({len(different)} different of {len(links)} channels)", fontsize=10)
        save(figure, path)


def _draw(axes: Axes, pairs: dict[tuple[int, int], bool]) -> None:
    graph: nx.DiGraph[int] = nx.DiGraph(list(pairs))
    ring: nx.Graph[int] = nx.empty_graph(sorted(graph))
    place = _tree_places(pairs) or nx.circular_layout(ring)
    nx.draw_networkx_nodes(graph, place, ax=axes, node_color="#c6dbef", edgecolors="0.3", node_size=320)
    nx.draw_networkx_labels(graph, place, ax=axes, font_size=8)
    nx.draw_networkx_edges(graph, place, ax=axes, edge_color="0.35", node_size=320, arrowsize=9)
    axes.axis("off")


def tree_of(pairs: dict[tuple[int, int], bool]) -> dict[int, int] | None:
    """Return each rank's parent in a single tree of sums, all but the root's; None for other pairs."""
    above = {a: b for (a, b), adds in pairs.items() if adds and (b, a) in pairs}
    everyone = {rank for pair in pairs for rank in pair}
    is_tree = len(everyone - set(above)) == 1 and len(above) == len(everyone) - 1
    return above if is_tree else None


def _tree_places(pairs: dict[tuple[int, int], bool]) -> dict[int, tuple[float, float]] | None:
    """Return each rank's position in a single tree of sums: leaves spread out, parents over children."""
    above = tree_of(pairs)
    if above is None:
        return None
    everyone = {rank for pair in pairs for rank in pair}
    roots = everyone - set(above)
    below: dict[int, list[int]] = {rank: [] for rank in everyone}
    for child, parent in sorted(above.items()):
        below[parent].append(child)
    place: dict[int, tuple[float, float]] = {}
    stack, column = [(roots.pop(), 0, False)], 0
    while stack:
        rank, depth, done = stack.pop()
        if done:
            middle = sum(place[child][0] for child in below[rank]) / len(below[rank])
            place[rank] = (middle, -depth)
        elif below[rank]:
            stack.append((rank, depth, True))
            stack += [(child, depth + 1, False) for child in reversed(below[rank])]
        else:
            place[rank] = (column, -depth)
            column += 1
    return place
