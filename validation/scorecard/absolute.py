"""Published steps predicted from their questions alone: no measured row, no efficiency.

Residuals are ln(measured / predicted). Those of one source share a deviation, of which sources with the same
stack on the same GPU tell most (`ringside.sim.compute.doubt`). A row's interval goes by the other sources
alone, and so do the overheads of families of stacks with which rows are judged again.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from math import exp, log, nan, sqrt
from statistics import fmean, median

from ringside.sim.compute.doubt import BETWEEN, WITHIN, of_others, unnamed
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

    Four of five lie within the factor ``half_width``, each source weighing the same. Standard deviations are
    ``between`` sources and ``within`` one. ``alike`` has the number of sources of a stack and GPU, and the
    sum of the squares of their medians. ``factors`` are by how much a family's steps take longer than
    predicted.
    """

    half_width: float
    between: float
    within: float
    alike: Mapping[tuple[str, str], tuple[int, float]]
    factors: Mapping[str, float]

    def width(self, row: JudgedRow) -> float:
        """Return the factor from a prediction to either end of its 80 % interval, as another source."""
        stack, gpu = row.traits["stack"], row.traits["gpu"]
        factor = of_others(*self.alike.get((stack, gpu), (0, 0.0)), self.between, self.within)
        return unnamed(factor) if stack == NOT_NAMED else factor

    @property
    def known_half_width(self) -> float:
        """The half width where a row of the same source is known."""
        return exp(EIGHTY * self.within)


def deviations(rows: Iterable[JudgedRow]) -> Deviations:
    """Estimate deviations and factors; each source counts once, by medians, whatever its number of rows.

    Rows whose stack is not named tell nothing. Without any other row they are those that `train` uses.
    """
    by_source: dict[tuple[str, str], list[float]] = {}
    by_setup: dict[tuple[str, str], dict[str, list[float]]] = {}
    for row in (row for row in rows if row.traits["stack"] != NOT_NAMED):
        stack, gpu, source = (row.traits[trait] for trait in ("stack", "gpu", "source"))
        by_source.setdefault((family(row), source), []).append(residual(row))
        by_setup.setdefault((stack, gpu), {}).setdefault(source, []).append(residual(row))
    if not by_source:
        return Deviations(1.0, BETWEEN, WITHIN, {}, {})
    middles = {setup: [median(own) for own in sources.values()] for setup, sources in by_setup.items()}
    spreads = [
        ORDINARY * median(abs(one - median(own)) for one in own)
        for sources in by_setup.values()
        for own in sources.values()
        if len(own) > 2
    ]
    return Deviations(
        half_width=covering(by_source.values()),
        between=ORDINARY * median(abs(one) for several in middles.values() for one in several),
        within=sqrt(fmean(spread**2 for spread in spreads)) if spreads else 0.0,
        alike={setup: (len(own), sum(one**2 for one in own)) for setup, own in sorted(middles.items())},
        factors={
            name: exp(median(median(own) for (of, _), own in by_source.items() if of == name))
            for name in dict.fromkeys(of for of, _ in by_source)
        },
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
    without = {
        source: deviations([row for row in judged if row.traits["source"] != source]) for source in sources
    }
    whole = deviations(judged)

    def with_interval(row: JudgedRow) -> JudgedRow:
        width = without.get(row.traits["source"], whole).width(row)
        return replace(row, low=row.predicted / width, high=row.predicted * width)

    def rescaled(row: JudgedRow) -> JudgedRow:
        scale = without[row.traits["source"]].factors.get(family(row), 1.0)
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
