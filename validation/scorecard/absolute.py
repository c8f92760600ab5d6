"""Published steps predicted from their questions alone: no measured row, no efficiency.

Residuals are ln(measured / predicted). Those of one source share a deviation, which has longer tails than a
normal distribution: so an interval is the factor that four of five rows lie within, each source weighing the
same (`covering`). A row's goes by the other sources alone, and so do the overheads of families of stacks with
which rows are judged again.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from math import exp, log, nan
from statistics import fmean, median

from ringside.sim.compute.doubt import NAMED, WITHIN, unnamed
from ringside.sim.libraries.gaussian import EIGHTY
from ringside.validation.questions.step_time import StepTime
from ringside.validation.scorecard.judged import JudgedRow, Score, score

FUSED, OTHERS = "te", "others"
"""Families of stacks that share an overhead: Megatron-core with TransformerEngine, and all others."""

SHOWN = "shown"
"""The part of rows that are shown beside the others and judge nothing."""

TRAITS = ("gpu", "stack", "precision", "source")
"""What rows are grouped by."""

NOT_NAMED = "not named"
"""The stack of rows whose software launches kernels that no stack of `train` has."""

ORDINARY = 1.4826
"""The standard deviation of a normal distribution over its median absolute deviation."""


def alone(
    source: str, what: str, step_s: float, predicted_s: float, question: StepTime, part: str = ""
) -> JudgedRow:
    """Return a row that its question alone predicts, with the traits that the question has."""
    traits = {
        "gpu": question.gpu.name,
        "stack": question.stack or NOT_NAMED,
        "precision": question.precision or "",
        "source": source,
    }
    return JudgedRow(source, what, step_s, predicted_s, part=part, traits=traits)


def residual(row: JudgedRow) -> float:
    """Return by how much the measurement exceeds the prediction, as a logarithm."""
    return log(row.measured / row.predicted)


def family(row: JudgedRow) -> str:
    """Return the family of the row's stack."""
    return FUSED if row.traits["stack"] == "te" else OTHERS


@dataclass(frozen=True, slots=True)
class Deviations:
    """What residuals of several sources tell.

    ``half_width`` is the factor from a prediction to either end of its 80 % interval. Standard deviations are
    ``between`` sources and ``within`` one. ``factors`` are by how much a family's steps take longer than
    predicted.
    """

    half_width: float
    between: float
    within: float
    factors: Mapping[str, float]

    @property
    def unnamed_half_width(self) -> float:
        """The half width where the stack is not named."""
        return unnamed(self.half_width)

    @property
    def known_half_width(self) -> float:
        """The half width where a row of the same source is known."""
        return exp(EIGHTY * self.within)


def deviations(rows: Iterable[JudgedRow]) -> Deviations:
    """Estimate deviations and factors; each source counts once, by medians, whatever its number of rows.

    Rows whose stack is not named tell nothing. Without any other row they are those that `train` uses.
    """
    by_source: dict[tuple[str, str], list[float]] = {}
    for row in (row for row in rows if row.traits["stack"] != NOT_NAMED):
        by_source.setdefault((family(row), row.traits["source"]), []).append(residual(row))
    if not by_source:
        return Deviations(NAMED, 0.0, WITHIN, {})
    middles = {key: median(own) for key, own in by_source.items()}
    shifts = {
        name: median(middle for (of, _), middle in middles.items() if of == name)
        for name in dict.fromkeys(of for of, _ in middles)
    }
    apart = [middle - shifts[of] for (of, _), middle in middles.items()]
    spreads = [
        ORDINARY * median(abs(one - middles[key]) for one in own)
        for key, own in by_source.items()
        if len(own) > 2
    ]
    return Deviations(
        half_width=covering(by_source.values()),
        between=ORDINARY * median(map(abs, apart)),
        within=fmean(spreads) if spreads else 0.0,
        factors={name: exp(shift) for name, shift in shifts.items()},
    )


def covering(sources: Iterable[Sequence[float]], share: float = 0.8) -> float:
    """Return the least factor within which lie a ``share`` of residuals, each source weighing the same."""
    weighed = sorted((abs(one), 1 / len(own)) for own in sources for one in own)
    sums = list(accumulate(weight for _, weight in weighed))
    return exp(weighed[bisect_left(sums, (share - 1e-9) * sums[-1])][0])


@dataclass(frozen=True, slots=True)
class AbsoluteScores:
    """Scores of rows with nothing known: all, by GPU, stack and precision together, and by each of `TRAITS`.

    ``once`` are the medians over sources of their median, 90th percentile and bias.

    ``left_out`` has the predictions scaled by the factors of the other sources, ``deviations`` is of all
    rows; ``shown`` rows judge nothing. Every row has its interval.
    """

    scores: Sequence[Score]
    left_out: Score
    once: tuple[float, float, float]
    deviations: Deviations
    rows: Sequence[JudgedRow]
    shown: Sequence[JudgedRow]


def absolute_scores(rows: Sequence[JudgedRow]) -> AbsoluteScores:
    """Score rows, each with the interval that the other sources give it."""
    judged = [row for row in rows if row.part != SHOWN]
    sources = dict.fromkeys(row.traits["source"] for row in judged)
    of_others = {
        source: deviations([row for row in judged if row.traits["source"] != source]) for source in sources
    }
    whole = deviations(judged)

    def with_interval(row: JudgedRow) -> JudgedRow:
        by = of_others.get(row.traits["source"], whole)
        width = by.unnamed_half_width if row.traits["stack"] == NOT_NAMED else by.half_width
        return replace(row, low=row.predicted / width, high=row.predicted * width)

    def rescaled(row: JudgedRow) -> JudgedRow:
        scale = of_others[row.traits["source"]].factors.get(family(row), 1.0)
        return replace(row, predicted=row.predicted * scale, low=row.low * scale, high=row.high * scale)

    def scored(group: str, name: str, some: Sequence[JudgedRow]) -> Score:
        return replace(score(group, name, some), rules={})

    judged = [with_interval(row) for row in judged]
    groups = [
        scored(" ".join(traits), name, [row for row in judged if _name(row, traits) == name])
        for traits in (("gpu", "stack", "precision"), *((trait,) for trait in TRAITS))
        for name in sorted({_name(row, traits) for row in judged})
    ]
    errors = [group.errors for group in groups if group.group == "source"]
    return AbsoluteScores(
        scores=[scored("all", "", judged), *groups],
        left_out=scored("all", "factors by other sources", [rescaled(row) for row in judged]),
        once=(
            median(one.median for one in errors),
            median(one.p90 for one in errors),
            median(one.bias for one in errors),
        )
        if errors
        else (nan, nan, nan),
        deviations=whole,
        rows=judged,
        shown=[with_interval(row) for row in rows if row.part == SHOWN],
    )


def _name(row: JudgedRow, traits: Sequence[str]) -> str:
    return " ".join(row.traits[trait] for trait in traits)
