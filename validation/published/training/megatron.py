"""GPT models of 1 to 8 billion parameters under Megatron-LM's tensor and data parallelism, in 2020.

github.com/NVIDIA/Megatron-LM, images/tables.tex @ 5281919420: weak scaling on a DGX-2 with V100 and on DGX
A100, a model for each degree of tensor parallelism, in float16 with full checkpointing, sequences of 1,024
tokens and one micro-batch a step; on 128 replicas with 16 sequences each. Of each kind of GPU the model on
one sets the efficiency of products for the others (tensor), and each model on one replica that on 128 (data).
The naive rules are a constant utilization and steps as long as those of one replica. Later tables of the same
repository do not say their micro-batches.
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

MACHINES = {"v100": ("dgx2-v100", 16), "a100": ("dgx-a100", 8)}


class Step(NamedTuple):
    """A row; ``batch`` counts the sequences of all GPUs."""

    gpu: str
    model: str
    width: int
    heads: int
    layers: int
    tensor: int
    gpus: int
    batch: int
    step_s: float

    @property
    def decoder(self) -> Decoder:
        """The model."""
        return replace(
            DECODERS["gpt3-1.3b"], name=self.model, layers=self.layers, width=self.width, heads=self.heads,
            key_value_heads=self.heads, hidden=4 * self.width, vocabulary=51200, sequence=1024, longest=1024,
            positions=1024,
        )  # fmt: skip

    @property
    def replicas(self) -> int:
        """Copies of the model."""
        return self.gpus // self.tensor

    @property
    def trained(self) -> LaidOut:
        """The training."""
        name, each = MACHINES[self.gpu]
        layout = Layout(tensor=self.tensor, micro_batch=self.batch // self.replicas, checkpointing="full")
        return LaidOut(
            self.decoder, device(self.gpu), f"{name}:{-(-self.gpus // each)}", self.gpus, layout, self.batch
        )

    @property
    def flops(self) -> float:
        """What a GPU computes in a step, checkpointing with it."""
        decoder = self.decoder
        return self.batch / self.gpus * (decoder.training_flops() + decoder.recomputed_flops("full"))


def steps() -> Iterator[Step]:
    """All rows."""
    with Path(__file__).with_name("megatron.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            numbers = [int(row[name]) for name in Step._fields[2:8]]
            yield Step._make([row["gpu"], row["model"], *numbers, float(row["step_ms"]) / 1e3])


def judged() -> list[Judged]:
    """Wider models on more GPUs, then more replicas."""
    rows, found = list(steps()), []
    for gpu in MACHINES:
        sets, *others = [row for row in rows if row.gpu == gpu and row.replicas == 1]
        efficiency = solved(sets.trained.step_s, sets.step_s)
        for row in others:
            rule_s = sets.step_s * row.flops / sets.flops
            predicted_s = row.trained.step_s(efficiency)
            series = f"{gpu}, from {sets.model}"
            found.append(Judged(series, row.model, row.step_s, predicted_s, rule_s, "tensor"))
    alone = {(row.gpu, row.model): row for row in rows if row.replicas == 1}
    for row in (row for row in rows if row.replicas > 1):
        sets = alone[row.gpu, row.model]
        predicted_s = row.trained.step_s(solved(sets.trained.step_s, sets.step_s))
        series = f"{row.gpu} {row.model}, from {sets.gpus}"
        found.append(Judged(series, f"on {row.gpus}", row.step_s, predicted_s, sets.step_s, "data"))
    return found


TABLE = TrainingTable(
    name="megatron",
    title="GPT of 1 to 8 billion parameters under Megatron-LM on 1 to 1024 V100 or A100",
    source="github.com/NVIDIA/Megatron-LM, images/tables.tex @ 5281919420",
    sets="the model on one GPU, or on one replica",
    rule="constant utilization; as long as on one replica",
    judged=judged,
)
