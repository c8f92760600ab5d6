"""The map of winners."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from ringside.pictures.collectives.looks import colour_of
from ringside.pictures.style import STYLE, save
from ringside.sim.pick import Pick
from ringside.topologies.units import format_size

_WIDTH, _HEIGHT = 0.4, 0.46
"""Inches per cell."""

_LETTER, _LINE = 0.0088, 0.0145
"""Inches per point of type: a letter's width, a line's height."""

_TYPE = (8, 7)
"""Points: a name's usual and minimum size."""


def draw_picks(picks: Sequence[Pick], title: str, path: Path) -> None:
    """Draw a map of winners, size by node count; hatched where the runner-up is too close to call.

    Colours are the algorithms'; neighbours with one winner have its name where it fits.
    """
    nodes, sizes = sorted({p.nodes for p in picks}), sorted({p.nbytes for p in picks})
    algorithms = list(dict.fromkeys(p.pair[0] for p in picks))
    with mpl.rc_context(fname=STYLE):
        figure = Figure(figsize=(0.9 + max(_WIDTH * len(sizes), 4.0), 1.7 + _HEIGHT * len(nodes)))
        axes = figure.subplots()
        for row, count in enumerate(nodes):
            cells = sorted((p for p in picks if p.nodes == count), key=lambda p: p.nbytes)
            for pair, run in groupby(cells, key=lambda p: p.pair):
                _draw_run(axes, row, [(sizes.index(p.nbytes), p.too_close) for p in run], pair)
        handles = [Patch(facecolor=colour_of(name), edgecolor="0.4", label=name) for name in algorithms]
        if any(p.too_close for p in picks):
            handles.append(Patch(facecolor="white", edgecolor="0.4", hatch="////", label="too close to call"))
        figure.legend(handles=handles, loc="outside lower center", ncols=min(len(handles), 5), fontsize=9)
        axes.set(xlim=(0, len(sizes)), ylim=(0, len(nodes)), xlabel="size", ylabel="nodes", title=title)
        every = max(1, -(-len(sizes) // 8))
        axes.set_xticks(
            [i + 0.5 for i in range(0, len(sizes), every)], [format_size(s) for s in sizes[::every]]
        )
        axes.set_yticks([i + 0.5 for i in range(len(nodes))], [str(n) for n in nodes])
        axes.grid(visible=False)
        save(figure, path)


def _draw_run(axes: Axes, row: int, cells: Sequence[tuple[int, bool]], pair: tuple[str, str]) -> None:
    """Draw adjacent cells with one winner, as one box with its name, hatched where it is close."""
    colour, left, width = colour_of(pair[0]), cells[0][0], len(cells)
    axes.add_patch(Rectangle((left, row), width, 1, facecolor=colour, edgecolor="white", lw=1.5))
    for column, close in cells:
        if close:
            axes.add_patch(
                Rectangle((column, row), 1, 1, fill=False, edgecolor=(1, 1, 1, 0.55), hatch="///", lw=0)
            )
    name = "/".join(word for word in pair if word != "auto")
    fitting = next(
        ((text, size) for text in _broken(name) for size in _TYPE if _fits(text, size, width)), None
    )
    if fitting:
        text, size = fitting
        axes.text(
            left + width / 2, row + 0.5, text, ha="center", va="center", fontsize=size, linespacing=0.9,
            color=_ink(colour), bbox={"facecolor": colour, "edgecolor": "none", "pad": 0.8},
        )  # fmt: skip


def _broken(name: str) -> Iterator[str]:
    """Yield a name on one line, with the protocol on a second, every word on its own."""
    yield name
    yield name.replace("/", "\n")
    yield name.replace("/", "\n").replace("_", "_\n")


def _fits(text: str, size: float, cells: int) -> bool:
    lines = text.splitlines()
    wide = max(map(len, lines)) * _LETTER * size < cells * _WIDTH - 0.02
    return wide and len(lines) * _LINE * size < _HEIGHT


def _ink(colour: str) -> str:
    """Return black or white, whichever is more legible on the colour."""
    red, green, blue = to_rgb(colour)
    return "black" if 0.3 * red + 0.59 * green + 0.11 * blue > 0.5 else "white"
