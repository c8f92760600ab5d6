"""Whether a job of collectives and messages ends."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from ringside.sim.effort import consider_ranks, uncollected
from ringside.sim.formats.program_files import ProgramFile, holds_program, read
from ringside.sim.libraries import gloo
from ringside.sim.libraries.rules import RULES
from ringside.sim.program.check import PROVED, Verdict, check
from ringside.sim.program.operations import Call, Program
from ringside.sim.program.record.script import program_of
from ringside.sim.questions.answer import Answer, two_lines
from ringside.sim.questions.fields import job_argument, ranks_option
from ringside.sim.questions.question import Question, QuestionError, option
from ringside.sim.schedule import Schedule

EVERY = 100
"""Ranks between two progress reports."""

Tell = Callable[[str], None]
"""A callback for progress messages."""


@dataclass(frozen=True, kw_only=True)
class OfProgram(Question):
    """A job: a script and its number of ranks, or a file of all ranks; and the library's rules."""

    file: Path | None = job_argument(default=None)
    ranks: int | None = ranks_option()
    library: str | None = option(
        "Library whose rules apply; with --cluster also its times, or ideal.",
        metavar="gloo|nccl|ideal", default=None, default_text="gloo; ideal for GOAL, which names no library",
    )  # fmt: skip
    eager: bool = option("NCCL, with init_process_group(device_id=...): one communicator.", default=False)

    @property
    def path(self) -> Path:
        """The file; raise QuestionError without one."""
        if self.file is None:
            raise QuestionError("write FILE.py and -g N, its ranks; --job goes with --cluster")
        return self.file


@dataclass(frozen=True, kw_only=True)
class ProgramVerdict(OfProgram):
    """Whether a job of collectives and messages ends, or which ranks wait for which."""

    schema: ClassVar[str] = "program"

    def ask(self, *, tell: Tell = lambda _: None) -> "ProgramProof":
        """Record a script, or read a file, and prove it; ``tell`` is called with progress messages."""
        job = job_file(self.path, self.ranks)
        library = self.library or (job.library if job.library in RULES else "gloo")
        return prove_job(job, library, self.inputs(), eager=self.eager, tell=tell)


@dataclass(frozen=True, slots=True)
class JobFile:
    """A script and its number of ranks, or a file of all ranks of a job."""

    path: Path
    ranks: int
    read: ProgramFile | None = None

    @property
    def notes(self) -> Sequence[str]:
        """How parts of the file that a program cannot express were converted."""
        return self.read.notes if self.read else ()

    @property
    def library(self) -> str:
        """The library that the file names, or Gloo."""
        return self.read.library if self.read else "gloo"

    def program(self, library: str, *, eager: bool, tell: Tell) -> Program:
        """Return the job by the rules of a library."""
        if self.read is None:
            return _recorded(program_of(self.path, self.ranks, library, eager=eager), tell)
        if eager:
            raise QuestionError(f"`eager` applies to scripts, and {self.path} is not one; remove it")
        return self.read.program(library)


def job_file(path: Path, ranks: int | None) -> JobFile:
    """Return one job, with its file's ranks or ``ranks``."""
    if holds_program(path):
        program = read(path)
        if ranks not in (None, program.ranks):
            raise QuestionError(f"{ranks} ranks, but {path} has {program.ranks}; remove the number")
        return JobFile(path, program.ranks, program)
    if ranks is None and not path.exists():
        raise QuestionError(f"{path}: no such file")
    if ranks is None:
        raise QuestionError(f"{path} needs a number of ranks; write -g N")
    return JobFile(path, ranks)


def _recorded(program: Program, tell: Tell) -> Program:
    """Record all ranks of a script's job; raise ValueError first if that would take too long."""
    ranks = program.ranks
    with uncollected():
        consider_ranks(ranks, max(len(program.operations(rank)) for rank in {0, ranks // 2, ranks - 1}))
        for rank in range(ranks):
            program.operations(rank)
            if rank % EVERY == 0:
                tell(f"recording: rank {rank:,} of {ranks:,}")
    return program


@dataclass(frozen=True, slots=True)
class ProgramProof(Answer):
    """The answer: the job's program, and the verdict on it."""

    inputs: Mapping[str, Any]
    job: JobFile
    program: Program
    verdict: Verdict
    is_proved: bool
    notes: Sequence[str]
    """How parts of the file that a program cannot express were converted."""
    headline: str
    rests_on: Sequence[str]

    @property
    def content(self) -> dict[str, Any]:
        """Everything, in plain values; without a cluster it has no makespan."""
        return {"inputs": self.inputs, "makespan_s": None, **self.rows[0]}

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The verdict, its reasons in sentences, and the number of operations."""
        verdict = self.verdict
        return [{"verdict": verdict.verdict, "story": list(verdict.story), "operations": verdict.operations}]

    def schedule_of(self, call: Call) -> Schedule:
        """Return a collective's schedule without a cluster: Gloo's own."""
        if call.group.rules.on_stream:
            raise QuestionError(
                f"{call.name}: {call.group.library}'s schedule depends on the machines; add `cluster` NAME"
            )
        return gloo.schedule(call.collective, "auto")


def prove_job(
    job: JobFile, library: str, inputs: Mapping[str, Any], *, eager: bool, tell: Tell
) -> ProgramProof:
    """Prove a job by the rules of a library; ``inputs`` are those of the question."""
    program = job.program(library, eager=eager, tell=tell)
    verdict = check(program)
    inputs = {**inputs, "file": str(job.path), "ranks": job.ranks, "library": library}
    headline = (
        f"{job.path} on {job.ranks} ranks of {library}: {verdict.verdict}, {verdict.operations} operations"
    )
    is_proved, rests_on = verdict.verdict == PROVED, two_lines("", job.notes)
    return ProgramProof(inputs, job, program, verdict, is_proved, job.notes, headline, rests_on)
