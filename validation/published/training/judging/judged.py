"""What was published beside what is predicted for it, and a naive rule beside both."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple


class Judged(NamedTuple):
    """One row that set nothing: what was measured, what is predicted, and what the naive rule says.

    ``series`` are the rows whose compute one row sets, ``what`` says which of them this is, and ``part``
    which part of a table whose rows are summed up in parts. The three numbers are in the table's unit;
    ``rule`` is NaN where the rule says nothing.
    """

    series: str
    what: str
    measured: float
    predicted: float
    rule: float
    part: str = ""

    @property
    def error(self) -> float:
        """By which share the prediction is off, with its sign."""
        return error(self.predicted, self.measured)

    @property
    def rule_error(self) -> float:
        """The same of the naive rule."""
        return error(self.rule, self.measured)


class Counted(NamedTuple):
    """A question with right and wrong answers: how many of ``of`` came out right, and by the naive rule.

    ``by_rule`` is None where the rule has no answer.
    """

    question: str
    right: int
    of: int
    by_rule: int | None = None


class Correlated(NamedTuple):
    """Spearman's correlation between an order as measured and as predicted, 1 where they are the same.

    ``by_rule`` is the naive rule's, None where it has no order.
    """

    what: str
    spearman: float
    by_rule: float | None = None


@dataclass(frozen=True, slots=True)
class TrainingTable:
    """A published table, as a module of this package names it ``TABLE``: it is found by that.

    ``sets`` says what of it sets the pace of what is computed, and ``rule`` what the naive rule is;
    ``judged`` predicts all rows that set nothing, ``counted`` answers what is no number, and ``correlated``
    says how alike orders are.
    """

    name: str
    title: str
    source: str
    sets: str
    rule: str
    judged: Callable[[], Sequence[Judged]]
    unit: str = "s"
    counted: Callable[[], Sequence[Counted]] = tuple
    correlated: Callable[[], Sequence[Correlated]] = tuple


@dataclass(frozen=True, slots=True)
class Score:
    """Errors over some rows, the naive rule's beside the model's; NaN where the rule says nothing of any.

    ``bias`` is the median of the model's errors with their signs.
    """

    table: str
    part: str
    rows: int
    series: int
    median: float
    p90: float
    worst: float
    bias: float
    rule_median: float
    rule_p90: float


def error(found: float, measured: float) -> float:
    """Return the relative error of a number."""
    return found / measured - 1


def score(table: str, part: str, rows: Sequence[Judged]) -> Score:
    """Return the errors of these rows."""
    off = [abs(row.error) for row in rows]
    by_rule = [abs(row.rule_error) for row in rows if math.isfinite(row.rule)] or [math.nan]
    return Score(
        *(table, part, len(rows), len({row.series for row in rows})),
        *(median(off), p90(off), max(off), median(row.error for row in rows)),
        *(median(by_rule), p90(by_rule)),
    )


def scores(table: str, rows: Sequence[Judged]) -> list[Score]:
    """Return the errors of all rows, then of each part if there are several."""
    parts = list(dict.fromkeys(row.part for row in rows))
    parted = [score(table, part, [row for row in rows if row.part == part]) for part in parts]
    return [score(table, "", rows), *parted] if len(parts) > 1 else parted


def p90(values: Sequence[float]) -> float:
    """Return the 90th percentile, interpolated between two values."""
    ordered = sorted(values)
    place = 0.9 * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def lines(table: TrainingTable, rows: Sequence[Judged]) -> list[str]:
    """Return the rows as text, with their medians and 90th percentiles."""
    heads = f"{'published':>12} {'predicted':>12} {'off':>7} {'naive':>7}"
    found = [f"{table.title}; naive: {table.rule}", f"  {'':60} {heads}"]
    for row in rows:
        numbers = f"{row.measured:>10.4g} {table.unit} {row.predicted:>10.4g} {table.unit}"
        what = f"{row.series} {row.what}"
        found.append(f"  {what:60} {numbers} {row.error:>+7.1%} {row.rule_error:>+7.1%}")
    for one in scores(table.name, rows):
        name = f"{one.part or 'all'}, {one.rows} rows"
        found += [
            f"  {f'median of {name}':60} {'':>12} {'':>12} {one.median:>7.1%} {one.rule_median:>7.1%}",
            f"  {f'90th percentile of {name}':60} {'':>12} {'':>12} {one.p90:>7.1%} {one.rule_p90:>7.1%}",
        ]
    asked = [f"  {one.question}: {one.right} of {one.of}" for one in table.counted()]
    alike = [f"  Spearman's correlation of {one.what}: {one.spearman:.3f}" for one in table.correlated()]
    return [*found, *asked, *alike]
