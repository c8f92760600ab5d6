"""InternLM 7B under InternEvo's hybrid ZeRO-1 on 8 to 128 A100: groups of a machine's ranks, or of all.

github.com/InternLM/InternEvo, doc/en/train_performance.md @ c628a8c87411 (Apache-2.0): tokens a second of a
GPU, sequences of 2,048, a step of 16,384 tokens a GPU. Machines have 8 A100 of 80 GB and four cards of 100
Gb/s (RoCE), as ABCI's (A) node with slower cards. The row on 8 GPUs of each series sets the pace.

One number is fitted, for each row on all others: the time that a broadcast takes per rank that it passes, in
addition to the tuner's estimate, which includes it for small buffers only. A step has a broadcast for each
rank of the group, one after another, so it grows with the square of the group. The naive rule is a constant
speed of each GPU.

All steps here have as many tokens per GPU, so none shows what a smaller part of a batch would not shorten.
The rows on 8 GPUs do, because their micro-batches and checkpointing differ: with `host_s`, in which GPUs wait
for their hosts, they imply one efficiency of products, near the rates that A100 were measured with.
"""

from collections.abc import Iterator
from functools import cache, partial
from statistics import fmean, stdev
from typing import NamedTuple

from ringside.sim.training.layers import RankLayer
from ringside.sim.training.zero.partition import dealt
from ringside.validation.published.training.rows import read_rows
from ringside.validation.published.training.steps import solved
from ringside.validation.questions.step_time import StepTime
from ringside.validation.scorecard.absolute import alone
from ringside.validation.scorecard.judged import JudgedRow, JudgedTable

MODEL = "llama2-7b:2048,vocabulary=103168"
"""Llama's shape with its own vocabulary (InternEvo, configs/7B_sft.py)."""

SEQUENCE = 2048
CLUSTER, CARDS = "abci-a100", {"nic": "12.5GB/s"}
MACHINE = 8

TOKENS = 16_384
"""Tokens per step and GPU."""

HOP_S = (0.0, 2.5e-6, 5e-6, 7.5e-6, 1e-5, 1.5e-5, 2e-5)
"""Options for the seconds per rank that a broadcast passes; all other rows choose."""

HOST_S = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)
"""Options for the seconds of a step in which GPUs wait for their hosts."""


class InternEvoRun(NamedTuple):
    """A row; optimizers are sharded over ``group`` ranks, ``tokens_per_s`` are per GPU."""

    tensor: int
    group: int
    micro_batch: int
    checkpointing: str
    gpus: int
    tokens_per_s: float

    @property
    def spans(self) -> bool:
        """Whether all data-parallel ranks are one group."""
        return self.group * self.tensor == self.gpus

    @property
    def step_s(self) -> float:
        """Seconds of a step, as measured."""
        return TOKENS / self.tokens_per_s


def runs() -> Iterator[tuple[str, list[InternEvoRun]]]:
    """Yield each series' name and rows, from the fewest GPUs on."""
    rows = read_rows(InternEvoRun, "internevo.csv")
    # a group of a machine's ranks spans all of them on one machine: there the series stand one after another
    starts = [place for place, row in enumerate(rows) if row.gpus == MACHINE]
    for start, stop in zip(starts, [*starts[1:], len(rows)], strict=True):
        own = rows[start:stop]
        group = "all" if own[-1].spans else own[-1].group
        yield f"tensor {own[0].tensor}, groups of {group}, checkpointing {own[0].checkpointing}", own


def training(row: InternEvoRun, efficiency: float | None, host_s: float = 0.0) -> StepTime:
    """Return the training with products at this share of the peak, None for one by kernels."""
    return StepTime(
        model=MODEL, cluster=f"{CLUSTER}:{row.gpus // MACHINE}", settings=CARDS, precision="bf16",
        compute_efficiency=efficiency, stack="internevo", strategy="hybrid_zero", tp=row.tensor,
        shard=row.group, clip=True,
        batch=TOKENS // SEQUENCE * row.tensor, micro_batch=row.micro_batch, checkpointing=row.checkpointing,
        host_ms=1e3 * host_s or None,
        calibration=None,  # ABCI's measurements are of its own network, which these machines lack
    )  # fmt: skip


def predicted_s(row: InternEvoRun, efficiency: float, hop_s: float) -> float:
    """Return the seconds of a step, the hops of broadcasts included."""
    return simulated_s(row, efficiency, host_s()) + hop_s * passed(row)


@cache
def host_s() -> float:
    """Return the option with which rows on 8 GPUs without tensor parallelism best agree on efficiency."""
    sets = [own[0] for _, own in runs() if own[0].tensor == 1]

    def spread(seconds: float) -> float:
        return stdev(solved(partial(simulated_s, row, host_s=seconds), row.step_s) for row in sets)

    return min(HOST_S, key=spread)


def passed(row: InternEvoRun) -> int:
    """Return the number of ranks that the broadcasts of a step pass."""
    parts = dealt([tensor for layer in _layers(row.tensor) for tensor in layer.parameters], row.group)
    return sum(map(bool, parts)) * (row.group - 1)


def judged() -> list[JudgedRow]:
    """Return the rows on more than one machine."""
    rows = [(name, own[0], row) for name, own in runs() for row in own[1:]]
    steps = {
        hop_s: [predicted_s(row, _efficiency(sets, hop_s), hop_s) for _, sets, row in rows] for hop_s in HOP_S
    }
    off = {
        hop_s: [abs(step_s / row.step_s - 1) for step_s, (_, _, row) in zip(steps[hop_s], rows, strict=True)]
        for hop_s in HOP_S
    }
    results = []
    for place, (name, sets, row) in enumerate(rows):
        hop_s = min(HOP_S, key=lambda one: fmean([*off[one][:place], *off[one][place + 1 :]]))
        results.append(
            JudgedRow(
                f"InternLM 7B, {name}, from {sets.gpus}", f"on {row.gpus}", row.step_s, steps[hop_s][place],
                sets.step_s, "groups of all" if row.spans else "groups of a machine's",
            )
        )  # fmt: skip
    return results


def absolute() -> list[JudgedRow]:
    """Return all rows, with nothing known, broadcasts as long as the tuner believes."""
    return [
        alone("internevo", f"{name} on {row.gpus}", row.step_s, simulated_s(row, None), training(row, None))
        for name, own in runs()
        for row in own
    ]


@cache
def simulated_s(row: InternEvoRun, efficiency: float | None, host_s: float = 0.0) -> float:
    """Return the seconds of a step without the hops of broadcasts."""
    return training(row, efficiency, host_s).step().step_s


@cache
def _layers(tensor: int) -> tuple[RankLayer, ...]:
    alone = StepTime(model=MODEL, cluster=CLUSTER, strategy="hybrid_zero", tp=tensor, micro_batch=1)
    return alone.job.model.layers


@cache
def _efficiency(row: InternEvoRun, hop_s: float) -> float:
    """Return the efficiency that the row's step implies."""
    return solved(lambda share: predicted_s(row, share, hop_s), row.step_s)


TABLE = JudgedTable(
    name="internevo",
    title="InternLM 7B under InternEvo's hybrid ZeRO on 8 to 128 A100",
    source="github.com/InternLM/InternEvo, doc/en/train_performance.md @ c628a8c87411",
    sets="the row on 8 GPUs of each series; a broadcast's time per rank by all other rows",
    rule="constant tokens per second of a GPU",
    judged=judged,
    absolute=absolute,
)
