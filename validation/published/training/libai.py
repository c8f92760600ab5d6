"""BERT and GPT-2 under Megatron-LM's data, tensor and pipeline parallelism on 1 to 32 V100.

github.com/Oneflow-Inc/libai, docs/source/tutorials/get_started/Benchmark.md @ 9dcbe3b281c9, the column of
Megatron-LM (e156d2fe), in float16: 24 or 48 layers of width 1,024. The page does not name the machines; other
benchmarks of its authors (DLPerf) used eight V100 and one card of 100 Gb/s, modelled as four cards of a
quarter of that. For each model, with and without checkpointing, the row on one GPU sets the efficiency of
products for all layouts. The naive rule is linear scaling by layers with the pipeline's bubble.
"""

from typing import NamedTuple

from ringside.sim.calibration import shipped
from ringside.validation.published.training.rows import read_rows
from ringside.validation.published.training.steps import solved, whole_s
from ringside.validation.questions.step_time import StepTime
from ringside.validation.scorecard.absolute import alone
from ringside.validation.scorecard.judged import JudgedRow, JudgedTable

SHAPES = {"bert": (30592, 512), "gpt-2": (50304, 1024)}
"""Vocabulary, padded as Megatron-LM pads it, and tokens of a sequence."""

NIC = {"nic": "3.125GB/s"}
MEASURED = shipped("dgx1-v100")


class LibaiStep(NamedTuple):
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
        """The number of GPUs."""
        return self.data * self.tensor * self.pipeline

    @property
    def step_s(self) -> float:
        """Seconds of a step, as measured."""
        return self.batch / self.samples_per_s

    @property
    def decoder(self) -> str:
        """The model; an encoder of the same shape computes as much."""
        vocabulary, tokens = SHAPES[self.model]
        return f"gpt2-medium:{tokens},layers={self.layers},vocabulary={vocabulary},positions={tokens}"

    def training(self, efficiency: float | None, micro_batches: int) -> StepTime:
        """Return the training of some micro-batches, products at this share of the peak or by kernels."""
        return StepTime(
            model=self.decoder, cluster=f"dgx1-v100:{-(-self.gpus // 8)}", settings=NIC, calibration=MEASURED,
            ranks=self.gpus, precision="fp16", dtype="fp16", compute_efficiency=efficiency,
            stack="megatron", dropout=True, tp=self.tensor, pp=self.pipeline,
            batch=micro_batches * self.micro_batch,
            micro_batch=self.micro_batch, checkpointing=self.checkpointing, strategy="megatron_ddp",
        )  # fmt: skip

    def predicted_s(self, efficiency: float | None) -> float:
        """Return the seconds of a step."""
        micro_batches = self.batch // self.data // self.micro_batch
        return whole_s(
            lambda count: self.training(efficiency, count).step().step_s, micro_batches, self.pipeline
        )

    @property
    def work(self) -> float:
        """The layers that each GPU computes, times samples per GPU, the bubble included."""
        micro_batches = self.batch / self.data / self.micro_batch
        bubble = 1 + (self.pipeline - 1) / micro_batches
        return self.batch / self.gpus * self.layers * bubble


def steps() -> list[LibaiStep]:
    """Return all rows."""
    return read_rows(LibaiStep, "libai.csv")


def judged() -> list[JudgedRow]:
    """Return all rows on several GPUs."""
    rows = steps()
    alone = {(row.model, row.checkpointing): row for row in rows if row.gpus == 1}
    reached = {key: solved(row.predicted_s, row.step_s) for key, row in alone.items()}
    return [
        JudgedRow(
            series=f"{row.model}{' checkpointed' if row.checkpointing == 'full' else ''}",
            what=f"dp{row.data} tp{row.tensor} pp{row.pipeline}",
            measured=row.step_s,
            predicted=row.predicted_s(reached[key]),
            rule=alone[key].step_s * row.work / alone[key].work,
            part=row.section,
        )
        for row in rows
        if row.gpus > 1
        for key in [(row.model, row.checkpointing)]
    ]


def absolute() -> list[JudgedRow]:
    """Return all rows, with nothing known."""
    return [
        alone(
            "libai",
            f"{row.model} dp{row.data} tp{row.tensor} pp{row.pipeline} checkpointing {row.checkpointing}",
            row.step_s,
            row.predicted_s(None),
            row.training(None, row.pipeline),
        )
        for row in steps()
    ]


TABLE = JudgedTable(
    name="libai",
    title="BERT and GPT-2 under Megatron-LM on 1 to 32 V100",
    source="github.com/Oneflow-Inc/libai, docs/source/tutorials/get_started/Benchmark.md @ 9dcbe3b281c9",
    sets="the row on one GPU of each model, with and without checkpointing",
    rule="linear scaling with the pipeline's bubble",
    judged=judged,
    absolute=absolute,
)
