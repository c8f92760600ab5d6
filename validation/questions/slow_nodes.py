"""Which node or link of a cluster is slow."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from ringside.sim.questions.fields import files_argument
from ringside.sim.questions.question import Question, option
from ringside.validation.pairs import PairsVerdict, judge_files


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
