"""Llama 3 8B under FSDP2 in torchtitan, on 8 to 128 GPUs, in long contexts and with asynchronous TP.

github.com/pytorch/torchtitan, benchmarks/ @ b5bcd76c66d0 (2026-08-21): llama3_h100_202412, tables 1 to 3;
asyncTP_llama3_h100_2025-06, whose sequences are taken as the model's 8,192; llama3-8b_h200_202506. One
iteration of one run each. Of each series the first row sets the efficiency of products, with attention proper
at 35 % of the peak, which FlashAttention-2 reaches on H100 (arXiv:2407.08608, abstract), half its square
computed. GPUs are H100 of 96 GB with 2.4 TB/s, and H200. The spread of GPUs is one number, fitted for each
series on the other series' rows with more GPUs. Long contexts are predicted as a naive ring's: the division
of sequences is not published, but with balanced work the rates of 2, 4 and 8 ranks would be 8, 61 and 82 %
too high. The naive rules are the first row's rate, and in long contexts that rate over the tokens, as if
scores took all the time.
"""

from collections.abc import Sequence
from functools import partial
from itertools import groupby
from statistics import fmean, median
from typing import NamedTuple

from scipy.optimize import brentq

from ringside.validation.published.training.rows import read_rows
from ringside.validation.questions.step_time import StepTime
from ringside.validation.scorecard.absolute import alone
from ringside.validation.scorecard.judged import JudgedRow, JudgedTable

ATTENTION = 0.35
"""Share of the peak that attention proper reaches."""

SPREADS = (0.015, 0.02, 0.025, 0.03, 0.035)
"""Options for the spread of GPUs; the other series' rows choose. The first is the usual one."""


class TorchtitanRun(NamedTuple):
    """A row; ``role`` says whether it sets its series' efficiency, or names its judged group.

    Rows without one stand alone. Under ``half`` every second layer is checkpointed.
    """

    series: str
    role: str
    model: str
    gpu: str
    gpus: int
    sequence: int
    micro_batch: int
    tensor: int
    context: int
    checkpointing: str
    float8_gather: bool
    async_tp: bool
    tokens_per_s: float
    """Tokens per second of one GPU."""

    @property
    def step_s(self) -> float:
        """Seconds of a step, as measured."""
        return self.micro_batch * self.sequence / self.tensor / self.context / self.tokens_per_s


def runs() -> list[TorchtitanRun]:
    """Return all rows, in the tables' order."""
    return read_rows(TorchtitanRun, "torchtitan.csv")


def training(row: TorchtitanRun, efficiency: float | None, spread: float | None = None) -> StepTime:
    """Return the training with products at this share of the peak, None for one by kernels."""
    return StepTime(
        model=f"{row.model}:{row.sequence},longest={max(row.sequence, 8192)}",
        cluster=f"dgx-{row.gpu}:{row.gpus // 8}",
        device="h100-96gb" if row.gpu == "h100" else row.gpu, compute_efficiency=efficiency,
        precision="fp8" if row.series.startswith(("float8", "long")) else "bf16",
        stack="eager" if row.series in ("eager", "A100") else "compile",
        attention_efficiency=None if efficiency is None else ATTENTION, spread=spread,
        strategy="fsdp", param_dtype="float8_e4m3fn" if row.float8_gather else None,
        tp=row.tensor, sequence_parallel=row.tensor > 1, async_tp=row.async_tp,
        tp_style="dtensor" if row.tensor > 1 else None,
        cp=row.context, cp_method="ring" if row.context > 1 else None,
        batch=row.micro_batch, micro_batch=row.micro_batch, checkpointing=row.checkpointing,
    )  # fmt: skip


def predicted_s(row: TorchtitanRun, efficiency: float | None, spread: float | None = None) -> float:
    """Return the seconds of a step."""
    if row.checkpointing == "half":
        return fmean(
            predicted_s(row._replace(checkpointing=each), efficiency, spread) for each in ("none", "full")
        )
    return training(row, efficiency, spread).step().step_s


def judged() -> list[JudgedRow]:
    """Return the rows of each series but its first."""
    series = [
        tuple(group) for _, group in groupby((row for row in runs() if row.role), key=lambda row: row.series)
    ]
    scaling = [one for one in series if one[1].role == "scaling"]
    others = [one for one in series if one not in scaling]
    by_spread = {spread: [_judged(one, spread)[0] for one in scaling] for spread in SPREADS}

    def error_of_others(place: int, spread: float) -> float:
        return median(abs(row.error) for other, row in enumerate(by_spread[spread]) if other != place)

    chosen = [min(SPREADS, key=partial(error_of_others, place)) for place in range(len(scaling))]
    scaled = [by_spread[spread][place] for place, spread in enumerate(chosen)]
    return [*scaled, *(row for one in others for row in _judged(one))]


def _judged(series: Sequence[TorchtitanRun], spread: float | None = None) -> list[JudgedRow]:
    """Return the rows of a series but its first, which sets the efficiency."""
    sets, *others = series
    efficiency = brentq(lambda share: predicted_s(sets, share, spread) - sets.step_s, 0.05, 1.0, xtol=1e-4)
    return [
        JudgedRow(
            row.series, f"{row.gpus} {row.gpu}, {row.sequence} tokens", row.tokens_per_s,
            row.tokens_per_s * row.step_s / predicted_s(row, efficiency, spread),
            sets.tokens_per_s * sets.sequence / row.sequence, row.role,
        )
        for row in others
    ]  # fmt: skip


def absolute() -> list[JudgedRow]:
    """Return all rows, with nothing known."""
    return [
        alone(
            "torchtitan", f"{row.series} {row.model} on {row.gpus} {row.gpu}, {row.sequence} tokens",
            row.step_s, predicted_s(row, None), training(row._replace(checkpointing="none"), None),
        )
        for row in runs()
    ]  # fmt: skip


TABLE = JudgedTable(
    name="torchtitan",
    title="Llama 3 8B in torchtitan, tokens/s of a GPU",
    source="github.com/pytorch/torchtitan, benchmarks/ @ b5bcd76c66d0",
    sets="the first row of each series",
    rule="the first row's rate; in long contexts over the tokens, as if scores took all the time",
    judged=judged,
    absolute=absolute,
    unit="/s",
)
