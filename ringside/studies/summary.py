"""A study's summary: the parameter with the largest effect, the rows with extreme answers."""

from dataclasses import dataclass
from typing import Any

import pandas as pd

from ringside.studies.study import Study, StudyError, ordered_by_size

GROUPS = 5
"""The number of bins for drawn values, which nearly all differ."""

MOST_VALUES = 24
"""The maximum number of values that are shown one by one."""


@dataclass(frozen=True, slots=True)
class Effect:
    """The mean answer over one parameter, averaged over the others, and where it is least and most."""

    parameter: str
    least: float
    least_at: str
    most: float
    most_at: str

    @property
    def spread(self) -> float:
        """The difference between the most and the least."""
        return self.most - self.least


@dataclass(frozen=True, slots=True)
class Summary:
    """A study's summary; ``effects`` begin with the largest, ``least`` and ``most`` are rows."""

    target: str
    points: int
    answered: int
    failed: int
    effects: tuple[Effect, ...]
    least: dict[str, Any] | None
    most: dict[str, Any] | None


def summary(study: Study, rows: pd.DataFrame) -> Summary:
    """Summarise the rows so far; raise `StudyError` where answers have no such column."""
    target = study.target
    failed = int(rows["error"].notna().sum()) if len(rows) else 0
    answered = len(rows) - failed
    if not answered:
        return Summary(target, study.count, answered, failed, (), None, None)
    if target not in rows or not pd.api.types.is_float_dtype(rows[target]):
        known = ", ".join(str(name) for name in rows if pd.api.types.is_float_dtype(rows[name]))
        raise StudyError(f"answer: {target} is not a numeric column of the answers; write one of {known}")
    good = rows[rows[target].notna()]
    if not len(good):
        return Summary(target, study.count, answered, failed, (), None, None)
    effects = [effect for name in study.parameters if (effect := _effect(name, good, target))]
    least, most = (good.loc[getattr(good[target], which)()] for which in ("idxmin", "idxmax"))
    return Summary(
        target, study.count, answered, failed,
        tuple(sorted(effects, key=lambda effect: -effect.spread)),
        _extreme(study, least), _extreme(study, most),
    )  # fmt: skip


def _effect(name: str, good: pd.DataFrame, target: str) -> Effect | None:
    values = ordered_by_size(good[name])
    if len(values) < 2:
        return None
    group = {value: value for value in values}
    if len(values) > MOST_VALUES:
        size = -(-len(values) // GROUPS)
        parts = [values[begin : begin + size] for begin in range(0, len(values), size)]
        group = {value: f"{part[0]} to {part[-1]}" for part in parts for value in part}
    means = good.groupby(good[name].map(group), sort=False)[target].mean()
    return Effect(name, float(means.min()), str(means.idxmin()), float(means.max()), str(means.idxmax()))


def _extreme(study: Study, row: "pd.Series[Any]") -> dict[str, Any]:
    return {"point": int(row["point"]), **{name: row[name] for name in study.parameters},
            study.target: float(row[study.target])}  # fmt: skip
