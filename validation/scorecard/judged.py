"""Published rows beside their predictions and simple rules: the table that every scorecard reads."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ringside.validation.errors import ErrorSummary, summarize

NAIVE = "naive"
"""A table's own simple rule."""


@dataclass(frozen=True, slots=True)
class JudgedRow:
    """One held-out row: its measurement, its prediction, and those of simple rules.

    ``series`` are the rows that one row or one fit predicts, ``what`` names this one, ``part`` is the part of
    the table that is summarized by itself. Numbers are in the table's unit. ``rule`` is the table's naive
    rule, ``baselines`` are several by name in its place; NaN if a rule does not apply. ``low`` and ``high``
    are the ends of the predicted interval. Rows may be grouped by ``traits``.
    """

    series: str
    what: str
    measured: float
    predicted: float
    rule: float = math.nan
    part: str = ""
    low: float = math.nan
    high: float = math.nan
    baselines: Mapping[str, float] = field(default_factory=dict)
    traits: Mapping[str, str] = field(default_factory=dict)

    @property
    def error(self) -> float:
        """The prediction's relative error."""
        return self.predicted / self.measured - 1

    @property
    def rule_error(self) -> float:
        """The naive rule's relative error."""
        return self.rule / self.measured - 1


@dataclass(frozen=True, slots=True)
class Counted:
    """A question with right and wrong answers: ``right`` of ``of`` are right, ``by_rule`` by the naive rule.

    ``by_rule`` is None where the rule has no answer.
    """

    question: str
    right: int
    of: int
    by_rule: int | None = None


@dataclass(frozen=True, slots=True)
class Correlated:
    """Spearman's correlation between the measured and the predicted order, 1 where they are the same.

    ``by_rule`` is the naive rule's, None where it has no order.
    """

    what: str
    spearman: float
    by_rule: float | None = None


@dataclass(frozen=True, slots=True)
class JudgedTable:
    """Published rows, and the predictions of held-out ones.

    ``sets`` describes the rows that set the parameters, ``rule`` the naive rule. ``judged`` predicts all
    other rows, ``counted`` answers questions without numbers, ``correlated`` compares orders. ``fitted``
    returns the errors of the rows that set the parameters. ``absolute`` predicts all rows with nothing known,
    in seconds. A table may have either or both of ``judged`` and ``absolute``.
    """

    name: str
    title: str
    source: str
    sets: str = "none"
    rule: str = "none"
    judged: Callable[[], Sequence[JudgedRow]] = tuple
    unit: str = "s"
    absolute: Callable[[], Sequence[JudgedRow]] = tuple
    counted: Callable[[], Sequence[Counted]] = tuple
    correlated: Callable[[], Sequence[Correlated]] = tuple
    fitted: Callable[[], Sequence[float]] = tuple


@dataclass(frozen=True, slots=True)
class TableResult:
    """A table's rows beside their predictions, its other answers, and the errors of the fitted rows."""

    table: JudgedTable
    rows: Sequence[JudgedRow]
    counted: Sequence[Counted]
    correlated: Sequence[Correlated]
    fitted: ErrorSummary


def result(table: JudgedTable) -> TableResult:
    """Predict a table."""
    return TableResult(table, table.judged(), table.counted(), table.correlated(), summarize(table.fitted()))


@dataclass(frozen=True, slots=True)
class Score:
    """The errors of a group's rows, and those of each simple rule on the same rows."""

    group: str
    name: str
    series: int
    errors: ErrorSummary
    rules: Mapping[str, ErrorSummary]


def score(group: str, name: str, rows: Sequence[JudgedRow]) -> Score:
    """Summarize rows; a rule counts if it applies to half of them."""
    by_rule: dict[str, list[float]] = {}
    for row in rows:
        for rule, value in (row.baselines or {NAIVE: row.rule}).items():
            by_rule.setdefault(rule, []).append(value / row.measured - 1)
    known = {rule: [one for one in errors if math.isfinite(one)] for rule, errors in by_rule.items()}
    return Score(
        group,
        name,
        len({row.series for row in rows}),
        summarize(
            [row.error for row in rows],
            [row.low <= row.measured <= row.high for row in rows if math.isfinite(row.low)],
        ),
        {rule: summarize(errors if 2 * len(errors) >= len(rows) else []) for rule, errors in known.items()},
    )


def scores(table: str, rows: Sequence[JudgedRow]) -> list[Score]:
    """Return the score of all rows of a table, then of each part if there are several."""
    parts = list(dict.fromkeys(row.part for row in rows))
    parted = [score(table, part, [row for row in rows if row.part == part]) for part in parts]
    return [score(table, "", rows), *parted] if len(parts) > 1 else parted


def lines(judged: TableResult) -> list[str]:
    """Return the rows as text, with their medians and 90th percentiles."""
    table, rows = judged.table, judged.rows
    heads = f"{'published':>12} {'predicted':>12} {'off':>7} {'naive':>7}"
    shown = [f"{table.title}; naive: {table.rule}", f"  {'':60} {heads}"]
    for row in rows:
        numbers = f"{row.measured:>10.4g} {table.unit} {row.predicted:>10.4g} {table.unit}"
        what = f"{row.series} {row.what}"
        shown.append(f"  {what:60} {numbers} {row.error:>+7.1%} {row.rule_error:>+7.1%}")
    for one in scores(table.name, rows):
        name, errors, naive = f"{one.name or 'all'}, {one.errors.rows} rows", one.errors, one.rules[NAIVE]
        shown += [
            f"  {f'median of {name}':60} {'':>12} {'':>12} {errors.median:>7.1%} {naive.median:>7.1%}",
            f"  {f'90th percentile of {name}':60} {'':>12} {'':>12} {errors.p90:>7.1%} {naive.p90:>7.1%}",
        ]
    shown += [f"  {one.question}: {one.right} of {one.of}" for one in judged.counted]
    return shown + [
        f"  Spearman's correlation of {one.what}: {one.spearman:.3f}" for one in table.correlated()
    ]
