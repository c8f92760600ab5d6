"""Data-parallel training on 2 to 256 GPUs as a table; `throughput.py` predicts each row."""

from ringside.validation.published.training.ddp.throughput import SETS_COMPUTE, judge_others
from ringside.validation.scorecard.judged import JudgedRow, JudgedTable


def judged() -> list[JudgedRow]:
    """Return the held-out rows, in parts by the limit of the measurement."""
    return [row for row in judge_others() if row.part != SETS_COMPUTE]


TABLE = JudgedTable(
    name="ddp",
    title="ResNet-50, VGG-16 and BERT under DDP and similar frameworks on 2 to 256 GPUs",
    source="NVIDIA DeepLearningExamples, DLPerf and others, each named in its file",
    sets="the first row of each series: one GPU, or one node",
    rule="linear scaling",
    judged=judged,
    unit="samples/s",
)
