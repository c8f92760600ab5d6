"""The communication time of a profiled job by cause, and its time on another cluster."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from ringside.sim.calibration import Calibration, find_calibration
from ringside.sim.questions.answer import AnswerOnDemand
from ringside.sim.questions.calibrated import calibration_option
from ringside.sim.questions.fields import (
    files_argument,
    library_option,
    network_option,
    placement_option,
)
from ringside.sim.questions.question import Question, QuestionError, option, settings_option
from ringside.validation.readers.kineto import RankTrace, Traced, read_traces
from ringside.validation.traces.analysis import Analysis, CollectiveRow, RankRow, analyse
from ringside.validation.traces.headlines import doubts_of, headline_of
from ringside.validation.traces.replay import Replay, TraceReplay, predicted, what_if


@dataclass(frozen=True, kw_only=True)
class JobProfile(Question):
    """Collectives, skew and transfer in traces of PyTorch's profiler, replayed on a ``cluster`` if given."""

    schema: ClassVar[str] = "trace"

    files: Sequence[Path] = files_argument(
        "Traces of PyTorch's profiler: .json, .json.gz, .tar.gz, folders.", metavar="FILE..."
    )
    cluster: str | None = option(
        "Replay it here. See ringside topo.", metavar="NAME[:COUNT]|FILE", default=None
    )
    settings: Mapping[str, str] = settings_option()
    library: str | None = library_option()
    placement: str = placement_option()
    network: str = network_option()
    calibration: str | Calibration | None = calibration_option()

    def __post_init__(self) -> None:
        super().__post_init__()
        lost = self.changed("settings", "library", "placement", "network", "calibration")
        if lost and self.cluster is None:
            names = ", ".join(f"`{name}`" for name in lost)
            raise QuestionError(f"{names} has no effect without a cluster; add `cluster` NAME, or remove it")

    def ask(self, *, is_replayed: bool = False) -> "ProfiledJob":
        """Read and analyse the traces; replay them if they are timed, or ``is_replayed``.

        Raise `ringside.validation.readers.kineto.TraceError` if they contain nothing to replay.
        """
        given = self.calibration
        calibration = (
            find_calibration(given, self.cluster) if self.cluster and isinstance(given, str) else given
        )
        analysis = analyse(read_traces(self.files))
        timed = any(one.end_s is not None for trace in analysis.traces for one in trace.collectives)
        replays = None
        if timed or self.cluster or is_replayed:
            replays = what_if(
                analysis, self.cluster, self.library, self.settings, self.network, calibration,
                self.placement,
            )  # fmt: skip
        return ProfiledJob(self, analysis, replays)


@dataclass(frozen=True, slots=True)
class ProfiledJob(AnswerOnDemand):
    """The answer: the analysis of the traces, and their replays; docs/traces.md describes ``content``."""

    question: JobProfile
    analysis: Analysis
    replays: TraceReplay | None

    @property
    def headline(self) -> str:
        """The replayed step on another cluster, else the share of communication."""
        return headline_of(self.analysis, self.replays)

    @property
    def doubts(self) -> list[str]:
        """What the traces lack."""
        return [*self.notes, *(doubts_of(self.replays) if self.replays else [])]

    @property
    def inputs(self) -> dict[str, Any]:
        """The question as understood."""
        return self.question.inputs()

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row for each kind, size and group of collectives."""
        return [_row(row, self.replays) for row in self.analysis.rows]

    @property
    def notes(self) -> list[str]:
        """What the traces lack, a sentence each."""
        return list(dict.fromkeys(note for trace in self.analysis.traces for note in trace.notes))

    @property
    def content(self) -> dict[str, Any]:
        """Traces, rows, ranks and replays in plain values."""
        analysis, replays = self.analysis, self.replays
        clocks, matched = analysis.clocks, analysis.matched
        return {
            "traces": [_trace(trace) for trace in analysis.traces],
            "rows": self.rows,
            "ranks": [_rank(row) for row in analysis.ranks],
            "clocks": clocks and {
                "shift_s": {str(rank): by for rank, by in clocks.shift_s.items()},
                "moved_s": clocks.moved_s, "residual_s": clocks.residual_s, "collectives": clocks.used,
            },
            "transfer_disagreement": analysis.disagreement,
            "mismatches": matched.mismatches if matched else [],
            "without_partner": matched.alone if matched else None,
            "replay": replays and _replays(replays),
        }  # fmt: skip


def _trace(trace: RankTrace) -> dict[str, Any]:
    return {
        "file": str(trace.path), "rank": trace.rank, "ranks": trace.ranks, "backend": trace.backend,
        "library_version": trace.library_version, "gpu": trace.gpu, "origin_ns": trace.origin_ns,
        "steps": [{"name": step.name, "begin_s": step.begin_s, "end_s": step.end_s} for step in trace.steps],
        "notes": list(trace.notes),
        "collectives": [_one(one) for one in trace.collectives],
    }  # fmt: skip


def _one(one: Traced) -> dict[str, Any]:
    fields = asdict(one)
    del fields["group"]
    return {
        **fields, "duration_s": one.duration_s, "group_name": one.group.name,
        "group_description": one.group.description, "group_size": one.group.size,
        "group_ranks": one.group.ranks and list(one.group.ranks),
    }  # fmt: skip


def _row(row: CollectiveRow, replays: TraceReplay | None) -> dict[str, Any]:
    others = [one for one in (replays.own, replays.other) if one] if replays else []
    return {
        **asdict(row), "algbw_Bps": row.algbw, "busbw_Bps": row.busbw,
        "predicted_s": {one.cluster: predicted(row, one.libraries) for one in others},
    }  # fmt: skip


def _rank(row: RankRow) -> dict[str, Any]:
    return {**row._asdict(), "share": row.share, "exposed_share": row.exposed_share}


def _replays(replays: TraceReplay) -> dict[str, Any]:
    return {
        "recorded_s": replays.traced.recorded_s, "replayed_s": replays.recorded.makespan_s,
        "steps": replays.steps, "step_s": replays.step_s, "collectives": replays.traced.calls,
        "kept": replays.traced.kept, "alike": replays.traced.is_alike,
        "own": replays.own and _replay(replays, replays.own), "own_why": replays.why,
        "cluster": replays.other and _replay(replays, replays.other),
    }  # fmt: skip


def _replay(replays: TraceReplay, one: Replay) -> dict[str, Any]:
    return {
        "cluster": one.cluster, "library": one.library, "makespan_s": one.timeline.makespan_s,
        "step_s": replays.step_on(one),
        "ranks": [{"rank": rank, **times._asdict()} for rank, times in one.timeline.times.items()],
    }  # fmt: skip
