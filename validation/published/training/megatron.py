"""GPT models of 1 to 8 billion parameters under Megatron-LM's tensor and data parallelism, in 2020.

github.com/NVIDIA/Megatron-LM, images/tables.tex @ 5281919420: weak scaling on a DGX-2 with V100 and on DGX
A100, a model for each degree of tensor parallelism, in float16 with full checkpointing, sequences of 1,024
tokens and one micro-batch a step; on 128 replicas with 16 sequences each. For each kind of GPU the model on
one GPU sets the efficiency of products for the others (part tensor), and each model on one replica sets that
on 128 (part data). The repository's README (distributed pretraining, ``--DDP-impl``) finds torch's
DistributedDataParallel faster for 8.3 billion parameters, and slower than its own, which sums all gradients
after backward, for 1.2 billion on one GPU and 2.5 billion on two: each model is taken under the faster one,
that of 4 billion as the largest. The naive rules are a constant utilization and steps as long as those of one
replica. Later tables of the same repository do not state their micro-batches.
"""

from typing import NamedTuple

from ringside.sim.workload.decoder import decoder
from ringside.validation.published.training.rows import read_rows
from ringside.validation.published.training.steps import ONE_BUCKET_MB, solved
from ringside.validation.questions.step_time import StepTime
from ringside.validation.scorecard.absolute import alone
from ringside.validation.scorecard.judged import JudgedRow, JudgedTable

MACHINES = {"v100": ("dgx2-v100", 16), "a100": ("dgx-a100", 8)}


class MegatronStep(NamedTuple):
    """A row; ``batch`` counts the sequences of all GPUs."""

    gpu: str
    model: str
    width: int
    heads: int
    layers: int
    tensor: int
    gpus: int
    batch: int
    step_ms: float

    @property
    def step_s(self) -> float:
        """Seconds of a step, as measured."""
        return self.step_ms / 1e3

    @property
    def decoder(self) -> str:
        """The model."""
        shape = f"layers={self.layers},width={self.width},heads={self.heads},vocabulary=51200,positions=1024"
        return f"gpt3-1.3b:1024,{shape}"

    @property
    def replicas(self) -> int:
        """Copies of the model."""
        return self.gpus // self.tensor

    @property
    def overlaps(self) -> bool:
        """Whether torch's DistributedDataParallel sums gradients, beside backward."""
        return self.tensor > 2

    def training(self, efficiency: float | None) -> StepTime:
        """Return the training with products at this share of the peak, None for one by kernels."""
        name, each = MACHINES[self.gpu]
        batch = self.batch // self.replicas
        return StepTime(
            model=self.decoder, cluster=f"{name}:{-(-self.gpus // each)}",
            ranks=self.gpus, precision="fp16", dtype="fp16",
            compute_efficiency=efficiency, stack="megatron", dropout=True, tp=self.tensor,
            batch=batch, micro_batch=batch,
            checkpointing="full", bucket_cap_mb=25.0 if self.overlaps else ONE_BUCKET_MB,
        )  # fmt: skip

    def predicted_s(self, efficiency: float | None) -> float:
        """Return the seconds of a step."""
        return self.training(efficiency).step().step_s

    @property
    def flops(self) -> float:
        """The FLOPs of a GPU in a step, recomputation included."""
        model = decoder(self.decoder)
        return self.batch / self.gpus * (model.training_flops() + model.recomputed_flops("full"))


def steps() -> list[MegatronStep]:
    """Return all rows."""
    return read_rows(MegatronStep, "megatron.csv")


def judged() -> list[JudgedRow]:
    """Return wider models on more GPUs, then more replicas."""
    rows, results = steps(), []
    for gpu in MACHINES:
        sets, *others = [row for row in rows if row.gpu == gpu and row.replicas == 1]
        efficiency = solved(sets.predicted_s, sets.step_s)
        for row in others:
            rule_s = sets.step_s * row.flops / sets.flops
            predicted_s = row.predicted_s(efficiency)
            series = f"{gpu}, from {sets.model}"
            results.append(JudgedRow(series, row.model, row.step_s, predicted_s, rule_s, "tensor"))
    alone = {(row.gpu, row.model): row for row in rows if row.replicas == 1}
    for row in (row for row in rows if row.replicas > 1):
        sets = alone[row.gpu, row.model]
        predicted_s = row.predicted_s(solved(sets.predicted_s, sets.step_s))
        series = f"{row.gpu} {row.model}, from {sets.gpus}"
        results.append(JudgedRow(series, f"on {row.gpus}", row.step_s, predicted_s, sets.step_s, "data"))
    return results


def absolute() -> list[JudgedRow]:
    """Return all rows, with nothing known."""
    return [
        alone("megatron", f"{row.model} on {row.gpus}", row.step_s, row.predicted_s(None), row.training(None))
        for row in steps()
    ]


TABLE = JudgedTable(
    name="megatron",
    title="GPT of 1 to 8 billion parameters under Megatron-LM on 1 to 1024 V100 or A100",
    source="github.com/NVIDIA/Megatron-LM, images/tables.tex @ 5281919420",
    sets="the model on one GPU, or on one replica",
    rule="constant utilization; as long as on one replica",
    judged=judged,
    absolute=absolute,
)
