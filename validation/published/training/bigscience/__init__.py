"""GPT of 1.3 to 200 billion parameters under Megatron-DeepSpeed on V100 and A100 of Jean Zay.

github.com/bigscience-workshop/bigscience @ 9e64edec2ad1: train/tr11-176B-ml/chronicles-prequel.md (A100 of 80
GB, the second iteration of a run, a vocabulary of 250,880 tokens, heads as the text says) and
experiments/tr3m-1B3.md (eight V100 in two machines of four, whole seconds). Sequences have 2,048 tokens, the
optimizer is ZeRO's first stage. Of each model and memory the first row sets the efficiency of products for
the others. The naive rule is the time of the first row, by samples, layers and the pipeline's bubble.

Machines have four cards of 100 Gb/s (Omni-Path); ABCI's (V) and (A) nodes stand for them. The width of 14,400
leaves tensor-parallel products with 1,800 columns, which is slow (the authors' own finding: 94 TFLOP/s where
13,824 reaches 120), and heads of 450 or 150 elements. The steps of 6 and 10 layers have 512 sequences, as the
text and their FLOP/s say; their table prints 2,048. Left out: experiments/gpt2.md, which the authors call
certain to 40 %, and tr8's 104B, on the same network.
"""

from itertools import groupby
from typing import NamedTuple

from ringside.validation.published.training.rows import read_rows
from ringside.validation.published.training.steps import solved, whole_s
from ringside.validation.questions.step_time import StepTime
from ringside.validation.scorecard.absolute import alone
from ringside.validation.scorecard.judged import JudgedRow, JudgedTable

MACHINES = {"a100": ("abci-a100", 8, 250_880), "v100": ("abci-v100", 4, 50_304)}
"""Machine, GPUs of one, and the vocabulary as padded."""


class BigScienceStep(NamedTuple):
    """A row; ``memory_gb`` is that of a GPU, ``batch`` counts the sequences of a step."""

    gpu: str
    memory_gb: int
    layers: int
    width: int
    heads: int
    gpus: int
    tensor: int
    pipeline: int
    micro_batch: int
    batch: int
    checkpointing: str
    precision: str
    step_s: float

    @property
    def series(self) -> str:
        """The series: the name of rows that share a pace, which one of them sets."""
        kept = "" if self.checkpointing == "full" else ", no checkpointing"
        return f"width {self.width} {self.precision} on {self.gpu} of {self.memory_gb} GB{kept}"

    @property
    def name(self) -> str:
        """The row in words."""
        layout = f"tp{self.tensor} pp{self.pipeline} mbs {self.micro_batch}"
        return f"{self.layers} layers {layout} on {self.gpus}"

    @property
    def micro_batches(self) -> int:
        """The number of micro-batches of a replica."""
        return self.batch * self.tensor * self.pipeline // self.gpus // self.micro_batch

    @property
    def work(self) -> float:
        """The layers that each GPU computes, times its samples, the bubble included."""
        bubble = 1 + (self.pipeline - 1) / self.micro_batches
        return self.batch / self.gpus * self.layers * bubble

    def training(self, efficiency: float | None, micro_batches: int) -> StepTime:
        """Return the training of some micro-batches, products at this share of the peak or by kernels."""
        machine, each, vocabulary = MACHINES[self.gpu]
        shape = f"layers={self.layers},width={self.width},heads={self.heads},vocabulary={vocabulary}"
        replicas = self.gpus // self.tensor // self.pipeline
        return StepTime(
            model=f"gpt3-175b:2048,{shape}", cluster=f"{machine}:{self.gpus // each}", calibration=None,
            precision=self.precision, dtype=self.precision, compute_efficiency=efficiency, stack="megatron",
            dropout=self.gpu == "v100", strategy="zero1" if replicas > 1 else "ddp",
            tp=self.tensor, pp=self.pipeline,
            batch=micro_batches * self.micro_batch, micro_batch=self.micro_batch,
            checkpointing=self.checkpointing,
        )  # fmt: skip

    def predicted_s(self, efficiency: float | None) -> float:
        """Return the seconds of a step."""
        return whole_s(
            lambda count: self.training(efficiency, count).step().step_s, self.micro_batches, self.pipeline
        )


def steps() -> list[BigScienceStep]:
    """Return all rows."""
    return read_rows(BigScienceStep, "bigscience/steps.csv")


def judged() -> list[JudgedRow]:
    """Return the rows of each series but its first."""
    results = []
    for series, group in groupby(steps(), key=lambda row: row.series):
        sets, *others = group
        efficiency = solved(sets.predicted_s, sets.step_s)
        for row in others:
            rule_s = sets.step_s * row.work / sets.work
            predicted_s = row.predicted_s(efficiency)
            results.append(JudgedRow(series, row.name, row.step_s, predicted_s, rule_s, row.gpu))
    return results


def absolute() -> list[JudgedRow]:
    """Return all rows, with nothing known."""
    return [
        alone(
            f"bigscience {row.gpu}", f"{row.series} {row.name}", row.step_s, row.predicted_s(None),
            row.training(None, row.pipeline),
        )
        for row in steps()
    ]  # fmt: skip


TABLE = JudgedTable(
    name="bigscience",
    title="GPT of 1.3 to 200 billion parameters under Megatron-DeepSpeed on V100 and A100",
    source="github.com/bigscience-workshop/bigscience @ 9e64edec2ad1",
    sets="the first row of each model and memory",
    rule="by samples, layers and the pipeline's bubble",
    judged=judged,
    absolute=absolute,
)
