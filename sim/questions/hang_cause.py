"""Why a real job hangs, by the dumps of PyTorch's Flight Recorder."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from ringside.sim.flight.cause import find
from ringside.sim.flight.file import read_dumps
from ringside.sim.flight.finding import DEAD, DEVICE, LATE, Finding, named
from ringside.sim.flight.job import FlightJob
from ringside.sim.flight.program import continued
from ringside.sim.program.check import PROVED, Verdict, check
from ringside.sim.questions.answer import AnswerOnDemand
from ringside.sim.questions.fields import job_argument, parse_paths, ranks_option
from ringside.sim.questions.question import Question, argument


@dataclass(frozen=True, kw_only=True)
class HangCause(Question):
    """Which rank keeps a job from going on, at which call, and whether the order of the calls is wrong."""

    schema: ClassVar[str] = "program-hang"

    file: Path = job_argument()
    more: Sequence[Path] = argument(
        "More dumps; or after -- the arguments of a training script.",
        metavar="MORE...", default=(), parse=parse_paths, repeats=True,
    )  # fmt: skip
    ranks: int | None = ranks_option()

    @property
    def dumps(self) -> tuple[Path, ...]:
        """All dumps, or folders of them."""
        return (self.file, *self.more)

    def ask(self) -> "HangAnswer":
        """Read the dumps, find the first cause, and prove the job with the missing calls made."""
        job = FlightJob(read_dumps(self.dumps), self.ranks)
        finding = find(job)
        is_replayed = finding is not None and finding.cause != DEVICE and not finding.is_message
        return HangAnswer(self, job, finding, check(continued(job)) if is_replayed else None)


@dataclass(frozen=True, slots=True)
class HangAnswer(AnswerOnDemand):
    """The cause, if any call has not ended; ``proof`` is of the job in which late ranks make their calls."""

    question: HangCause
    job: FlightJob
    finding: Finding | None
    proof: Verdict | None

    @property
    def headline(self) -> str:
        """The answer in one sentence."""
        if self.finding:
            return self.finding.sentence
        return f"nothing waits: every call in the dumps of {named(sorted(self.job.dumps))} has ended"

    @property
    def grounds(self) -> str:
        """What the replayed job proves."""
        return "; ".join(self._proved()[:1])

    @property
    def doubts(self) -> list[str]:
        """What the dumps do not show."""
        return self._not_shown()

    @property
    def inputs(self) -> dict[str, Any]:
        """The question, with the number of ranks that the dumps show."""
        return {**self.question.inputs(), "ranks": self.job.ranks}

    @property
    def content(self) -> dict[str, Any]:
        """Everything, in plain values."""
        cause = asdict(self.finding) if self.finding else None
        proof = self.proof and {"verdict": self.proof.verdict, "story": list(self.proof.story)}
        return {
            "inputs": self.inputs, "headline": self.headline, "cause": cause, "proof": proof,
            "notes": list(self.notes), "rows": self.rows,
        }  # fmt: skip

    @property
    def notes(self) -> Sequence[str]:
        """What the proof says, and what the dumps do not show."""
        return [*self._proved(), *self._not_shown()]

    def _proved(self) -> list[str]:
        if not self.finding or not self.proof:
            return []
        if self.finding.cause not in (LATE, DEAD):
            return [f"the order itself is wrong: replayed, the job {_ends(self.proof)}", *self.proof.story]
        if self.proof.verdict == PROVED:
            return [
                f"the order of the calls is right (proved): with {named(self.finding.ranks)} making the "
                "calls that the others wait for, the job goes on"
            ]
        return [
            f"the order is wrong too: even with these calls made the job {_ends(self.proof)}",
            *self.proof.story,
        ]

    def _not_shown(self) -> list[str]:
        job, notes = self.job, []
        if job.missing and not (self.finding and self.finding.cause == DEAD):
            notes.append(f"no dump of {named(job.missing)}")
        lost = {rank: dump.lost for rank, dump in job.dumps.items() if dump.lost}
        if lost:
            most = max(lost, key=lambda rank: lost[rank])
            notes.append(
                f"buffers have overwritten calls, {lost[most]:,} of rank {most}: raise TORCH_FR_BUFFER_SIZE"
            )
        if job.hides_messages:
            notes.append("Gloo's dumps have no sends and receives: a rank without a call may wait in one")
        return notes

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Where each rank is: its first call that has not ended, else its last one."""
        return [self._row(rank) for rank in range(self.job.ranks)]

    def _row(self, rank: int) -> dict[str, Any]:
        pending = self.job.pending(rank)
        call = pending[0] if pending else self.job.last(rank)
        state = "no dump" if rank not in self.job.dumps else "waits" if pending else "idle"
        number = call and (call.p2p_seq_id if call.is_p2p else call.collective_seq_id)
        return {
            "rank": rank,
            "state": state,
            "guilty": self.finding is not None and rank in self.finding.ranks,
            "call": call.name if call else None,
            "number": number,
            "group": self.job.group_of(rank, call).name if call else None,
            "place": call.where if call else None,
        }


def _ends(proof: Verdict) -> str:
    return {"hangs": "hangs", "fails": "fails"}.get(proof.verdict, f"is {proof.verdict}")
