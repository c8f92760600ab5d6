"""Why collectives are slow: the cause that fits a log, and the node or link that pairs of nodes show."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from ringside.sim.calibration import AUTO, Calibration, find_calibration, shipped, why_not
from ringside.sim.libraries.nccl.library import Nccl
from ringside.sim.questions.answer import AnswerOnDemand
from ringside.sim.questions.fields import files_argument
from ringside.sim.questions.question import Question, option
from ringside.sim.record import RecordError
from ringside.topologies.catalogue import split
from ringside.topologies.load import parse_name
from ringside.validation.explain.nccl import NcclFamily
from ringside.validation.explain.schedules import ScheduleFamily
from ringside.validation.explain.story import lines, row_of, sentence
from ringside.validation.explain.verdict import Family, LogVerdict, judge
from ringside.validation.measurements import Measurements
from ringside.validation.pairs import PairsVerdict, judge_files
from ringside.validation.questions.comparison import ByCalibration


@dataclass(frozen=True, kw_only=True)
class Explanation(ByCalibration):
    """Why a log's bus bandwidth is low: which cause fits its rows, and what to try."""

    schema: ClassVar[str] = "explain"

    def ask(self) -> "Explained":
        """Try every cause; raise RecordError without measurements to compare with."""
        return explained(self.measured(), self.calibration)


def explained(measured: Measurements, given: str | Calibration | None) -> "Explained":
    """Try every cause on measurements, as `Explanation.ask`, with the calibration that a question gives."""
    records, cluster, settings = measured.records, measured.cluster, measured.settings
    machine = parse_name(cluster).machine
    calibration = find_calibration(given, cluster)
    calibration = shipped(machine) if calibration == AUTO else calibration
    if not isinstance(calibration, Calibration):
        raise RecordError(f"no calibration to compare the log with: {why_not(machine)}; write `calibration`")
    family: Family
    if calibration.nccl and any(record.library == Nccl.name for record in records):
        fitted = calibration.settings_on(cluster)
        family = NcclFamily(measured.ran, split(cluster)[0], settings, calibration.nccl.model, fitted)
    else:
        family = ScheduleFamily(measured.ran, cluster, settings, calibration)
    described = (
        calibration.nccl.described if calibration.nccl else f"the calibration of {calibration.cluster}"
    )
    return Explained(measured, judge(family), described)


@dataclass(frozen=True, slots=True)
class Explained(AnswerOnDemand):
    """The answer: the verdict on the log, and the measurements of ``family`` for comparison."""

    measured: Measurements
    verdict: LogVerdict
    family: str

    @property
    def headline(self) -> str:
        """Whether the log is slower than similar machines, and the likeliest cause."""
        first, *_ = lines(self.verdict)
        if not self.verdict.named:
            return first
        causes = " or ".join(map(sentence, self.verdict.named))
        return f"{first}; {'cause' if self.verdict.clear else 'perhaps'}: {causes}"

    @property
    def grounds(self) -> str:
        """The machine, and those for comparison."""
        return f"machine: {self.measured.cluster}, {self.measured.source}; similar machines: {self.family}"

    @property
    def doubts(self) -> list[str]:
        """What leaves the verdict in doubt."""
        verdict, doubts = self.verdict, [self.measured.warning] if self.measured.warning else []
        if verdict.extrapolated:
            doubts.append(f"{verdict.extrapolated} of {len(verdict.records)} rows are extrapolated")
        return doubts

    @property
    def inputs(self) -> dict[str, Any]:
        """The cluster that the log was compared as."""
        return {"cluster": self.measured.cluster}

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row for each one that was compared: seconds, bytes/s."""
        return [row_of(self.verdict, place) for place in range(len(self.verdict.records))]

    @property
    def notes(self) -> Sequence[str]:
        """The network by the log, and requests that NCCL could not follow, a sentence each."""
        return [note for note in (self.measured.network, *self.measured.fallbacks) if note]


@dataclass(frozen=True, kw_only=True)
class SlowNodes(Question):
    """Which node or link is slow, from a measurement between every two nodes."""

    schema: ClassVar[str] = "pairs"

    files: Sequence[Path] = files_argument(
        "nccl-tests logs of two nodes each, folders of them, or a CSV table.", metavar="LOGS"
    )
    ranks: int = option("Ranks of a run on both nodes, if missing in a file.", "-g", "--ranks", default=2)

    def ask(self) -> PairsVerdict:
        """Judge the measurements; raise `ringside.sim.record.RecordError` if no pair was measured."""
        return judge_files(list(self.files), self.ranks)
