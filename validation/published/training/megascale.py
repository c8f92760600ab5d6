"""A model of 175 billion parameters on 256 to 1024 Ampere GPUs: Megatron-LM and MegaScale, a batch for all.

Jiang et al., "MegaScale: Scaling Large Language Model Training to More Than 10,000 GPUs", NSDI 2024
(arXiv:2402.15627), table 2: 768 sequences of 2,048 tokens a step, tensor parallelism of 8, pipelines of 8
ranks with six stages each, the rest replicas; machines of eight GPUs and eight cards of 200 Gb/s. Of each
framework the row on 256 GPUs sets the efficiency of products. Gradients are summed in float32 when all passes
are over. What the input pipeline and the garbage collector take, which the authors name and measure nowhere
apart, is not in the answer. The naive rule counts micro-batches and the pipeline's bubble.
"""

import csv
from functools import partial
from itertools import groupby
from pathlib import Path

from ringside.validation.published.training.steps import ONE_BUCKET_MB, solved, whole_s
from ringside.validation.questions.question import Question, question
from ringside.validation.scorecard.judged import JudgedRow, JudgedTable

MODEL = "gpt3-175b:2048,heads=128,vocabulary=51200"
PIPELINE, VIRTUAL = 8, 6
BATCH = 768


def micro_batches(gpus: int) -> int:
    """Return the number of micro-batches of a replica."""
    return BATCH // (gpus // 8 // PIPELINE)


def asked(gpus: int, efficiency: float, batch: int) -> Question:
    """Return the training with products at this share of the peak, of this batch of a replica."""
    return question(
        MODEL, f"dgx-a100:{gpus // 8}", precision="bf16", dtype="fp32", compute_efficiency=efficiency,
        tp=8, sequence_parallel=True, pp=PIPELINE, schedule="interleaved1f1b", virtual=VIRTUAL,
        checkpointing="selective", batch=batch, micro_batch=1, bucket_cap_mb=ONE_BUCKET_MB,
    )  # fmt: skip


def predicted_s(gpus: int, efficiency: float) -> float:
    """Return the seconds of a step with products at this share of the peak."""
    return whole_s(lambda batch: asked(gpus, efficiency, batch).step().step_s, micro_batches(gpus), PIPELINE)


def work(gpus: int) -> float:
    """Return the length of the step in micro-batches, the bubble included."""
    return micro_batches(gpus) + (PIPELINE - 1) / VIRTUAL


def judged() -> list[JudgedRow]:
    """Return the rows on more than 256 GPUs."""
    with Path(__file__).with_name("megascale.csv").open(encoding="utf-8", newline="") as file:
        rows = [(row["framework"], int(row["gpus"]), float(row["step_s"])) for row in csv.DictReader(file)]
    found = []
    for framework, group in groupby(rows, key=lambda row: row[0]):
        (_, fewest, sets_s), *others = group
        efficiency = solved(partial(predicted_s, fewest), sets_s)
        for _, gpus, step_s in others:
            rule_s = sets_s * work(gpus) / work(fewest)
            found.append(JudgedRow(framework, f"on {gpus}", step_s, predicted_s(gpus, efficiency), rule_s))
    return found


TABLE = JudgedTable(
    name="megascale",
    title="A 175B model on 256 to 1024 A100, strong scaling",
    source="arXiv:2402.15627, table 2",
    sets="of each framework the row on 256 GPUs",
    rule="micro-batches and bubble",
    judged=judged,
)
