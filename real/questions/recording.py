"""An unmodified training script as a job, recorded on a machine without GPUs."""

import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from ringside.real.record.job import ScriptJob, record_job
from ringside.sim.questions.answer import AnswerOnDemand
from ringside.sim.questions.question import Question, QuestionError, argument, option
from ringside.sim.recorded.job import GroupCall, PeerMessage, RecordedJob, RecordedRank
from ringside.topologies.units import format_count, format_size

PER_NODE = 8
"""Ranks of a node, unless ``nodes`` says otherwise."""


def _parse_command(arguments: Sequence[str]) -> tuple[str, ...]:
    return tuple(arguments)


@dataclass(frozen=True, kw_only=True)
class ScriptRecording(Question):
    """A training script as a job: its operators, collectives and memory, without a GPU."""

    schema: ClassVar[str] = "record"

    command: Sequence[str] = argument(
        "The script and its own arguments, which come last.",
        metavar="SCRIPT ARGS...", parse=_parse_command, repeats=True,
    )  # fmt: skip
    module: bool = option("SCRIPT is a module's name, as after python -m.", "-m", "--module", default=False)
    ranks: int = option("Ranks of the job.", "-g", "--ranks", default=8, minimum=1)
    nodes: int | None = option(
        "Nodes of the job.", default=None, minimum=1, default_text="8 ranks on each node"
    )
    steps: int = option("Most steps until two in a row are equal.", metavar="STEPS", default=6, minimum=2)
    samples: int | None = option(
        "Samples of a step of all ranks.", default=None, minimum=1, default_text="what its loader says"
    )
    timeout: float = option("Longest time of all.", metavar="SECONDS", default=600.0)
    with_source: bool = option("Keep file and line of each call, for other people too.", default=False)
    shim: Sequence[str] = option(
        "A module that registers shims of packages; repeat for more.",
        metavar="MODULE", factory=tuple, parse=_parse_command, repeats=True,
    )  # fmt: skip
    without: Sequence[str] = option(
        "Do not replace this package by its shim; repeat for more.",
        metavar="PACKAGE", factory=tuple, parse=_parse_command, repeats=True,
    )  # fmt: skip

    every_rank: bool = option(
        "Record every rank, of up to 16: none stands for those that seem to do the same.", default=False
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.command:
            raise QuestionError("`command` is empty; write a script")
        if not self.module and not os.path.isfile(self.command[0]):
            raise QuestionError(
                f"{self.command[0]} is not a file; write a script, or with `module` a module's name"
            )
        if self.nodes is not None and self.ranks % self.nodes:
            raise QuestionError(
                f"`ranks` {self.ranks} are not equally many on `nodes` {self.nodes}; write a multiple of it"
            )
        if self.nodes is None and self.ranks > PER_NODE and self.ranks % PER_NODE:
            raise QuestionError(f"`ranks` {self.ranks} are not {PER_NODE} on each node; write `nodes` too")
        if self.timeout <= 0:
            raise QuestionError(f"`timeout` {self.timeout}; write more than 0")

    @property
    def per_node(self) -> int:
        """Ranks on each node."""
        return self.ranks // self.nodes if self.nodes else min(self.ranks, PER_NODE)

    def ask(self, *, on_rank: Callable[[int], None] = lambda _: None) -> "Recording":
        """Record the script; call ``on_rank`` after each rank.

        Raise ValueError if it cannot be, RuntimeError if that does not finish.
        """
        script, *arguments = self.command
        job = ScriptJob(
            script=script, is_module=self.module, arguments=tuple(arguments), ranks=self.ranks,
            per_node=self.per_node, steps=self.steps, timeout_s=self.timeout, with_source=self.with_source,
            shims=tuple(self.shim), without=tuple(self.without), samples=self.samples,
            every_rank=self.every_rank,
        )  # fmt: skip
        return Recording(self, record_job(job, on_rank))


def record(script: str, *arguments: str, ranks: int = 8, **options: Any) -> RecordedJob:
    """Return the job that a training script is; ``options`` are other fields of `ScriptRecording`."""
    return ScriptRecording(command=(script, *arguments), ranks=ranks, **options).ask().job


@dataclass(frozen=True, kw_only=True, slots=True)
class RoleCounts:
    """What a rank does in a step: counts, bytes of its collectives and messages, and its memory's peak."""

    rank: int
    alike: int
    operators: int
    collectives: int
    collective_bytes: int
    messages: int
    message_bytes: int
    waits: int
    peak_bytes: int
    peak: dict[str, int]
    """Bytes at the peak, by pool."""
    unsteady: str


@dataclass(frozen=True, slots=True)
class Recording(AnswerOnDemand):
    """The answer: the job, and what each of its roles does in a step."""

    question: ScriptRecording
    job: RecordedJob

    @property
    def roles(self) -> list[RoleCounts]:
        """What each recorded rank does."""
        return [counts(one) for one in self.job.recorded]

    @property
    def headline(self) -> str:
        """The step of the rank whose memory peaks highest."""
        roles = self.roles
        most = max(roles, key=lambda one: one.peak_bytes)
        parts = [
            f"{most.operators:,} operators",
            f"{most.collectives:,} collectives of {size_text(most.collective_bytes)}",
        ]
        if most.messages:
            parts.append(f"{most.messages:,} messages of {size_text(most.message_bytes)}")
        of = f" on rank {most.rank}" if len(roles) > 1 else ""
        return (
            f"a step of {format_count(self.job.ranks, 'rank')} of {self.job.command[0]}: "
            f"{', '.join(parts)}; memory peaks at {size_text(most.peak_bytes)}{of}"
        )

    @property
    def doubts(self) -> list[str]:
        """What is not steady, and what was assumed."""
        unsteady = [one for one in self.roles if one.unsteady]
        return [
            *(f"rank {one.rank}'s steps are not steady: {one.unsteady}" for one in unsteady), *self.notes
        ]  # fmt: skip

    @property
    def inputs(self) -> dict[str, Any]:
        """The question as understood."""
        return {**self.question.inputs(), "command": list(self.job.command), "per_node": self.job.per_node}

    @property
    def notes(self) -> tuple[str, ...]:
        """What was assumed."""
        return self.job.notes

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The roles, in plain values."""
        names = RoleCounts.__slots__
        return [{name: getattr(one, name) for name in names} for one in self.roles]


def size_text(nbytes: int) -> str:
    """Return a size as people read it, rounded."""
    return format_size(nbytes, 4)


def counts(recorded: RecordedRank) -> RoleCounts:
    """Return what a recorded rank does in a step."""
    kinds: Counter[str] = Counter()
    nbytes: Counter[str] = Counter()
    for entry in recorded.entries:
        action = recorded.actions[entry.action]
        kinds[action.kind] += 1
        if isinstance(action, GroupCall | PeerMessage):
            nbytes[action.kind] += action.nbytes
    held = Counter(recorded.held)
    peak = held.copy()
    for pool, change in (one for entry in recorded.entries for one in entry.memory):
        held[pool] += change
        if held.total() > peak.total():
            peak = held.copy()
    return RoleCounts(
        rank=recorded.rank, alike=len(recorded.alike), operators=kinds["operator"],
        collectives=kinds["call"], collective_bytes=nbytes["call"], messages=kinds["message"],
        message_bytes=nbytes["message"], waits=kinds["wait"], peak_bytes=peak.total(),
        peak={pool: value for pool, value in peak.items() if value}, unsteady=recorded.unsteady,
    )  # fmt: skip
