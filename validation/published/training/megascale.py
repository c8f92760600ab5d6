"""A model of 175 billion parameters on 256 to 1024 Ampere GPUs under Megatron-LM and MegaScale.

Jiang et al., "MegaScale: Scaling Large Language Model Training to More Than 10,000 GPUs", NSDI 2024
(arXiv:2402.15627), table 2: 768 sequences of 2,048 tokens a step, tensor parallelism of 8, pipelines of 8
ranks with six stages each, data parallelism for the rest; machines of eight GPUs and eight cards of 200 Gb/s.
The row on 256 GPUs sets each framework's efficiency of products; above 1 it stands for work that MegaScale
leaves out (attention over windows, blocks in parallel). Gradients are summed in float32: Megatron-LM sums
them after all passes, MegaScale stage by stage beside backward (section 3.2).

The time of a step that does not shrink with its part of the batch, in which GPUs wait for their hosts (input,
garbage collector and slow operators, which the authors name but do not measure separately), is one number of
each framework, fitted for each row on the framework's other rows: 2 s of Megatron-LM, 0.5 s of MegaScale,
which removed causes. The naive rule counts micro-batches and the pipeline's bubble.
"""

from functools import partial
from itertools import groupby
from typing import NamedTuple

from ringside.validation.published.training.rows import read_rows
from ringside.validation.published.training.steps import (
    ONE_BUCKET_MB,
    ProductsLine,
    chosen_host_s,
    steps_s,
    whole_s,
)
from ringside.validation.questions.step_time import StepTime
from ringside.validation.scorecard.absolute import alone
from ringside.validation.scorecard.judged import JudgedRow, JudgedTable

MODEL = "gpt3-175b:2048,heads=128,vocabulary=51200"
PIPELINE, VIRTUAL = 8, 6
BATCH = 768
STACKS = {"Megatron-LM": "megatron", "MegaScale": "te"}
"""MegaScale has FlashAttention 2 and fused kernels (section 3.2), as TransformerEngine does."""


STAGE_MB = 2048.0
"""A bucket that holds the gradients of one of a rank's six stages."""

HOST_S = (0.0, 0.5, 1.0, 1.5, 2.0, 2.5)
"""Options for the seconds of a step in which GPUs wait for their hosts."""


class FrameworkStep(NamedTuple):
    """A row of the table."""

    framework: str
    gpus: int
    step_s: float


def micro_batches(gpus: int) -> int:
    """Return the number of micro-batches of a replica."""
    return BATCH // (gpus // 8 // PIPELINE)


def training(row: FrameworkStep, efficiency: float | None, batch: int) -> StepTime:
    """Return the training of this batch of a replica, products at this share of the peak or by kernels."""
    return StepTime(
        model=MODEL, cluster=f"dgx-a100:{row.gpus // 8}",
        precision="bf16", dtype="fp32", compute_efficiency=efficiency, stack=STACKS[row.framework],
        tp=8, sequence_parallel=True, pp=PIPELINE, schedule="interleaved1f1b", virtual=VIRTUAL,
        checkpointing="selective", batch=batch, micro_batch=1,
        clip=True,
        bucket_cap_mb=ONE_BUCKET_MB if row.framework == "Megatron-LM" else STAGE_MB,
    )  # fmt: skip


def predicted_s(row: FrameworkStep, efficiency: float | None) -> float:
    """Return the seconds of a step with products at this share of the peak, or by kernels."""
    return whole_s(
        lambda batch: training(row, efficiency, batch).step().step_s, micro_batches(row.gpus), PIPELINE
    )


def work(gpus: int) -> float:
    """Return the length of the step in micro-batches, the bubble included."""
    return micro_batches(gpus) + (PIPELINE - 1) / VIRTUAL


def judged() -> list[JudgedRow]:
    """Return the rows on more than 256 GPUs."""
    results = []
    for framework, group in groupby(read_rows(FrameworkStep, "megascale.csv"), key=lambda row: row.framework):
        sets, *others = group
        lines = [ProductsLine.of(partial(predicted_s, row)) for row in (sets, *others)]
        steps = {host_s: steps_s(sets.step_s, lines, host_s) for host_s in HOST_S}
        measured = [row.step_s for row in others]
        for place, row in enumerate(others):
            host_s = chosen_host_s(measured, steps, place)
            rule_s = sets.step_s * work(row.gpus) / work(sets.gpus)
            results.append(JudgedRow(framework, f"on {row.gpus}", row.step_s, steps[host_s][place], rule_s))
    return results


def absolute() -> list[JudgedRow]:
    """Return all rows, with nothing known."""
    return [
        alone(
            f"megascale {row.framework}", f"on {row.gpus}", row.step_s, predicted_s(row, None),
            training(row, None, PIPELINE),
        )
        for row in read_rows(FrameworkStep, "megascale.csv")
    ]  # fmt: skip


TABLE = JudgedTable(
    name="megascale",
    title="A 175B model on 256 to 1024 A100, strong scaling",
    source="arXiv:2402.15627, table 2",
    sets="the row on 256 GPUs of each framework; time of the hosts by its others",
    rule="micro-batches and bubble",
    judged=judged,
    absolute=absolute,
)
