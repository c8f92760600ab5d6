"""The bus bandwidth that a healthy cluster shows, with its floors; and logs that are held against them."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from ringside.sim.collective import kind_of
from ringside.sim.libraries.library import Prediction
from ringside.sim.questions.answer import Answer
from ringside.sim.questions.calibrated import Anchor, anchor_option
from ringside.sim.questions.collective_time import CollectiveTime, CollectiveTimes
from ringside.sim.questions.fields import ByLibrary, OfType, parse_paths
from ringside.sim.questions.question import BySize, Question, QuestionError, argument, option, parse_counts
from ringside.sim.record import RecordError
from ringside.topologies.units import format_size, parse_share, parse_size
from ringside.validation.explain.story import sentence
from ringside.validation.explain.verdict import CauseFit, LogVerdict
from ringside.validation.floors import (
    LARGE,
    SMALL,
    FlooredRow,
    RunVerdict,
    floored,
    own_times,
    slack,
    verdicts,
)
from ringside.validation.measurements import Measurements
from ringside.validation.questions.comparison import ByCalibration, Comparison, ComparisonAnswer
from ringside.validation.questions.explanation import explained
from ringside.validation.readers import read_all

LIKELY = 3
"""The number of causes that are listed where none is certain."""


@dataclass(frozen=True, kw_only=True)
class WithFloors(Question):
    """A question whose answer has floors."""

    false_alarms: float = option(
        "Healthy logs that may lie below the floors.", metavar="PERCENT", default="2%", parse=parse_share
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.false_alarms < 0.5:
            raise QuestionError(f"`false_alarms` {self.false_alarms:.4g}; write a share such as 2%")


@dataclass(frozen=True, kw_only=True)
class HealthyBandwidth(WithFloors, BySize, OfType, ByLibrary):
    """The bus bandwidth that a healthy cluster shows at each node count and size, and its floor."""

    schema: ClassVar[str] = "expect"

    collective: str = argument("all_reduce, all_gather, reduce_scatter, ...", parse=kind_of)
    nodes: tuple[int, ...] | None = option(
        "Counts of machines, or of ranks: a row for each.",
        metavar="N,N,...", default=None, parse=parse_counts, minimum=1,
    )  # fmt: skip
    begin: int = option(
        "Smallest size.", "-b", "--begin", metavar="SIZE", default="1M", parse=parse_size, minimum=0
    )
    end: int = option(
        "Largest size.", "-e", "--end", metavar="SIZE", default="8G", parse=parse_size, minimum=0
    )

    def ask(self) -> "HealthyBandwidths":
        """Predict each size; raise QuestionError where no interval is known."""
        shared = {one.name for one in fields(CollectiveTime)} & {one.name for one in fields(self)}
        given = {name: getattr(self, name) for name in shared - {"sizes"}}
        if self.size is not None:  # a list and a series exclude each other
            given = {name: value for name, value in given.items() if name not in ("begin", "end", "factor")}
        return HealthyBandwidths(self, CollectiveTime(**given).ask())


@dataclass(frozen=True)
class HealthyBandwidths(Answer):
    """The answer: a row for each prediction."""

    question: HealthyBandwidth
    times: CollectiveTimes

    def __post_init__(self) -> None:
        if not any(_has_interval(one) for one in self.times.predictions):
            raise QuestionError(
                f"no measurements say how much times on {self.question.cluster} vary; write a `calibration` "
                "of your own, or a named machine with measured times (ringside topo lists them)"
            )

    @property
    def inputs(self) -> dict[str, Any]:
        """The question as understood."""
        return {**self.times.inputs, "false_alarms": self.question.false_alarms}

    @property
    def headline(self) -> str:
        """The largest bus bandwidth, and its floor."""
        question = self.question
        best = max(self.rows, key=lambda row: float(row["expected_busbw"]))
        floor = "-" if best["floor_busbw"] is None else f"{best['floor_busbw'] / 1e9:.4g} GB/s"
        return (
            f"a healthy {question.cluster} reaches {best['expected_busbw'] / 1e9:.4g} GB/s of bus bandwidth "
            f"in {question.collective} of {format_size(best['size_bytes'])}; floor {floor}, below which "
            f"{question.false_alarms:.1%} of healthy runs lie"
        )

    @property
    def rests_on(self) -> Sequence[str]:
        """What the times rest on, and their caveats."""
        return self.times.rests_on

    @property
    def notes(self) -> Sequence[str]:
        """What the times rest on, and caveats, a sentence each."""
        return [note for note in (self.times.basis, *self.times.notes) if note]

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """A row for each prediction: bytes/s; the floor is None without an interval."""
        return [
            {
                "num_nodes": count,
                "size_bytes": one.collective.nbytes,
                "expected_busbw": one.busbw,
                "floor_busbw": self._floor(one),
                "algorithm": one.algorithm,
                "protocol": one.protocol,
            }
            for count, predicted in self.times.by_nodes.items()
            for one in predicted.predictions
        ]

    def _floor(self, one: Prediction) -> float | None:
        if not _has_interval(one):
            return None
        return one.busbw / slack(one.time_s, one.time_hi_s, self.question.false_alarms)


def _has_interval(one: Prediction) -> bool:
    return one.time_hi_s > one.time_s


@dataclass(frozen=True, kw_only=True)
class HealthGate(WithFloors, ByCalibration):
    """Whether logs reach the bus bandwidth of a healthy machine; if not, the likely causes."""

    schema: ClassVar[str] = "expect-gate"

    files: Sequence[Path] = option(
        "Logs to hold against the floors; exit 1 below them.",
        "--gate", "--files", metavar="LOG", parse=parse_paths, repeats=True,
    )  # fmt: skip
    anchor: Anchor | None = anchor_option()

    def ask(self) -> "HealthVerdict":
        """Judge every run; raise RecordError for logs that say nothing about health."""
        compared = Comparison(
            files=self.files, cluster=self.cluster, settings=self.settings, calibration=self.calibration,
            anchor=self.anchor,
        ).ask()  # fmt: skip
        own = own_times(read_all([self.anchor.path]).records) if self.anchor else {}
        rows = floored(compared.comparisons.compared, self.false_alarms, own)
        runs = verdicts(rows)
        if all(row.floor is None for row in rows):
            raise RecordError(
                f"no measurements say how much times on {compared.measured.cluster} vary; write a "
                "`calibration` of your own"
            )
        if not runs:
            raise RecordError(
                f"no row of {format_size(LARGE)} or more, or of {format_size(SMALL)} or less: nothing "
                "says whether the machine is healthy; measure such sizes"
            )
        return HealthVerdict(self, compared, rows, runs)


@dataclass(frozen=True)
class HealthVerdict(Answer):
    """The answer: each row beside its floor, and the verdict on each run."""

    question: HealthGate
    compared: ComparisonAnswer
    floored: Sequence[FlooredRow]
    runs: Sequence[RunVerdict]

    @property
    def measured(self) -> Measurements:
        """The measurements of the logs."""
        return self.compared.measured

    @property
    def is_healthy(self) -> bool:
        """Whether every run reaches its floors."""
        return not any(run.below for run in self.runs)

    @cached_property
    def explained(self) -> LogVerdict | None:
        """The verdict of `explain` on logs below the floors; None for healthy or unsuitable logs."""
        if self.is_healthy:
            return None
        try:
            return explained(self.measured, self.compared.calibration).verdict
        except RecordError:  # sends, broadcasts: it tries its causes on other collectives alone
            return None

    @property
    def is_certain(self) -> bool:
        """Whether the rows tell a cause apart from the variation of similar machines."""
        return self.explained is not None and bool(self.explained.named)

    @property
    def causes(self) -> Sequence[CauseFit]:
        """The causes that explain the rows, likeliest first; the best of those tried where none does."""
        if self.explained is None:
            return []
        tried = [one for one in self.explained.tried if one.left < self.explained.left]
        return self.explained.named or tried[:LIKELY]

    @property
    def inputs(self) -> dict[str, Any]:
        """The question as understood."""
        return self.question.inputs() | {"cluster": self.compared.measured.cluster}

    @property
    def headline(self) -> str:
        """Whether the logs are healthy; if not how slow they are, and the likeliest cause."""
        if self.is_healthy:
            rate = f"{self.question.false_alarms:.1%} of healthy runs do not"
            return f"healthy: every run reaches its floors ({rate})"
        worst = max((run for run in self.runs if run.below), key=lambda run: run.slower)
        cause = "no single known cause explains it"
        if self.causes:
            likely = "cause" if self.is_certain else "perhaps, because similar machines vary as much"
            cause = f"{likely}: {sentence(self.causes[0])}"
        return f"{_below(worst)}; {cause}"

    @property
    def findings(self) -> list[str]:
        """The runs below their floors, and their causes with what decides them, a sentence each."""
        lines = [_below(run) for run in self.runs if run.below]
        likely = "cause" if self.is_certain else "perhaps, because similar machines vary as much"
        for one in self.causes:
            lines += [f"{likely}: {sentence(one)}", f"  to decide: {one.cause.settle}"]
            likely = "or"
        return lines

    @property
    def rests_on(self) -> Sequence[str]:
        """What the floors rest on, and what leaves the verdict in doubt."""
        return self.compared.rests_on

    @property
    def notes(self) -> Sequence[str]:
        """The evidence for the machine, and what the floors rest on, a sentence each."""
        return self.compared.notes

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row for each record: seconds and bytes/s."""
        return [
            {
                "size_bytes": row.record.nbytes,
                "num_nodes": row.record.num_nodes or None,
                "ranks": row.record.ranks,
                "collective": row.record.collective,
                "measured_busbw": row.record.busbw,
                "expected_busbw": row.expected,
                "floor_busbw": row.floor,
                "below": row.is_below,
                "decides": row.decides,
            }
            for row in self.floored
        ]


def _below(run: RunVerdict) -> str:
    sizes = sorted(row.record.nbytes for row in run.below)
    return (
        f"below the floor: {run.record.collective} on {run.record.ranks} ranks takes {run.slower:.2f}x as "
        f"long as expected in {len(run.below)} of {len(run.rows)} rows, {format_size(sizes[0])} to "
        f"{format_size(sizes[-1])}"
    )
