"""Llama 2 of 7 to 70 billion parameters, fully sharded by fms-fsdp and by MaxText, on 8 to 128 GPUs.

github.com/foundation-model-stack/fms-fsdp, README.md @ 5a296afe42f9: FSDP1 with torch.compile, sequences of
4,096 tokens; machines of 8 A100 with 400 Gb/s, or of 8 H100 with 800 Gb/s. With selective checkpointing some
blocks are recomputed; their share follows from the printed MFU and HFU.

github.com/AI-Hypercomputer/maxtext, src/maxtext/configs/gpu/a3/llama_2_7b @ e591f30cbbf2: FLOP/s of a GPU,
attention's whole square counted; parameters sharded within a machine of Google Cloud's A3 (four cards of 200
Gb/s), replicas across; four sequences of 4,096 tokens a GPU, no products recomputed. Its row on one machine
sets the efficiency of products for those on more. The naive rule is a constant speed of a GPU.

MaxText's exchange between machines is not hidden, unlike `train`'s: without a profile of the step, which this
recipe lacks (that of 70 billion parameters has one), XLA takes any exchange to last as long as five products
(xla/service/gpu/gpu_latency_hiding_scheduler.cc, GpuLatencyEstimator::NodeCost), and the recipe joins them up
to 1 GiB (xla_gpu_all_reduce_combine_threshold_bytes): two exchanges hide behind 10 of some 450 products. All
eight GPUs of a machine exchange at once, each with its share of the cards.
"""

from typing import NamedTuple

from ringside.sim.training.step import ParallelStep
from ringside.sim.workload.decoder import decoder
from ringside.validation.published.training.rows import read_rows
from ringside.validation.published.training.steps import solved
from ringside.validation.questions.step_time import StepTime
from ringside.validation.scorecard.absolute import alone
from ringside.validation.scorecard.judged import JudgedRow, JudgedTable

SEQUENCE, MACHINE = 4096, 8
# Rozière et al., arXiv:2308.12950: Code Llama 34B
MODELS = {"llama2-34b": "llama2-70b:4096,layers=48,width=8192,heads=64,key_value_heads=8,hidden=22016"}
MACHINES = {
    ("fms-fsdp", "a100"): ("dgx-a100", "6.25GB/s"),
    ("fms-fsdp", "h100"): ("dgx-h100", "12.5GB/s"),
    ("maxtext", "h100"): ("gcp-a3mega", "12.5GB/s"),
}
"""The machines, with the share of the network of each of their eight cards."""

REDUCED = 2
"""Bytes of a parameter's gradient, which is summed in bfloat16."""

CARD = 12.5e9
"""Bytes/s of a GPU's share of an A3's cards."""


class ShardedStep(NamedTuple):
    """A row; ``mfu`` and ``hfu`` are NaN where not printed, and so is one of both rates."""

    framework: str
    model: str
    gpu: str
    gpus: int
    sharding: str
    micro_batch: int
    mfu: float
    hfu: float
    tokens_per_s: float
    tflops: float

    @property
    def decoder(self) -> str:
        """The model."""
        return MODELS.get(self.model, f"{self.model}:{SEQUENCE}")

    @property
    def step_s(self) -> float:
        """Seconds of a step, as measured."""
        if self.framework == "maxtext":
            return self.micro_batch * decoder(self.decoder).training_flops() / self.tflops / 1e12
        return self.micro_batch * SEQUENCE / self.tokens_per_s

    @property
    def recomputed(self) -> float:
        """The share of blocks that are recomputed."""
        return min(3 * (self.hfu / self.mfu - 1), 1.0) if self.hfu > self.mfu else 0.0

    def training(self, efficiency: float | None, checkpointing: str = "none") -> StepTime:
        """Return the training with products at this share of the peak, None for one by kernels."""
        machine, nic = MACHINES[self.framework, self.gpu]
        return StepTime(
            model=self.decoder, cluster=f"{machine}:{self.gpus // MACHINE}", settings={"nic": nic},
            precision="bf16", compute_efficiency=efficiency, reduce_dtype="bf16",
            stack="compile" if self.framework == "fms-fsdp" else "jax",
            strategy="hsdp" if self.sharding == "hsdp" and self.gpus > MACHINE else "fsdp1",
            batch=self.micro_batch,
            micro_batch=self.micro_batch, checkpointing=checkpointing,
        )  # fmt: skip

    def exposing_s(self, step: ParallelStep) -> float:
        """Return the seconds of a step whose replicas exchange nothing beside computing."""
        machines = self.gpus // MACHINE
        nbytes = REDUCED * decoder(self.decoder).num_parameters / MACHINE
        exchange_s = 2 * (machines - 1) / machines * nbytes / CARD
        return step.step_s - step.stages[0].exposed_by_s.get("replicate", 0.0) + exchange_s

    def predicted_s(self, efficiency: float | None) -> float:
        """Return the seconds of a step, between those that recompute no block and all."""
        step = self.training(efficiency).step()
        assert isinstance(step, ParallelStep)
        if self.framework == "maxtext":
            return self.exposing_s(step)
        none_s = step.step_s
        if not self.recomputed:
            return none_s
        full_s = self.training(efficiency, "full").step().step_s
        return none_s + self.recomputed * (full_s - none_s)


def steps() -> list[ShardedStep]:
    """Return all rows."""
    return read_rows(ShardedStep, "llama2_fsdp/steps.csv")


def judged() -> list[JudgedRow]:
    """Return MaxText's rows on more than one machine."""
    sets, *others = (row for row in steps() if row.framework == "maxtext")
    efficiency = solved(sets.predicted_s, sets.step_s)
    return [
        JudgedRow("maxtext", f"on {row.gpus}", row.step_s, row.predicted_s(efficiency), sets.step_s)
        for row in others
    ]


def absolute() -> list[JudgedRow]:
    """Return all rows, with nothing known."""
    return [
        alone(
            row.framework, f"{row.model} on {row.gpus} {row.gpu}", row.step_s, row.predicted_s(None),
            row.training(None),
        )
        for row in steps()
    ]  # fmt: skip


TABLE = JudgedTable(
    name="llama2_fsdp",
    title="Llama 2 fully sharded by fms-fsdp and MaxText on 8 to 128 A100 or H100",
    source="foundation-model-stack/fms-fsdp @ 5a296afe42f9; AI-Hypercomputer/maxtext @ e591f30cbbf2",
    sets="MaxText's row on one machine",
    rule="constant speed of a GPU",
    judged=judged,
    absolute=absolute,
)
