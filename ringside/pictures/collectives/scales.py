"""Marks of logarithmic axes."""

from typing import TYPE_CHECKING, Literal

from matplotlib.ticker import LogLocator, NullLocator

from ringside.pictures.collectives.looks import WIDE

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def mark_log(axes: "Axes", which: Literal["x", "y"] = "y") -> None:
    """Set a logarithmic axis with a mark at 1, 2 and 5 of each power of ten, at 1 alone on a wide one."""
    (axes.set_yscale if which == "y" else axes.set_xscale)("log")
    low, high = axes.get_ylim() if which == "y" else axes.get_xlim()
    axis = axes.yaxis if which == "y" else axes.xaxis
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < WIDE * low else (1,)))
    axis.set_minor_locator(NullLocator())
