"""Data-parallel training on 2 to 256 GPUs as a table: `throughput.py` asks `train` for each row."""

from ringside.validation.published.training.ddp.throughput import judge_others
from ringside.validation.published.training.judging.judged import Judged, TrainingTable


def judged() -> list[Judged]:
    """Rows that set nothing, in parts by what was the limit as measured."""
    return [
        Judged(
            series=row.series,
            what=f"on {row.row.gpus}",
            measured=row.row.samples_per_s,
            predicted=row.predicted,
            rule=row.linear,
            part=row.limit,
        )
        for row in judge_others()
        if row.limit != "sets compute"
    ]


TABLE = TrainingTable(
    name="ddp",
    title="ResNet-50, VGG-16 and BERT under DDP and its like on 2 to 256 GPUs",
    source="NVIDIA DeepLearningExamples, DLPerf and others, each named in its file",
    sets="of each series the first row: one GPU, or one node",
    rule="linear scaling",
    judged=judged,
    unit="samples/s",
)
