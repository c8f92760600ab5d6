"""A few layers of Llama 3 70B and DeepSeek-V2 under Megatron-core on 8 B200.

github.com/MooreThreads/SimuMax (Apache-2.0), its release table for B200: measured milliseconds of a step of
four micro-batches of one sequence of 4,096 tokens, started by simu_tools/megatron_scripts/scripts: Megatron's
distributed optimizer, FlashAttention, nothing recomputed, experts of capacity 1. The fused loss is the
table's.
Of each model the first row sets the efficiency of products for the others. The naive rule is a constant
utilization with the pipeline's bubble.
"""

from itertools import groupby
from typing import NamedTuple

from ringside.validation.published.training.rows import read_rows
from ringside.validation.published.training.steps import solved
from ringside.validation.questions.step_time import StepTime
from ringside.validation.scorecard.absolute import alone
from ringside.validation.scorecard.judged import JudgedRow, JudgedTable

GPUS, SEQUENCE = 8, 4096


class SimumaxStep(NamedTuple):
    """A row; ``first_mib`` and ``last_mib`` are the allocator's peak on rank 0 and on the last rank."""

    model: str
    layers: int
    tensor: int
    pipeline: int
    expert: int
    micro_batches: int
    step_ms: float
    first_mib: float
    last_mib: float

    @property
    def step_s(self) -> float:
        """Seconds of a step, as measured."""
        return self.step_ms / 1e3

    @property
    def name(self) -> str:
        """The layout."""
        return f"tp{self.tensor} pp{self.pipeline} ep{self.expert}"

    @property
    def work(self) -> float:
        """Micro-batches of a step times a GPU's share of the layers, the bubble included."""
        return (self.micro_batches + self.pipeline - 1) / self.tensor / self.pipeline

    def training(self, efficiency: float | None) -> StepTime:
        """Return the training with products at this share of the peak, None for one by kernels."""
        return StepTime(
            model=f"{self.model}:{SEQUENCE},layers={self.layers}", cluster="dgx-b200", precision="bf16",
            compute_efficiency=efficiency, stack="te", attention="flash", loss="fused",
            strategy="distributed_optimizer", tp=self.tensor,
            capacity_factor=1.0 if self.model == "deepseek-v2" else None,
            sequence_parallel=self.tensor > 1, pp=self.pipeline, ep=self.expert,
            batch=self.micro_batches, micro_batch=1,
        )  # fmt: skip

    def predicted_s(self, efficiency: float | None) -> float:
        """Return the seconds of a step."""
        return self.training(efficiency).step().step_s


def steps() -> list[SimumaxStep]:
    """Return all rows."""
    return read_rows(SimumaxStep, "simumax/steps.csv")


def judged() -> list[JudgedRow]:
    """Return the rows of each model but its first."""
    results = []
    for model, group in groupby(steps(), key=lambda row: row.model):
        sets, *others = group
        efficiency = solved(sets.predicted_s, sets.step_s)
        for row in others:
            rule_s = sets.step_s * row.work / sets.work
            results.append(JudgedRow(model, row.name, row.step_s, row.predicted_s(efficiency), rule_s))
    return results


def absolute() -> list[JudgedRow]:
    """Return all rows, with nothing known."""
    return [
        alone("simumax", f"{row.model} {row.name}", row.step_s, row.predicted_s(None), row.training(None))
        for row in steps()
    ]


TABLE = JudgedTable(
    name="simumax",
    title="Layers of Llama 3 70B and DeepSeek-V2 on 8 B200",
    source="github.com/MooreThreads/SimuMax, release table for B200",
    sets="the first row of each model",
    rule="constant utilization with the pipeline's bubble",
    judged=judged,
    absolute=absolute,
)
