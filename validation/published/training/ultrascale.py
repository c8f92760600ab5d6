"""The fastest measured layout of Llama shapes of 1 to 80 billion parameters on 8 to 64 H100.

nanotron's sweep for the Ultra-Scale Playbook (huggingface.co/spaces/nanotron/ultrascale-playbook,
fragments/benchmarks_interactive.html @ 924e4d0b88e0): 1F1B, sequence parallelism, no checkpointing, bfloat16
with float32 gradients, 256 sequences of 4,096 tokens a step. Products have the GPU's usual efficiency and no
row sets it; across machines collectives have the bandwidths measured on the same cluster, and stages are cut
as nanotron cuts them. A rank's compute in each layer is that of `train`. The step is not: `train` cuts stages
as evenly as layers allow, and has no figures fitted to a framework. The costs of framework and cluster
(`FrameworkCosts`) are fitted for each model on the rows of the others, and for more GPUs on those of fewer.
The naive rule is the least product of tensor parallelism and pipeline.

The form and the options of each figure come from a look at all rows. Three of its terms describe what rows
have in common without a known cause: `FrameworkCosts.crowded_s`, that pipelines on several machines whose
gradients are all-reduced (no ZeRO) have messages as slow as those that are short of memory, and the number of
machines whose bandwidth a group has.
"""

from collections.abc import Callable, Sequence
from functools import cache
from itertools import groupby
from math import log
from statistics import fmean, median

from scipy.stats import spearmanr

from ringside.sim.workload.devices import GIB
from ringside.validation.published.training.nanotron import (
    MACHINE,
    SAMPLES,
    UNKNOWN,
    FrameworkCosts,
    NanotronRun,
    predicted_s,
    training,
)
from ringside.validation.published.training.rows import read_rows
from ringside.validation.scorecard.absolute import alone
from ringside.validation.scorecard.judged import Correlated, Counted, JudgedRow, JudgedTable

NEAR = 0.1
"""The share by which the chosen layout may be slower than the best and still count."""

OPTIONS: dict[str, tuple[float, ...]] = {
    "host_s": (0.003, 0.0035, 0.004, 0.0045, 0.005, 0.0055, 0.006),
    "network_s": (0.0, 0.0001, 0.00015, 0.0002, 0.0003, 0.0004),
    "crowded_s": (0.0, 0.0015, 0.002, 0.0025, 0.003, 0.0035, 0.004),
    "message_s": (0.0, 0.001, 0.002, 0.003, 0.005),
    "slow_s": (0.2, 0.4, 0.5, 0.6, 0.7, 0.8),
    "reserve": tuple(GIB * number for number in range(6, 26, 2)),
}
"""The options of each figure, chosen one after another."""

LAUNCH_S = tuple(number / 1e4 for number in range(0, 80, 2))
"""The options of the seconds to launch a layer, forward and backward."""

FEW = 16
"""The most GPUs of the rows that set figures for more GPUs."""

ROUNDS = 3
"""The number of times that each figure is chosen again, given the others."""


@cache
def runs() -> tuple[NanotronRun, ...]:
    """Return all rows."""
    return tuple(read_rows(NanotronRun, "ultrascale.csv"))


@cache
def fitted(model: str) -> FrameworkCosts:
    """Fit the figures of a model on the other models."""
    return _fit([run for run in runs() if run.model != model])


@cache
def fitted_on_few() -> FrameworkCosts:
    """Fit the figures on `FEW` GPUs or fewer."""
    return _fit([run for run in runs() if run.gpus <= FEW])


def _fit(rows: Sequence[NanotronRun]) -> FrameworkCosts:
    """Return the figures of the least mean logarithmic error."""

    def off(chosen: FrameworkCosts) -> float:
        return fmean(abs(log(predicted_s(run, chosen) / run.step_s)) for run in rows)

    best = FrameworkCosts(**{name: options[len(options) // 2] for name, options in OPTIONS.items()})
    for name, options in [*OPTIONS.items()] * ROUNDS:
        best = min((best._replace(**{name: value}) for value in options), key=off)
    return best


@cache
def launch_s(without: str = "") -> float:
    """Fit the seconds to launch a layer on all models but one, without pipelines, within machines."""
    rows = [run for run in runs() if run.model != without and run.pipeline == 1 and run.tensor <= MACHINE]

    def off(host_s: float) -> float:
        return fmean(abs(log(predicted_s(run, UNKNOWN._replace(host_s=host_s)) / run.step_s)) for run in rows)

    return min(LAUNCH_S, key=off)


def ranked_s(run: NanotronRun) -> float:
    """Return the seconds by which the layouts of a cell are ranked."""
    return predicted_s(run, fitted(run.model))


@cache
def cells() -> tuple[tuple[NanotronRun, ...], ...]:
    """Return the rows of each model and number of GPUs."""
    rows = sorted(runs(), key=lambda run: run[:2])
    return tuple(tuple(group) for _, group in groupby(rows, key=lambda run: run[:2]))


def correlation(rows: Sequence[NanotronRun], rank: Callable[[NanotronRun], float]) -> float:
    """Return Spearman's correlation between measured and ranked times."""
    return float(spearmanr([run.step_s for run in rows], [rank(run) for run in rows]).statistic)


def ruled(run: NanotronRun) -> float:
    """Return the naive rule's rank of a layout."""
    return run.tensor * run.pipeline + run.tensor / SAMPLES


def extrapolated_s(run: NanotronRun) -> float:
    """Return the seconds of a step with the figures of few GPUs."""
    return predicted_s(run, fitted_on_few())


def judged() -> list[JudgedRow]:
    """Judge the choice in each cell, by the figures of the other models."""
    return _judged(cells(), ranked_s)


def _judged(cells: Sequence[Sequence[NanotronRun]], rank: Callable[[NanotronRun], float]) -> list[JudgedRow]:
    """Return for each cell the throughput of the best, of the chosen, and of the naive rule's layout."""
    results = []
    for cell in cells:
        best = max(run.tokens_per_s_per_gpu for run in cell)
        chosen = min(cell, key=rank).tokens_per_s_per_gpu
        rule = min(cell, key=ruled).tokens_per_s_per_gpu
        results.append(JudgedRow(f"{cell[0].model} on {cell[0].gpus}", "the choice", best, chosen, rule))
    return results


def counted() -> list[Counted]:
    """Count the cells in which the choice is nearly the best, also where fewer GPUs set the figures."""
    more = [cell for cell in cells() if cell[0].gpus > FEW]
    parts = {
        "the choice is within 10 % of the best": judged(),
        f"the same on more than {FEW} GPUs, fitted on {FEW} and fewer": _judged(more, extrapolated_s),
    }
    return [
        Counted(
            name, sum(row.error >= -NEAR for row in rows), len(rows),
            sum(row.rule_error >= -NEAR for row in rows),
        )
        for name, rows in parts.items()
    ]  # fmt: skip


def correlated() -> list[Correlated]:
    """Return the correlations of orders: over all rows, and the median of the cells."""
    ours, rule = (median(correlation(cell, rank) for cell in cells()) for rank in (ranked_s, ruled))
    more = [run for run in runs() if run.gpus > FEW]
    return [
        Correlated(f"steps of all {len(runs())} layouts", correlation(runs(), ranked_s)),
        Correlated("steps of a cell, the median", ours, rule),
        Correlated(f"steps on more than {FEW} GPUs, fitted on fewer", correlation(more, extrapolated_s)),
    ]


def absolute() -> list[JudgedRow]:
    """Return the rows that are mostly compute, with nothing known and nothing fitted.

    Left out: pipelines and tensor parallelism across machines, whose messages and waits take the longer part.
    The time to launch a layer is that of the other models.
    """
    return [
        alone(
            "ultrascale", f"{run.model} dp{run.replicas} pp{run.pipeline} tp{run.tensor} "
            f"mbs {run.micro_batch}", run.step_s,
            predicted_s(run, UNKNOWN._replace(host_s=launch_s(run.model))),
            training(run.model_text, run.tensor, run.micro_batch),
        )
        for run in runs()
        if run.tensor <= MACHINE and (run.pipeline == 1 or run.machines == 1)
    ]  # fmt: skip


TABLE = JudgedTable(
    name="ultrascale",
    title="The fastest of measured layouts on 8 to 64 H100",
    source="huggingface.co/spaces/nanotron/ultrascale-playbook",
    sets="none; six figures of framework and cluster by the other models",
    rule="least tensor parallelism times pipeline",
    unit="tokens/s",
    judged=judged,
    absolute=absolute,
    counted=counted,
    correlated=correlated,
)
