"""A model of 175 billion parameters on 256 to 1024 Ampere GPUs: Megatron-LM and MegaScale, a batch for all.

Jiang et al., "MegaScale: Scaling Large Language Model Training to More Than 10,000 GPUs", NSDI 2024
(arXiv:2402.15627), table 2: 768 sequences of 2,048 tokens a step, tensor parallelism of 8, pipelines of 8
ranks with six stages each, the rest replicas; machines of eight GPUs and eight cards of 200 Gb/s. Of each
framework the row on 256 GPUs sets the efficiency of products. Gradients are summed in float32 when all passes
are over. What the input pipeline and the garbage collector take, which the authors name and measure nowhere
apart, is not in the answer. The naive rule counts micro-batches and the pipeline's bubble.
"""

import csv
from dataclasses import replace
from itertools import groupby
from pathlib import Path

from sim.training.layout import Layout
from sim.workload.decoder import DECODERS
from sim.workload.devices import device
from validation.published.training.efficiency import solved
from validation.published.training.judged import Judged, TrainingTable
from validation.published.training.laid_out import LaidOut

MODEL = replace(
    DECODERS["gpt3-175b"], name="megascale-175b", heads=128, key_value_heads=128, vocabulary=51200
)
LAYOUT = Layout(
    tensor=8, pipeline=8, schedule="interleaved1f1b", virtual=6, sequence_parallel=True,
    checkpointing="selective",
)  # fmt: skip
BATCH = 768


def trained(gpus: int) -> LaidOut:
    """The training on so many GPUs."""
    return LaidOut(
        MODEL, device("a100"), f"dgx-a100:{gpus // 8}", gpus, LAYOUT, BATCH,
        dtype="bfloat16", stored="float32",
    )  # fmt: skip


def work(gpus: int) -> float:
    """Micro-batches that a step lasts, the bubble with them."""
    return trained(gpus).micro_batches + (LAYOUT.pipeline - 1) / LAYOUT.virtual


def judged() -> list[Judged]:
    """The rows on more than 256 GPUs."""
    with Path(__file__).with_name("megascale.csv").open(encoding="utf-8", newline="") as file:
        rows = [(row["framework"], int(row["gpus"]), float(row["step_s"])) for row in csv.DictReader(file)]
    found = []
    for framework, group in groupby(rows, key=lambda row: row[0]):
        (_, fewest, sets_s), *others = group
        efficiency = solved(trained(fewest).step_s, sets_s)
        for _, gpus, step_s in others:
            rule_s = sets_s * work(gpus) / work(fewest)
            found.append(Judged(framework, f"on {gpus}", step_s, trained(gpus).step_s(efficiency), rule_s))
    return found


TABLE = TrainingTable(
    name="megascale",
    title="A 175B model on 256 to 1024 A100, strong scaling",
    source="arXiv:2402.15627, table 2",
    sets="of each framework the row on 256 GPUs",
    rule="micro-batches and bubble",
    judged=judged,
)
