"""A study: a curve over one parameter, a map of two, or the effects of several."""

from collections.abc import Collection, Sequence
from pathlib import Path
from textwrap import fill

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from ringside.pictures.collectives.looks import looks_of
from ringside.pictures.collectives.scales import mark_log
from ringside.pictures.style import STYLE, save
from ringside.studies.study import Study, number, ordered_by_size
from ringside.studies.summary import Effect, Summary
from ringside.topologies.units import format_duration

_MOST_CURVES = 5
_MOST_CELLS = 40
_MOST_LABELS = 12
_SHADES = ("#08306b", "#d95f0e", "#4292c6", "#238b45", "#737373")
_MARKS = "osD^v"


def draw_study(study: Study, rows: pd.DataFrame, result: Summary, path: Path) -> None:
    """Draw the picture that suits the number of varying parameters."""
    good = rows[rows[study.target].notna()]
    counts = {effect.parameter: good[effect.parameter].nunique() for effect in result.effects}
    fewest, *others = sorted(counts, key=counts.__getitem__)
    with mpl.rc_context(fname=STYLE):
        figure = Figure(figsize=(7, 4.2))
        axes = figure.subplots()
        axes.set_title(fill(study.title, 105), loc="left", fontsize=8, parse_math=False)
        if not others:
            _curves(axes, good, fewest, None, study.target)
        elif len(others) == 1 and counts[fewest] <= _MOST_CURVES:
            _curves(axes, good, others[0], fewest, study.target)
        elif len(others) == 1 and counts[others[0]] <= _MOST_CELLS:
            _map(figure, axes, good, (fewest, others[0]), study.target)
        else:
            _tornado(axes, result.effects, study.target)
        save(figure, path)


def _curves(axes: Axes, good: pd.DataFrame, along: str, parted: str | None, target: str) -> None:
    values = ordered_by_size(good[along])
    places, labels = _places(values)
    parts = (
        [(None, good)]
        if parted is None
        else [(one, good[good[parted] == one]) for one in ordered_by_size(good[parted])]
    )
    looks = (
        looks_of({str(name): str(name) for name, _ in parts}).values()
        if parted == "algorithm"
        else zip(_SHADES, _MARKS, strict=True)
    )
    for (name, part), (colour, mark) in zip(parts, looks, strict=False):
        means = part.groupby(along)[target].mean()
        here = [value for value in values if value in means]
        axes.plot(
            [places[value] for value in here], [means[value] for value in here],
            color=colour, marker=mark, ms=4, label=None if name is None else f"{parted} {name}",
        )  # fmt: skip
    if labels:
        axes.set_xticks([places[value] for value in values], values, rotation=30 if len(values) > 8 else 0)
    elif _is_wide(places.values()):
        mark_log(axes, "x")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_xlabel(along)
    axes.set_ylabel(target)
    if _is_wide(good[target].tolist()):
        mark_log(axes)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    else:
        axes.set_ylim(bottom=min(0, good[target].min()))
    _answer_axis(axes.yaxis, target)
    if parted is not None:
        axes.legend(fontsize=8)


def _map(figure: Figure, axes: Axes, good: pd.DataFrame, names: Sequence[str], target: str) -> None:
    down, along = names
    rows, columns = ordered_by_size(good[down]), ordered_by_size(good[along])
    table = good.pivot_table(index=down, columns=along, values=target).reindex(index=rows, columns=columns)
    shown = axes.imshow(table.to_numpy(), cmap="cividis_r", aspect="auto", origin="lower")
    every = max(1, len(columns) // 8)
    axes.set_xticks(range(0, len(columns), every), columns[::every])
    axes.set_yticks(range(0, len(rows), max(1, len(rows) // 8)), rows[:: max(1, len(rows) // 8)])
    axes.set_xlabel(along)
    axes.set_ylabel(down)
    axes.grid(visible=False)
    bar = figure.colorbar(shown, ax=axes, label=target)
    _answer_axis(bar.ax.yaxis, target)


def _tornado(axes: Axes, effects: Sequence[Effect], target: str) -> None:
    for place, effect in enumerate(effects):
        axes.barh(place, effect.most - effect.least, left=effect.least, color="#4292c6", height=0.6)
        axes.annotate(
            f"{effect.least_at} ",
            (effect.least, place),
            ha="right",
            va="center",
            fontsize=8,
            annotation_clip=False,
        )
        axes.annotate(f" {effect.most_at}", (effect.most, place), ha="left", va="center", fontsize=8)
    axes.set_yticks(range(len(effects)), [effect.parameter for effect in effects])
    axes.invert_yaxis()
    axes.use_sticky_edges = False  # the left of the smallest bar needs room too
    axes.margins(x=0.3)
    axes.set_xlabel(f"mean {target}, least and most over each parameter")
    _answer_axis(axes.xaxis, target)


def _places(values: Sequence[str]) -> tuple[dict[str, float], bool]:
    """Return positions of values: their numbers where they are plain, else side by side with their texts."""
    numbers = [number(value) for value in values]
    units = {one[1] for one in numbers if one}
    if all(numbers) and len(units) == 1 and len(values) > _MOST_LABELS:
        return {value: one[0] for value, one in zip(values, numbers, strict=True) if one}, False
    return {value: float(place) for place, value in enumerate(values)}, True


def _is_wide(values: Collection[float]) -> bool:
    """Whether values need a logarithmic axis."""
    least, most = min(values), max(values)
    return 0 < 20 * least < most


def _answer_axis(axis: Axis, target: str) -> None:
    if target.endswith("_s"):
        axis.set_major_formatter(
            FuncFormatter(lambda seconds, _: format_duration(seconds, 3) if seconds > 0 else "0")
        )
