"""Fields of a job of collectives and messages, also for questions that run it for real."""

from dataclasses import dataclass
from pathlib import Path

from ringside.sim.questions.question import Question, QuestionError, argument, option


@dataclass(frozen=True, kw_only=True)
class OfProgram(Question):
    """A job: a script and its number of ranks, or a file of all ranks; and the library's rules."""

    file: Path | None = argument(
        "A script with def main(dist); GOAL (.goal); Chakra's traces (.0.et, or a folder).",
        metavar="FILE", default=None,
    )  # fmt: skip
    ranks: int | None = option("Number of ranks of each job.", "-g", "--ranks", default=None, minimum=1)
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
