"""Data-parallel training on 2 to 256 GPUs as a table; `throughput.py` predicts each row."""

from dataclasses import replace

from ringside.validation.published.training.ddp.throughput import LOST, SETS_COMPUTE, judge_others
from ringside.validation.scorecard.judged import JudgedRow, JudgedTable


def held_out(*, hides: bool) -> list[JudgedRow]:
    """Return the held-out rows of frameworks that hide communication, or of those that hide none.

    Their parts are by what was lost against linear scaling as measured, whatever the prediction says.
    """
    rows = [row for row in judge_others() if row.part != SETS_COMPUTE and bool(row.traits["hides"]) == hides]
    return [replace(row, part=_part(row)) for row in rows]


def _part(row: JudgedRow) -> str:
    if row.measured > row.rule * (1 - LOST):
        return "lost less than 5 %"
    return "lost more, reads images" if row.traits["images"] else "lost more"


def judged() -> list[JudgedRow]:
    """Return the held-out rows of PyTorch."""
    return held_out(hides=True)


TABLE = JudgedTable(
    name="ddp",
    title="ResNet-50 and BERT under DistributedDataParallel on 2 to 256 GPUs",
    source="NVIDIA DeepLearningExamples and others, each named in its file",
    sets="the first row of each series: one GPU, or one node",
    rule="linear scaling",
    judged=judged,
    unit="samples/s",
)
