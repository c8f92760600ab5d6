"""MPT models under FSDP1 on 8 to 64 GPUs, from llm-foundry's benchmark table.

github.com/mosaicml/llm-foundry, scripts/train/benchmarking/README.md @ 8c8dd48f7216 (Apache-2.0), rows in
bfloat16: GPT shapes with 50,368 tokens and learned positions, one FSDP unit per block, gradients reduced
after each micro-batch, the loss in one kernel (llmfoundry/models/mpt/modeling_mpt.py). Parameters are kept in
float32 whatever the precision, which names the types of what is gathered and reduced (Composer's
``get_mixed_precision``); the benchmark's own script counts 16 bytes per parameter. The table names the A100
machines' network (8 x 200 Gb/s); H100 machines are assumed to be DGX. For each model and GPU the row with the
fewest GPUs and sequences of 2,048 sets the efficiency of products, and those with more GPUs are judged. The
time that Composer takes per step while GPUs wait (batches, schedules, the norm that it reads, records) is one
number, fitted for each model on all others. The naive rule is a constant utilization. Gradients are clipped
and layers checkpointed without reentry, as the recipes of the same repository do
(scripts/train/yamls/pretrain).
"""

from collections.abc import Iterator
from functools import partial
from itertools import groupby
from statistics import median
from typing import NamedTuple

from ringside.sim.training.step import Utilization
from ringside.sim.workload.decoder import Decoder, decoder
from ringside.sim.workload.devices import Device, device
from ringside.validation.published.training.rows import read_rows
from ringside.validation.published.training.steps import solved, whole_s
from ringside.validation.questions.step_time import StepTime
from ringside.validation.scorecard.absolute import alone
from ringside.validation.scorecard.judged import JudgedRow, JudgedTable

MODELS = {
    "mpt-125m": (12, 768, 12),
    "mpt-350m": (24, 1024, 16),
    "mpt-760m": (24, 1536, 12),
    "mpt-1b": (24, 2048, 16),
    "mpt-3b": (32, 2560, 20),
    "mpt-7b": (32, 4096, 32),
    "mpt-13b": (40, 5120, 40),
    "mpt-30b": (48, 7168, 56),
    "mpt-70b": (80, 8192, 64),
}
"""Layers, width and heads (scripts/train/yamls/pretrain of the same repository)."""

GPUS = {"a100_40gb": "a100-40gb", "a100_80gb": "a100", "h100_80gb": "h100"}

SETTING = 2048
"""Tokens of the sequences whose rows are compared across GPU counts."""

HOST_S = (0.0, 0.005, 0.01, 0.015, 0.02)
"""Options for the seconds of a step in which GPUs wait for the host; the other models' rows choose."""


class MptRun(NamedTuple):
    """A row; ``precision`` is Composer's for FSDP, default or pure."""

    gpu: str
    model: str
    sequence: int
    gpus: int
    micro_batch: int
    accumulation: int
    precision: str
    checkpointing: str
    tokens_per_s: float

    @property
    def model_text(self) -> str:
        """The model, with positions for its sequences."""
        layers, width, heads = MODELS[self.model]
        shape = f"layers={layers},width={width},heads={heads},vocabulary=50368,positions={self.sequence}"
        return f"gpt3-125m:{self.sequence},{shape}"

    @property
    def decoder(self) -> Decoder:
        """The model's sizes."""
        return decoder(self.model_text)

    @property
    def device(self) -> Device:
        """The GPU."""
        return device(GPUS[self.gpu])

    @property
    def reduced(self) -> str:
        """The type of gradients on their way: float32 in the newer Composer of H100 rows across machines."""
        return "float32" if self.gpu == "h100_80gb" and self.gpus > 8 else "bfloat16"

    @property
    def cluster(self) -> str:
        """The machine that stands for the table's."""
        return "dgx-h100" if self.gpu.startswith("h100") else "dgx-a100"

    @property
    def samples(self) -> int:
        """Sequences of a step."""
        return self.gpus * self.micro_batch * self.accumulation

    @property
    def step_s(self) -> float:
        """Seconds of a step, as measured."""
        return self.samples * self.sequence / self.tokens_per_s

    @property
    def hfu(self) -> float:
        """Hardware FLOPs utilization, with the whole square of scores, as in the table."""
        return Utilization(
            decoder=self.decoder, samples=self.samples, step_s=self.step_s, gpus=self.gpus,
            peak=self.device.peak("bfloat16"), checkpointing=self.checkpointing,
        ).hfu  # fmt: skip


def runs() -> list[MptRun]:
    """Return all rows in the table's order."""
    return read_rows(MptRun, "llm_foundry.csv")


def training(row: MptRun, efficiency: float | None, micro_batches: int) -> StepTime:
    """Return the training of some micro-batches, products at this share of the peak or by kernels."""
    return StepTime(
        model=row.model_text, cluster=f"{row.cluster}:{row.gpus // 8}",
        device=GPUS[row.gpu], precision="bf16",
        dtype="fp32", reduce_dtype=row.reduced, loss="fused",
        compute_efficiency=efficiency, stack="fsdp1", strategy="fsdp1", clip=True,
        checkpointing=row.checkpointing,
        batch=micro_batches * row.micro_batch, micro_batch=row.micro_batch,
    )  # fmt: skip


def predicted_s(row: MptRun, efficiency: float | None) -> float:
    """Return the seconds of a step without the host's part."""
    return whole_s(lambda count: training(row, efficiency, count).step().step_s, row.accumulation)


def judged() -> list[JudgedRow]:
    """Return the rows with more GPUs than the one that sets their model's efficiency."""
    by_host = {host_s: list(_judged(host_s)) for host_s in HOST_S}
    models = [row.series.split()[0] for row in by_host[0.0]]

    def others_error(model: str, host_s: float) -> float:
        rows = zip(by_host[host_s], models, strict=True)
        return median(abs(row.error) for row, name in rows if name != model)

    chosen = {model: min(HOST_S, key=partial(others_error, model)) for model in models}
    return [by_host[chosen[model]][place] for place, model in enumerate(models)]


def absolute() -> list[JudgedRow]:
    """Return all rows, with nothing known and no time of the host."""
    return [
        alone(
            "llm_foundry", f"{row.model} of {row.sequence} on {row.gpus} {row.gpu}", row.step_s,
            predicted_s(row, None), training(row, None, 1),
        )
        for row in runs()
    ]  # fmt: skip


def _judged(host_s: float) -> Iterator[JudgedRow]:
    """Yield the held-out rows if the host takes this many seconds of each step."""
    rows = [row for row in runs() if row.sequence == SETTING]
    for _, group in groupby(sorted(rows, key=lambda row: row[:2]), key=lambda row: row[:2]):
        sets, *others = sorted(group, key=lambda row: row.gpus)
        more = [row for row in others if row.gpus > sets.gpus]
        efficiency = _solved(sets, sets.step_s - host_s) if more else 0.0
        for row in more:
            rule_s = row.step_s * row.hfu / sets.hfu
            series = f"{row.model} on {GPUS[row.gpu]}, from {sets.gpus}"
            yield JudgedRow(
                series, f"on {row.gpus}", row.step_s, predicted_s(row, efficiency) + host_s, rule_s
            )


def _solved(row: MptRun, step_s: float) -> float:
    """Return the efficiency that this step time of a row implies."""
    return solved(partial(predicted_s, row), step_s)


TABLE = JudgedTable(
    name="llm_foundry",
    title="MPT under FSDP1 on 8 to 64 A100 or H100",
    source="github.com/mosaicml/llm-foundry, scripts/train/benchmarking/README.md @ 8c8dd48f7216",
    sets="the row on the fewest GPUs of each model and GPU; 10 to 20 ms per step by the other models",
    rule="constant utilization",
    judged=judged,
    absolute=absolute,
)
