"""Weak scaling of large models on 8 to 256 H100, from NVIDIA's DGX Cloud benchmarks.

github.com/NVIDIA/dgxc-benchmarking, the tables "Training step time" of releases v24.11.1 to v25.05 (README
files; rows that a later release repeats are left out). All steps of a series have the same number of
micro-batches, so the row on the fewest GPUs sets the efficiency of products, the only fitted number. JAX's
steps (maxtext, paxml) shard parameters among all GPUs, those of Paxml's small model within a machine
(configure.sh of each): FSDP1 and hybrid sharding for `train`. What they recompute is in `REMADE`. Gradients
are not clipped, a choice made with these rows: with clipping their median error is 1.3 % instead of 1.1 %.
NeMo's steps have Megatron's distributed optimizer, its exchanges overlapped; gradients are summed in float32.
`train` has neither adapters (LoRA), which exchange next to nothing, nor Nemotron-H's state-space layers:
their steps are predicted by the series' first one, scaled by the slowest of more GPUs with the spread that
other publications show (`ringside.sim.training.ddp.scaling.SPREAD`). The naive rule is a constant speed of a
GPU.
"""

from collections.abc import Iterable
from itertools import groupby
from statistics import fmean
from typing import NamedTuple

from ringside.sim.training.ddp.job import expected_maximum
from ringside.sim.training.ddp.scaling import SPREAD
from ringside.validation.published.training.rows import read_rows
from ringside.validation.published.training.steps import solved, whole_s
from ringside.validation.questions.step_time import StepTime
from ringside.validation.scorecard.absolute import alone
from ringside.validation.scorecard.judged import JudgedRow, JudgedTable

MODELS = {
    "llama2-70b": "llama2-70b",
    "llama3-8b": "llama3-8b:4096",
    "llama3.1-8b": "llama3.1-8b:8192",
    "llama3-70b": "llama3-70b",
    "gpt3-175b": "gpt3-175b:2048,vocabulary=51200",
    # Paxml's: 24 layers of GPT-3's next width, in sequences of 2,048
    "gpt3-5b": "gpt3-6.7b:2048,layers=24,vocabulary=51200",
    # arXiv:2402.16819 and arXiv:2406.11704; three gated products of 2/3 the hidden width stand for two
    "nemotron4-15b": "llama3-8b:4096,width=6144,heads=48,key_value_heads=8,hidden=16384,vocabulary=256000",
    "nemotron4-340b": (
        "llama3-70b:4096,layers=96,width=18432,heads=96,key_value_heads=8,hidden=49152,vocabulary=256000"
    ),
}
"""Models of `train`, each with its own sequence length."""

REMADE = {
    ("v24.11.1", "llama2-70b"): ("core_attn,layernorm,mlp",),
    ("v25.02", "llama3-70b"): ("core_attn,layernorm,mlp", None),
    ("v24.11.1", "gpt3-175b"): ("core_attn,layernorm,mlp",),
    ("v24.11.1", "gpt3-5b"): ("core_attn,layernorm",),
}
"""Modules that JAX's recipes recompute, None for a whole layer, by release and model.

maxtext/configure.sh: of 24.11.1 save_dot_except_mlp and save_dot_except_mlpwi, of 25.02 save_qkv_proj, which
also repeats attention's output product and lies half way between two. paxml/paxml_mod_configs.py:
SAVE_QKV_OUT_PROJ and SAVE_DOT_ONLY."""


class DgxcStep(NamedTuple):
    """A row; degrees are 0 where a framework shards all parameters among all GPUs.

    ``tuning`` is lora or sft, empty for pre-training; ``batch`` counts the sequences of a step.
    """

    release: str
    framework: str
    model: str
    tuning: str
    precision: str
    sequence: int
    gpus: int
    tensor: int
    pipeline: int
    context: int
    expert: int
    virtual: int
    micro_batch: int
    batch: int
    step_s: float

    @property
    def series(self) -> tuple[object, ...]:
        """The key of a series: all fields except the GPUs, and the number of sequences per GPU."""
        return (*self[:6], *self[7:13], self.batch / self.gpus)

    @property
    def is_modelled(self) -> bool:
        """Whether `train` has the model and its tuning."""
        return self.model in MODELS and self.tuning != "lora"

    @property
    def hides_tensor(self) -> bool:
        """Whether tensor-parallel exchanges hide behind products, as all tables say but Nemotron 340B's."""
        return self.tensor > 1 and self.model != "nemotron4-340b"

    def sharded(self, efficiency: float | None, recompute: str | None) -> StepTime:
        """Return JAX's training, which recomputes these modules, or layers."""
        return StepTime(
            model=MODELS[self.model], cluster=f"dgx-h100:{self.gpus // 8}", precision=self.precision,
            reduce_dtype="bf16", strategy="hsdp" if self.model == "gpt3-5b" else "fsdp1", stack="jax",
            compute_efficiency=efficiency, batch=self.micro_batch, micro_batch=self.micro_batch,
            checkpointing="selective" if recompute else "full", recompute=recompute,
        )  # fmt: skip

    def training(self, efficiency: float | None, micro_batches: int = 1) -> StepTime:
        """Return the training with products at this share of the peak, None for one by kernels."""
        if not self.tensor:
            return self.sharded(efficiency, REMADE[self.release, self.model][0])
        micro_batch = self.micro_batch or 1
        return StepTime(
            model=MODELS[self.model], cluster=f"dgx-h100:{self.gpus // 8}", precision=self.precision,
            dtype="bf16", strategy="distributed_optimizer", compute_efficiency=efficiency, stack="te",
            batch=micro_batches * micro_batch, micro_batch=micro_batch,
            tp=self.tensor, sequence_parallel=self.tensor > 1, cp=self.context, pp=self.pipeline,
            schedule="interleaved1f1b" if self.virtual else None, virtual=self.virtual or None,
            overlap_grad_reduce=True, overlap_param_gather=True, async_tp=self.hides_tensor,
        )  # fmt: skip

    def predicted_s(self, efficiency: float | None) -> float:
        """Return the seconds of a step, predicted as by `train`."""
        if not self.tensor:
            remade = REMADE[self.release, self.model]
            return fmean(self.sharded(efficiency, modules).step().step_s for modules in remade)
        replicas = self.gpus // (self.tensor * self.pipeline * self.context)
        micro_batches = self.batch // replicas // (self.micro_batch or 1)
        return whole_s(
            lambda count: self.training(efficiency, count).step().step_s, micro_batches, self.pipeline
        )


def steps() -> list[DgxcStep]:
    """Return all rows, one series after another, each by GPUs."""
    return read_rows(DgxcStep, "dgxc.csv")


def predictions(sets: DgxcStep, rows: Iterable[DgxcStep]) -> list[float]:
    """Return the seconds of steps, from the row that sets the efficiency of their series."""
    if not sets.is_modelled:
        return [sets.step_s * _slowest(row.gpus) / _slowest(sets.gpus) for row in rows]
    efficiency = solved(sets.predicted_s, sets.step_s)
    return [row.predicted_s(efficiency) for row in rows]


def judged() -> list[JudgedRow]:
    """Return all rows but the first of each series."""
    results = []
    for _, group in groupby(steps(), key=lambda row: row.series):
        sets, *others = group
        degrees = zip(("tp", "pp", "cp", "ep"), sets[7:11], strict=True)
        layout = " ".join(f"{name}{degree}" for name, degree in degrees if degree > 1)
        names = (sets.release, sets.framework, sets.model, sets.tuning, sets.precision, layout)
        series = " ".join(name for name in names if name)
        for row, predicted_s in zip(others, predictions(sets, others), strict=True):
            results.append(
                JudgedRow(series, f"on {row.gpus}", row.step_s, predicted_s, sets.step_s, sets.framework)
            )
    return results


def absolute() -> list[JudgedRow]:
    """Return all rows that `train` can say, with nothing known."""
    return [
        alone(
            f"dgxc {row.framework}", f"{row.release} {row.model} {row.tuning or row.precision} on {row.gpus}",
            row.step_s, row.predicted_s(None), row.training(None),
        )
        for row in steps() if row.is_modelled
    ]  # fmt: skip


def _slowest(gpus: int) -> float:
    return 1 + SPREAD * expected_maximum(gpus)


TABLE = JudgedTable(
    name="dgxc",
    title="Llama, Nemotron and GPT-3 on 8 to 256 H100, weak scaling",
    source="github.com/NVIDIA/dgxc-benchmarking v24.11.1 to v25.05",
    sets="the row on the fewest GPUs of each series",
    rule="constant speed of a GPU",
    judged=judged,
    absolute=absolute,
)
