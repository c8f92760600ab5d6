"""BERT and GPT-2 under Megatron-LM's data, tensor and pipeline parallelism on 1 to 32 V100.

github.com/Oneflow-Inc/libai, docs/source/tutorials/get_started/Benchmark.md @ 9dcbe3b281c9, the column of
Megatron-LM (e156d2fe), in float16: 24 or 48 layers of width 1,024. The page does not say the machines; its
authors' others (DLPerf) have eight V100 and one card of 100 Gb/s, which four cards of a quarter stand for.
Of each model, with and without checkpointing, the row on one GPU sets the efficiency of products for all
layouts. The naive rule is linear scaling with the pipeline's bubble, over as many layers.
"""

import csv
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from sim.training.layout import Layout
from sim.workload.decoder import DECODERS, Decoder
from sim.workload.devices import device
from validation.published.training.efficiency import solved
from validation.published.training.judged import Judged, TrainingTable
from validation.published.training.laid_out import LaidOut

SHAPES = {"bert": (30592, 512), "gpt-2": (50304, 1024)}
"""Vocabulary, padded as Megatron-LM pads it, and tokens of a sequence."""

NIC = {"nic": "3.125GB/s"}


class Step(NamedTuple):
    """A row; ``batch`` counts the sequences of all GPUs."""

    section: str
    model: str
    layers: int
    data: int
    tensor: int
    pipeline: int
    micro_batch: int
    batch: int
    checkpointing: str
    samples_per_s: float

    @property
    def gpus(self) -> int:
        """All of them."""
        return self.data * self.tensor * self.pipeline

    @property
    def step_s(self) -> float:
        """Seconds of a step, as measured."""
        return self.batch / self.samples_per_s

    @property
    def decoder(self) -> Decoder:
        """The model; an encoder of the same shape computes as much."""
        vocabulary, tokens = SHAPES[self.model]
        return replace(
            DECODERS["gpt2-medium"], name=self.model, layers=self.layers, vocabulary=vocabulary,
            sequence=tokens, longest=tokens, positions=tokens,
        )  # fmt: skip

    @property
    def trained(self) -> LaidOut:
        """The training."""
        layout = Layout(
            tensor=self.tensor, pipeline=self.pipeline, micro_batch=self.micro_batch,
            checkpointing=self.checkpointing,
        )  # fmt: skip
        machines = -(-self.gpus // 8)
        return LaidOut(
            self.decoder, device("v100"), f"dgx1-v100:{machines}", self.gpus, layout, self.batch,
            settings=NIC, family="dgx1-v100",
        )  # fmt: skip

    @property
    def work(self) -> float:
        """Layers that each GPU computes for a sample of its own, the bubble with them."""
        micro_batches = self.batch / self.data / self.micro_batch
        bubble = 1 + (self.pipeline - 1) / micro_batches
        return self.batch / self.gpus * self.layers * bubble


def steps() -> Iterator[Step]:
    """All rows."""
    with Path(__file__).with_name("libai.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            numbers = [int(row[name]) for name in Step._fields[2:8]]
            samples = float(row["samples_per_s"])
            yield Step._make([row["section"], row["model"], *numbers, row["checkpointing"], samples])


def judged() -> list[Judged]:
    """All rows on several GPUs."""
    rows = list(steps())
    alone = {(row.model, row.checkpointing): row for row in rows if row.gpus == 1}
    reached = {key: solved(row.trained.step_s, row.step_s) for key, row in alone.items()}
    return [
        Judged(
            series=f"{row.model}{' checkpointed' if row.checkpointing == 'full' else ''}",
            what=f"dp{row.data} tp{row.tensor} pp{row.pipeline}",
            measured=row.step_s,
            predicted=row.trained.step_s(reached[key]),
            rule=alone[key].step_s * row.work / alone[key].work,
            part=row.section,
        )
        for row in rows
        if row.gpus > 1
        for key in [(row.model, row.checkpointing)]
    ]


TABLE = TrainingTable(
    name="libai",
    title="BERT and GPT-2 under Megatron-LM on 1 to 32 V100",
    source="github.com/Oneflow-Inc/libai, docs/source/tutorials/get_started/Benchmark.md @ 9dcbe3b281c9",
    sets="of each model, with and without checkpointing, the row on one GPU",
    rule="linear scaling with the pipeline's bubble",
    judged=judged,
)
