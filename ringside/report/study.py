"""The figure of a study: curves over one parameter, a map of two, or the effects of several."""

from collections.abc import Sequence
from html import escape
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from ringside.pictures.collectives.looks import looks_of
from ringside.report.charts import COLOURS, MARKS, SECONDS, SYMBOLS, chart, hover_text, label, log_axis
from ringside.studies.study import Study, ordered_by_size, shown_answer
from ringside.studies.summary import Effect, Summary

_MOST_CURVES = 5
_MOST_CELLS = 40


def study_figures(study: Study, rows: pd.DataFrame, result: Summary) -> dict[str, go.Figure]:
    """Draw the figure that suits the number of varying parameters; none without any."""
    if not result.effects:
        return {}
    good, target = rows[rows[study.target].notna()], study.target
    counts = {effect.parameter: good[effect.parameter].nunique() for effect in result.effects}
    fewest, *others = sorted(counts, key=counts.__getitem__)
    if not others:
        return {f"{target} over {fewest}": _curves(good, fewest, None, target)}
    if len(others) == 1 and counts[fewest] <= _MOST_CURVES:
        return {f"{target} over {others[0]}": _curves(good, others[0], fewest, target)}
    if len(others) == 1 and counts[others[0]] <= _MOST_CELLS:
        return {f"{target} over {others[0]} and {fewest}": _map(good, fewest, others[0], target)}
    return {f"What matters most: mean {target} over each parameter": _tornado(result.effects, target)}


def _curves(good: pd.DataFrame, along: str, parted: str | None, target: str) -> go.Figure:
    figure = chart(showlegend=parted is not None)
    values = ordered_by_size(good[along])
    parts = ordered_by_size(good[parted]) if parted else [""]
    looks = (
        [(colour, SYMBOLS[mark]) for colour, mark in looks_of({name: name for name in parts}).values()]
        if parted == "algorithm"
        else [*zip(COLOURS, MARKS, strict=True)]
    )
    for name, (colour, mark) in zip(parts, looks, strict=False):
        part = good[good[parted] == name] if parted else good
        means = part.groupby(along)[target].mean()
        here = [value for value in values if value in means]
        figure.add_scatter(
            x=[escape(value) for value in here], y=[float(means[value]) for value in here],
            mode="lines+markers", name=escape(f"{parted} {name}"),
            marker={"color": colour, "symbol": mark, "size": 8}, hoverinfo="text",
            hovertext=[
                hover_text(**({parted: name} if parted else {}), **{along: value},
                      **{target: shown_answer(float(means[value]), target)})
                for value in here
            ],
        )  # fmt: skip
    figure.update_xaxes(title=escape(along), type="category", categoryorder="array",
                        categoryarray=[escape(value) for value in values])  # fmt: skip
    least, most = float(good[target].min()), float(good[target].max())
    axis = (
        log_axis([least, most], lambda value: shown_answer(value, target))
        if 0 < 20 * least < most
        else {"rangemode": "tozero", **_axis(target)}
    )
    figure.update_yaxes(title={"text": escape(target), "standoff": 12}, **axis)
    return figure


def _map(good: pd.DataFrame, down: str, along: str, target: str) -> go.Figure:
    figure = chart()
    rows, columns = ordered_by_size(good[down]), ordered_by_size(good[along])
    table = good.pivot_table(index=down, columns=along, values=target).reindex(index=rows, columns=columns)
    cells = [[None if pd.isna(value) else float(value) for value in row] for row in table.to_numpy()]
    texts = [
        ["" if value is None else hover_text(**{down: one, along: other, target: shown_answer(value, target)})
         for other, value in zip(columns, row, strict=True)]
        for one, row in zip(rows, cells, strict=True)
    ]  # fmt: skip
    figure.add_heatmap(
        z=cells, x=[escape(value) for value in columns], y=[escape(value) for value in rows], text=texts,
        hoverinfo="text", colorscale="Cividis", reversescale=True,
        colorbar={"title": escape(target), "orientation": "h", "y": 1.02, "yanchor": "bottom", "len": 1,
                  "thickness": 12, **_axis(target)},
    )  # fmt: skip
    figure.update_layout(margin_t=90)
    figure.update_xaxes(title=escape(along), type="category")
    figure.update_yaxes(title=escape(down), type="category")
    return figure


def _tornado(effects: Sequence[Effect], target: str) -> go.Figure:
    figure = chart(height=130 + 50 * len(effects), showlegend=False)
    figure.add_bar(
        y=[label(effect.parameter) for effect in effects], x=[effect.spread for effect in effects],
        base=[effect.least for effect in effects], orientation="h", marker_color=COLOURS[0],
        hoverinfo="text",
        hovertext=[
            f"{escape(effect.parameter)}<br>"
            + hover_text(least=f"{shown_answer(effect.least, target)} at {effect.least_at}",
                    most=f"{shown_answer(effect.most, target)} at {effect.most_at}")
            for effect in effects
        ],
    )  # fmt: skip
    figure.update_yaxes(autorange="reversed")
    figure.update_xaxes(title=f"mean {escape(target)}, least to most", **_axis(target))
    return figure


def _axis(target: str) -> dict[str, Any]:
    return SECONDS if target.endswith("_s") else {}
