"""The page of a validation: every error in its tolerance, then measured points on predicted lines."""

from collections.abc import Callable, Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator, PercentFormatter

from ringside.pictures.style import DURATIONS, STYLE, save
from ringside.topologies.units import format_size
from ringside.validation.emulated.collectives import MeasuredCase, verdicts
from ringside.validation.emulated.plan import MBIT

_LOOKS = (("#08306b", "o"), ("#b2182b", "s"), ("#238b45", "^"), ("#e08214", "D"), ("#6a51a3", "v"),
          ("#737373", "P"), ("#4292c6", "X"), ("#000000", "*"))  # fmt: skip


def draw_validation(cells: Sequence[MeasuredCase], path: Path) -> None:
    """Draw all errors in a wide panel, below it times by size or oversubscription; omit empty panels."""
    by_family: dict[str, list[MeasuredCase]] = {}
    for cell in cells:
        by_family.setdefault(cell.family, []).append(cell)
    spine = by_family.get("leaf-spine", [])
    tightest = max((cell.oversubscription for cell in spine), default=1.0)
    largest = max((cell.size_bytes for cell in spine), default=0)
    panels: list[tuple[str, list[MeasuredCase], Callable[[Axes, list[MeasuredCase]], None]]] = [
        ("ring", by_family.get("ring", []), _over_sizes),
        ("double binary tree", by_family.get("double binary tree", []), _over_sizes),
        ("tree", by_family.get("tree", []), _over_sizes),
        ("Gloo's all-reduce", by_family.get("Gloo all-reduce", []), _over_sizes),
        ("Gloo's other collectives", by_family.get("Gloo's other collectives", []), _over_sizes),
        (
            f"placement: ring, 8 ranks, {tightest:g} times oversubscribed",
            [cell for cell in spine if cell.oversubscription == tightest],
            _over_sizes,
        ),
        (
            f"oversubscription: ring, 8 ranks, {format_size(largest)}",
            [cell for cell in spine if cell.size_bytes == largest],
            _over_oversubscription,
        ),
    ]
    shown = [panel for panel in panels if panel[1]]
    with mpl.rc_context(fname=STYLE):
        rows, families = -(-len(shown) // 2), len({cell.family for cell in cells})
        heights = [1.2 + 0.42 * families, 3.2 * rows][: 1 + bool(shown)]
        figure = Figure(figsize=(9, sum(heights) + 0.3))
        parts = figure.subfigures(len(heights), 1, squeeze=False, height_ratios=heights)[:, 0]
        errors = parts[0].subplots()
        _errors(errors, list(cells))
        errors.set_title("prediction errors, grey: the tolerance of the median", fontsize=11)
        lines = parts[-1].subplots(rows, 2, squeeze=False).ravel() if shown else []
        for panel, (title, some, draw) in zip(lines, shown, strict=False):
            draw(panel, some)
            panel.set_title(title, fontsize=10)
        for panel in lines[len(shown) :]:
            panel.axis("off")
        figure.suptitle(
            "Predicted from ping-pong alone; below, lines are predicted, points measured", fontsize=11
        )
        save(figure, path)


def _over_sizes(axes: Axes, cells: list[MeasuredCase]) -> None:
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    _lines(axes, cells, lambda cell: cell.size_bytes)
    sizes = sorted({cell.size_bytes for cell in cells})
    axes.set_xticks(sizes, [format_size(size) for size in sizes])
    axes.set_xlim(sizes[0] / 1.3, sizes[-1] * 1.3)
    axes.set_ylim(top=axes.get_ylim()[1] * 3)  # room for the legend
    axes.set_xlabel("size")


def _over_oversubscription(axes: Axes, cells: list[MeasuredCase]) -> None:
    _lines(axes, cells, lambda cell: cell.oversubscription)
    ratios = sorted({cell.oversubscription for cell in cells})
    axes.set_xticks(ratios, [f"{ratio:g}" for ratio in ratios])
    axes.set_ylim(bottom=0)
    axes.set_xlabel("hosts' bandwidth over uplink's")


def _lines(axes: Axes, cells: list[MeasuredCase], x: Callable[[MeasuredCase], float]) -> None:
    """Draw a line and its points for each combination in which the cells differ besides ``x``."""
    groups: dict[str, list[MeasuredCase]] = {}
    for cell in cells:
        groups.setdefault(_label(cell, cells), []).append(cell)
    for (label, some), (colour, marker) in zip(groups.items(), _LOOKS * len(groups), strict=False):
        some.sort(key=x)
        places = [x(cell) for cell in some]
        axes.plot(places, [cell.predicted_s for cell in some], color=colour, marker="", linewidth=1.2)
        for cell in some:
            axes.plot(x(cell), cell.measured_s, color=colour, marker=marker, markersize=5, linestyle="",
                      markerfacecolor="white" if cell.noisy else colour)  # fmt: skip
        axes.plot([], [], color=colour, marker=marker, markersize=5, linewidth=1.2, label=label)
    axes.yaxis.set_major_formatter(DURATIONS)
    axes.yaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_minor_locator(NullLocator())
    axes.legend(fontsize=8, ncols=1 + (len(groups) > 4))


def _label(cell: MeasuredCase, among: Sequence[MeasuredCase]) -> str:
    """Return what distinguishes the cell's line from the others in its panel."""
    labels: dict[str, set[str] | set[int] | set[float]] = {
        cell.collective.replace("_", "-"): {one.collective for one in among},
        f"{cell.ranks} ranks": {one.ranks for one in among},
        f"{cell.bandwidth / MBIT:g} Mb/s": {one.bandwidth for one in among},
        cell.placement: {one.placement for one in among},
    }
    return ", ".join(text for text, values in labels.items() if len(values) > 1) or f"{cell.ranks} ranks"


def _errors(axes: Axes, cells: list[MeasuredCase]) -> None:
    judged = verdicts(cells)
    for row, verdict in enumerate(judged):
        limit = verdict.tolerance.median
        axes.barh(row, 2 * limit, left=-limit, height=0.7, color="0.88")
        for cell in cells:
            if cell.family == verdict.family:
                axes.plot(cell.error, row, color="#08306b", marker="o", markersize=5, linestyle="",
                          alpha=0.6, markerfacecolor="white" if cell.noisy else "#08306b")  # fmt: skip
    names = [f"{v.family} ({v.median_error:.1%})" for v in judged]
    axes.set_yticks(range(len(judged)), names)
    axes.set_ylim(len(judged) + 0.4, -0.6)  # one more row, for the legend
    axes.xaxis.set_major_locator(MaxNLocator(steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    axes.set_xlabel("predicted / measured − 1; in brackets the median absolute error")
    if any(cell.noisy for cell in cells):
        axes.plot([], [], color="#08306b", marker="o", markersize=5, linestyle="", markerfacecolor="white",
                  label="its own repeats spread over 10 %")  # fmt: skip
        axes.legend(fontsize=8, loc="lower left")
