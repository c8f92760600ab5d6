"""Errors of predictions on published rows that they did not use."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from ringside.sim.questions.answer import AnswerOnDemand
from ringside.sim.questions.question import Question, QuestionError, argument, option
from ringside.topologies.names import one_of

if TYPE_CHECKING:  # help must not wait for scipy and simulations
    from ringside.validation.scorecard.absolute import AbsoluteScores
    from ringside.validation.scorecard.collectives import SiteScore
    from ringside.validation.scorecard.explained import LogScore
    from ringside.validation.scorecard.judged import JudgedTable, Score, TableResult
    from ringside.validation.scorecard.memory import MemoryScores

COLLECTIVES, TRAINING, MPI, MEMORY = "collectives", "training", "mpi", "memory"
EXPERTS = "experts"
SCORECARDS = (COLLECTIVES, TRAINING, MPI, MEMORY, EXPERTS)


def _scorecard(text: str) -> str:
    if text not in SCORECARDS:
        raise QuestionError(f"unknown scorecard {text!r}; write {one_of(SCORECARDS, text)}")
    return text


@dataclass(frozen=True, kw_only=True)
class Scorecard(Question):
    """Errors of NCCL's, MPI's and experts' times, of training steps and their memory, on published rows."""

    schema: ClassVar[str] = "scorecard"

    what: str = argument(
        "The kind of predictions to score.",
        metavar="|".join(SCORECARDS),
        default=COLLECTIVES,
        parse=_scorecard,
    )
    table: Sequence[str] = option(
        "Only this table of training; repeat for more.", metavar="NAME", factory=tuple, repeats=True
    )
    absolute: bool = option("Predict steps of training from no measured row.", default=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("table", "absolute") if self.what != TRAINING else ():
            if getattr(self, name):
                raise QuestionError(f"`{name}` needs training; write training, or leave it out")

    @cached_property
    def judged(self) -> "Sequence[JudgedTable]":
        """The tables of rows to judge, with their predictions."""
        if self.what == TRAINING:
            from ringside.validation.scorecard.training import training_tables

            return training_tables(self.table, absolute=self.absolute)
        if self.what == MPI:
            from ringside.validation.scorecard.mpi import mpi_tables

            return mpi_tables()
        if self.what == EXPERTS:
            from ringside.validation.scorecard.experts import expert_tables

            return expert_tables()
        from ringside.validation.scorecard.collectives import collective_tables

        return collective_tables()

    @property
    def parts(self) -> list[str]:
        """The names with which `ask` calls ``done``."""
        if self.what == MEMORY:
            from ringside.validation.scorecard.memory import memory_parts

            return memory_parts()
        return [table.name for table in self.judged]

    def ask(self, done: Callable[[str], object] = lambda _: None) -> "ScorecardAnswer":
        """Predict every table; ``done`` is called with the name of each of the ``parts``."""
        if self.what == MEMORY:
            from ringside.validation.scorecard.memory import memory_scores

            memory = memory_scores(done)
            return ScorecardAnswer(self, (), [one.score for one in memory.scores], memory=memory)
        from ringside.validation.published import published
        from ringside.validation.scorecard.collectives import collective_scores, site_scores
        from ringside.validation.scorecard.explained import log_score
        from ringside.validation.scorecard.judged import result, scores

        if self.absolute:
            return self._ask_absolute(done)
        results = []
        for table in self.judged:
            results.append(result(table))
            done(table.name)
        if self.what == COLLECTIVES:
            rows = [row for one in results for row in one.rows]
            logs = log_score(published())
            return ScorecardAnswer(self, results, collective_scores(rows), site_scores(rows), logs)
        scored = [score for one in results if one.rows for score in scores(one.table.name, one.rows)]
        return ScorecardAnswer(self, results, scored)

    def _ask_absolute(self, done: Callable[[str], object]) -> "ScorecardAnswer":
        from ringside.validation.scorecard.absolute import absolute_scores
        from ringside.validation.scorecard.judged import JudgedRow

        rows: list[JudgedRow] = []
        for table in self.judged:
            rows += table.absolute()
            done(table.name)
        scored = absolute_scores(rows)
        return ScorecardAnswer(self, (), scored.scores, absolute=scored)


@dataclass(frozen=True, slots=True)
class ScorecardAnswer(AnswerOnDemand):
    """The answer: each table beside its predictions, and the scores of all groups of rows.

    ``sites`` are scores that count each site once, ``logs`` the judgements of `explain`; both of collectives
    only. ``absolute`` are the scores of trainings with nothing known, ``memory`` those of their peaks, in
    place of tables.
    """

    question: Scorecard
    results: "Sequence[TableResult]"
    scores: "Sequence[Score]"
    sites: "Sequence[SiteScore]" = ()
    logs: "LogScore | None" = None
    absolute: "AbsoluteScores | None" = None
    memory: "MemoryScores | None" = None

    @property
    def judged(self) -> int:
        """The number of rows judged."""
        if scored := self.absolute or self.memory:
            return len(scored.rows)
        return sum(len(one.rows) for one in self.results)

    @property
    def headline(self) -> str:
        """The median error of all rows, or those of the best and worst group."""
        scores = self.scores
        if not scores:
            return "no row is judged: these tables have none"
        best, worst = (pick(scores, key=lambda score: score.errors.median) for pick in (min, max))
        if len(scores) == 1:
            return f"median error {best.errors.median:.1%} over {self.judged:,} rows of {label(best)}"
        return (
            f"median errors of {best.errors.median:.1%} ({label(best)}) to {worst.errors.median:.1%} "
            f"({label(worst)}) over {self.judged:,} held-out rows"
        )

    @property
    def inputs(self) -> dict[str, Any]:
        """The question as understood."""
        return self.question.inputs()

    @property
    def notes(self) -> Sequence[str]:
        """None: each table says what it is."""
        return ()

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The errors of each group of rows."""
        names = ("rows", "median", "p90", "worst", "bias", "inside")
        return [
            {"group": one.group, "name": one.name, **{name: getattr(one.errors, name) for name in names}}
            for one in self.scores
        ]

    @property
    def content(self) -> dict[str, Any]:
        """Everything, in plain values; None if a rule does not apply."""
        if self.question.what == COLLECTIVES:
            rows = [_plain_group(score) for score in self.scores]
            sites = [_finite(asdict(site)) for site in self.sites]
            return {"rows": rows, "sites": sites} | ({"logs": asdict(self.logs)} if self.logs else {})
        if self.absolute:
            return _plain_absolute(self.absolute)
        if self.memory:
            return _plain_memory(self.memory)
        return {"tables": [self._plain_table(one) for one in self.results]}

    def _plain_table(self, one: "TableResult") -> dict[str, Any]:
        table = one.table
        content: dict[str, Any] = {
            **{name: getattr(table, name) for name in ("name", "title", "source", "sets", "rule", "unit")},
            "scores": [_plain_score(score) for score in self.scores if score.group == table.name],
            "rows": [_plain_row(row) for row in one.rows],
            "counted": [asdict(count) for count in one.counted],
            "correlated": [asdict(correlation) for correlation in one.correlated],
        }
        return content | ({"fitted": _finite(asdict(one.fitted))} if one.fitted.rows else {})


def label(score: "Score") -> str:
    """Return a group's name."""
    return f"{score.group} {score.name}".rstrip()


def _plain_group(score: "Score") -> dict[str, Any]:
    errors = score.errors
    return {
        "group": score.group,
        "name": score.name,
        **{name: getattr(errors, name) for name in ("rows", "median", "p90", "inside")},
        "baselines": _finite({rule: one.median for rule, one in score.rules.items()}),
    }


def _plain_score(score: "Score") -> dict[str, Any]:
    (rule,) = score.rules.values()
    errors = {name: getattr(score.errors, name) for name in ("median", "p90", "worst", "bias")}
    sizes = {"table": score.group, "part": score.name, "rows": score.errors.rows, "series": score.series}
    return _finite({**sizes, **errors, "rule_median": rule.median, "rule_p90": rule.p90})


def _plain_absolute(scored: "AbsoluteScores") -> dict[str, Any]:
    spread = scored.deviations
    return {
        "scores": [_plain_group_alone(score) for score in scored.scores],
        "left_out": _plain_group_alone(scored.left_out),
        "once": _finite(dict(zip(("median", "p90", "bias"), scored.once, strict=True))),
        "deviations": _finite({"between": spread.between, "within": spread.within}),
        "alike": [
            {"stack": stack, "gpu": gpu, "sources": sources, "squares": squares}
            for (stack, gpu), (sources, squares) in spread.alike.items()
        ],
        "half_width": spread.half_width,
        "factors": dict(spread.factors),
        "rows": [_plain_row_alone(row) for row in scored.rows],
        "shown": [_plain_row_alone(row) for row in scored.shown],
    }


def _plain_memory(scored: "MemoryScores") -> dict[str, Any]:
    names = ("series", "what", "measured", "predicted", "error")
    errors = ("rows", "median", "p90", "worst", "bias")
    return {
        "scores": [
            {
                **{name: getattr(one.score, name) for name in ("group", "name")},
                **{name: getattr(one.score.errors, name) for name in errors},
                "too_low": one.too_low,
            }
            for one in scored.scores
        ],
        "rows": [{**row.traits, **{name: getattr(row, name) for name in names}} for row in scored.rows],
        "cases": scored.cases,
        "judged": scored.judged,
        "refused": dict(scored.refused),
        "unmodelled": dict(scored.unmodelled),
    }


def _plain_group_alone(score: "Score") -> dict[str, Any]:
    names = ("rows", "median", "p90", "worst", "bias", "inside")
    own = {name: getattr(score.errors, name) for name in names}
    return _finite({"group": score.group, "name": score.name, **own})


def _plain_row_alone(row: Any) -> dict[str, Any]:
    names = ("what", "measured", "predicted", "low", "high", "error")
    return _finite({**row.traits, **{name: getattr(row, name) for name in names}})


def _plain_row(row: Any) -> dict[str, Any]:
    names = ("series", "what", "measured", "predicted", "rule", "part", "error", "rule_error")
    return _finite({name: getattr(row, name) for name in names})


def _finite(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in values.items()
    }
