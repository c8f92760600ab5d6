"""Data-parallel training under frameworks that hide no communication, predicted as the rows of `ddp`."""

from functools import partial

from ringside.validation.published.training.ddp import held_out
from ringside.validation.scorecard.judged import JudgedTable

TABLE = JudgedTable(
    name="unhidden",
    title="ResNet-50, VGG-16 and BERT under MindSpore and TensorFlow on 2 to 32 GPUs",
    source="DLPerf and servergear.com, each named in its file of `ddp`",
    sets="the first row of each series: one GPU, or one node; that nothing is hidden is read off all rows",
    rule="linear scaling",
    judged=partial(held_out, hides=False),
    unit="samples/s",
)
