"""Llama 3 and DeepSeek-V3 under Megatron Bridge on 8 to 256 H100, B200 and GB200, in 8 and 4 bits.

github.com/NVIDIA-NeMo/Megatron-Bridge, docs/performance-summary.md and its archive @ 067f987df03b, releases
25.09 to 26.08: tokens/s of a GPU. Those of 25.09 name no precision; FP8 with scales of whole tensors, which
25.11 names for the same layouts. Where two figures are printed the second is MXFP8 (25.11), or left out.
Experts have equal loads. Rows with the module that predicts a second token (``second_token``, as the FLOPs
printed beside them say) have one layer more; its output product is missing. What is recomputed or moved to
the host is not printed, and taken for nothing; tensor-parallel exchanges hide behind products. A rack of
GB200 has 64 of its 72 GPUs in use where there are several. ``fsdp`` is Megatron's own, for `train` FSDP2's
exchanges with the kernels of TransformerEngine. Experts over several machines get their tokens by DeepEP,
behind another micro-batch's passes (scripts/performance/configs/deepseek).

Every layout stands alone or is repeated in later releases, so no row is predicted from another. Left out:
what `train` has no model for (GPT-OSS, Qwen3, Nemotron, DeepSeek-V4) and adapters (LoRA).
"""

from typing import NamedTuple

from ringside.validation.published.training.rows import read_rows
from ringside.validation.published.training.steps import whole_s
from ringside.validation.questions.step_time import StepTime
from ringside.validation.scorecard.absolute import alone
from ringside.validation.scorecard.judged import JudgedRow, JudgedTable

MACHINES = {"h100": ("dgx-h100", 8), "b200": ("dgx-b200", 8), "gb200": ("gb200-nvl72", 64)}
"""The cluster of each machine, and the number of GPUs in use of one."""


class BridgeStep(NamedTuple):
    """A row; ``tuning`` is sft or empty, ``batch`` counts the sequences of a step."""

    container: str
    tuning: str
    model: str
    second_token: bool
    machine: str
    gpus: int
    precision: str
    sequence: int
    fsdp: bool
    tensor: int
    pipeline: int
    context: int
    expert: int
    virtual: int
    micro_batch: int
    batch: int
    tokens_per_s: float

    @property
    def step_s(self) -> float:
        """Seconds of a step, as measured."""
        return self.batch * self.sequence / self.gpus / self.tokens_per_s

    @property
    def micro_batches(self) -> int:
        """The number of micro-batches of a replica."""
        return self.batch // self.micro_batch * self.tensor * self.pipeline * self.context // self.gpus

    @property
    def name(self) -> str:
        """The row in words."""
        degrees = zip(("tp", "pp", "cp", "ep"), self[9:13], strict=True)
        layout = " ".join(f"{name}{degree}" for name, degree in degrees if degree > 1)
        names = (self.container, self.model, self.tuning, self.precision, "fsdp" if self.fsdp else "", layout)
        return f"{' '.join(name for name in names if name)} on {self.gpus} {self.machine}"

    def training(self, micro_batches: int) -> StepTime:
        """Return the training of this number of micro-batches, with nothing known."""
        cluster, each = MACHINES[self.machine]
        model = f"{self.model}:{self.sequence}" + (",layers=62" if self.second_token else "")
        cluster = f"{cluster}:{-(-self.gpus // each)}"
        batch = micro_batches * self.micro_batch
        across = self.expert > each
        if self.fsdp:
            return StepTime(
                model=model, cluster=cluster, ranks=self.gpus, device=self.machine,
                precision=self.precision, stack="te", strategy="fsdp", reduce_dtype="bf16",
                tp=self.tensor, sequence_parallel=self.tensor > 1, batch=batch, micro_batch=self.micro_batch,
            )  # fmt: skip
        return StepTime(
            model=model, cluster=cluster, ranks=self.gpus, device=self.machine,
            precision=self.precision, dtype="bf16", stack="te",
            strategy="distributed_optimizer", batch=batch, micro_batch=self.micro_batch, tp=self.tensor,
            sequence_parallel=self.tensor > 1, cp=self.context, ep=self.expert,
            dispatcher="deepep" if across else "alltoall", overlap_experts=across, pp=self.pipeline,
            schedule="interleaved1f1b" if self.virtual else None, virtual=self.virtual or None,
            overlap_grad_reduce=True, overlap_param_gather=True, async_tp=self.tensor > 1,
        )  # fmt: skip

    @property
    def predicted_s(self) -> float:
        """The seconds of a step."""
        return whole_s(lambda count: self.training(count).step().step_s, self.micro_batches, self.pipeline)


def steps() -> list[BridgeStep]:
    """Return all rows in the pages' order."""
    return read_rows(BridgeStep, "megatron_bridge/steps.csv")


def absolute() -> list[JudgedRow]:
    """Return all rows, with nothing known; layouts that are published again are simulated once."""
    results, known = [], dict[tuple[object, ...], float]()
    for row in steps():
        key = row[2:-1]
        if key not in known:
            known[key] = row.predicted_s
        question = row.training(row.pipeline)
        results.append(alone("megatron_bridge", row.name, row.step_s, known[key], question))
    return results


TABLE = JudgedTable(
    name="megatron_bridge",
    title="Llama 3 and DeepSeek-V3 under Megatron Bridge on 8 to 256 H100, B200 and GB200",
    source="github.com/NVIDIA-NeMo/Megatron-Bridge, docs/performance-summary.md @ 067f987df03b",
    absolute=absolute,
)
