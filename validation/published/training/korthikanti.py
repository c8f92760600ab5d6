"""Iterations of large GPT models with full and with selective checkpointing, on NVIDIA's Selene.

Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", arXiv:2205.05198, table
5; layouts from github.com/calculon-ai/calculon (calculon/llm/validation.py @ caa4b11f8fe1). DGX A100,
attention that writes its scores, no data parallelism. For each model the row with full checkpointing and no
sequence parallelism sets the efficiency of products, and the row with selective checkpointing and sequence
parallelism is judged. The prediction is the bound by which `train --search` prunes layouts: hundreds of
micro-batches on 64 stages are not simulated. The naive rule counts passes: full checkpointing takes 4 for 3.
"""

from functools import partial
from typing import NamedTuple

from ringside.sim.training.search.bounds import Bounds
from ringside.validation.published.training.rows import read_rows
from ringside.validation.published.training.steps import solved
from ringside.validation.questions.step_time import StepTime
from ringside.validation.scorecard.absolute import alone
from ringside.validation.scorecard.judged import JudgedRow, JudgedTable

VOCABULARY = 51200


class Iteration(NamedTuple):
    """A row of the table; ``virtual`` is the number of stages per rank."""

    model: str
    layers: int
    width: int
    heads: int
    tensor: int
    pipeline: int
    virtual: int
    batch: int
    micro_batch: int
    checkpointing: str
    sequence_parallel: bool
    step_s: float

    @property
    def model_text(self) -> str:
        """The model as a value of ``train --model``."""
        shape = f"layers={self.layers},width={self.width},heads={self.heads},vocabulary={VOCABULARY}"
        return f"gpt3-175b:2048,{shape}"


def iterations() -> list[Iteration]:
    """Return all rows."""
    return read_rows(Iteration, "korthikanti.csv")


def training(row: Iteration, efficiency: float | None) -> StepTime:
    """Return the training with products at this share of the peak, None for one by kernels."""
    gpus = row.tensor * row.pipeline
    return StepTime(
        model=row.model_text, cluster=f"dgx-a100:{-(-gpus // 8)}", ranks=gpus, precision="fp16", dtype="fp16",
        compute_efficiency=efficiency, stack="megatron", dropout=True, strategy="megatron_ddp", tp=row.tensor,
        sequence_parallel=row.sequence_parallel, pp=row.pipeline,
        schedule="interleaved1f1b" if row.virtual > 1 else None,
        virtual=row.virtual if row.virtual > 1 else None,
        batch=row.batch, micro_batch=row.micro_batch, checkpointing=row.checkpointing,
    )  # fmt: skip


def predicted_s(row: Iteration, efficiency: float | None) -> float:
    """Return the seconds of an iteration."""
    step = training(row, efficiency)
    return Bounds(step.libraries).step_s(step.job)


def judged() -> list[JudgedRow]:
    """Return the rows with selective checkpointing."""
    results = []
    rows = iterations()
    for sets, row in zip(rows[::2], rows[1::2], strict=True):
        efficiency = solved(partial(predicted_s, sets), sets.step_s)
        rule_s = sets.step_s * 3 / 4
        results.append(JudgedRow(row.model, "selective", row.step_s, predicted_s(row, efficiency), rule_s))
    return results


def absolute() -> list[JudgedRow]:
    """Return all rows, with nothing known."""
    return [
        alone(
            "korthikanti", f"{row.model} {row.checkpointing}", row.step_s, predicted_s(row, None),
            training(row, None),
        )
        for row in iterations()
    ]  # fmt: skip


TABLE = JudgedTable(
    name="korthikanti",
    title="Selective checkpointing on A100",
    source="arXiv:2205.05198, table 5",
    sets="the row with full checkpointing of each model",
    rule="3/4 of full checkpointing",
    judged=judged,
    absolute=absolute,
)
