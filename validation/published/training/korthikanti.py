"""Iterations of large GPT models with full and with selective checkpointing, on NVIDIA's Selene.

Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", arXiv:2205.05198, table
5; layouts as github.com/calculon-ai/calculon writes them down (calculon/llm/validation.py @ caa4b11f8fe1).
DGX A100, attention that writes its scores, no data parallelism. Of each model the row with full
checkpointing and no sequence parallelism sets the efficiency of products, and the row with selective
checkpointing and sequence parallelism is judged. What is asked is `train`'s question, answered by the bound
by which `train --search` leaves layouts out: hundreds of micro-batches on 64 stages are not simulated. A rule
of thumb counts the passes: full checkpointing takes 4 for 3.
"""

import csv
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from ringside.sim.training.search.bounds import Bounds
from ringside.validation.published.training.steps import solved
from ringside.validation.questions.question import Question, question
from ringside.validation.scorecard.judged import JudgedRow, JudgedTable

VOCABULARY = 51200


class Iteration(NamedTuple):
    """A row of the table; ``virtual`` counts stages a rank."""

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
        """The model, in the words of ``train``."""
        shape = f"layers={self.layers},width={self.width},heads={self.heads},vocabulary={VOCABULARY}"
        return f"gpt3-175b:2048,{shape}"


def iterations() -> Iterator[Iteration]:
    """All rows."""
    with Path(__file__).with_name("korthikanti.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            numbers = {name: int(row[name]) for name in Iteration._fields[1:9]}
            yield Iteration(
                model=row["model"], **numbers, checkpointing=row["checkpointing"],
                sequence_parallel=row["sequence_parallel"] == "1", step_s=float(row["step_s"]),
            )  # fmt: skip


def asked(row: Iteration, efficiency: float) -> Question:
    """Return the training with products at this share of the peak."""
    gpus = row.tensor * row.pipeline
    return question(
        row.model_text, f"dgx-a100:{-(-gpus // 8)}", ranks=gpus, precision="fp16", dtype="fp16",
        compute_efficiency=efficiency, attention="written", tp=row.tensor,
        sequence_parallel=row.sequence_parallel, pp=row.pipeline,
        schedule="interleaved1f1b" if row.virtual > 1 else None,
        virtual=row.virtual if row.virtual > 1 else None,
        batch=row.batch, micro_batch=row.micro_batch, checkpointing=row.checkpointing,
    )  # fmt: skip


def predicted_s(row: Iteration, efficiency: float) -> float:
    """Return the seconds of an iteration."""
    training = asked(row, efficiency)
    return Bounds(training.libraries).step_s(training.job)


def judged() -> list[JudgedRow]:
    """Return the rows with selective checkpointing."""
    found = []
    rows = list(iterations())
    for sets, row in zip(rows[::2], rows[1::2], strict=True):
        efficiency = solved(partial(predicted_s, sets), sets.step_s)
        rule_s = sets.step_s * 3 / 4
        found.append(JudgedRow(row.model, "selective", row.step_s, predicted_s(row, efficiency), rule_s))
    return found


TABLE = JudgedTable(
    name="korthikanti",
    title="Selective checkpointing on A100",
    source="arXiv:2205.05198, table 5",
    sets="of each model the row with full checkpointing",
    rule="3/4 of full checkpointing",
    judged=judged,
)
