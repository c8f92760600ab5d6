"""The fastest measured layout of Llama shapes of 1 to 80 billion parameters on 8 to 64 H100.

nanotron's sweep for the Ultra-Scale Playbook (huggingface.co/spaces/nanotron/ultrascale-playbook,
fragments/benchmarks_interactive.html @ 924e4d0b88e0): 1F1B, sequence parallelism, no checkpointing, bfloat16
with float32 gradients, 256 sequences of 4,096 tokens a step. Products have the GPU's usual efficiency and no
row sets it; across machines collectives have the bandwidths measured on the same cluster, and stages are cut
as nanotron cuts them. A rank's compute in each layer is that of `train`. The step is not: `train` cuts stages
as evenly as layers allow, and has no figures fitted to a framework. The costs of framework and cluster
(`FrameworkCosts`) are fitted for each model on the rows of the others. The naive rule is the least product of
tensor parallelism and pipeline.

The form and the options of each figure come from a look at all rows. Two of its terms describe what rows have
in common without a known cause: `FrameworkCosts.crowded_s`, and that pipelines on several machines whose
gradients are all-reduced (no ZeRO) have messages as slow as those that are short of memory.
"""

from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import groupby
from math import ceil, log
from statistics import fmean, median
from typing import NamedTuple

from scipy.stats import spearmanr

from ringside.sim.collective import Collective
from ringside.sim.program.groups import CostModel, library_time
from ringside.sim.program.libraries import Libraries
from ringside.sim.training.layers import RankLayer
from ringside.sim.training.tensor.alone import pass_s
from ringside.sim.workload.decoder import Decoder, decoder
from ringside.sim.workload.devices import GIB, device
from ringside.validation.published.training.aleph_alpha.kept import NORMS
from ringside.validation.published.training.rows import read_rows
from ringside.validation.questions.step_time import StepTime
from ringside.validation.scorecard.absolute import alone
from ringside.validation.scorecard.judged import Correlated, Counted, JudgedRow, JudgedTable

MODELS = {
    "1B": (16, 2048, 32, 8192),
    "3B": (28, 3072, 32, 8192),
    "8B": (32, 4096, 32, 14336),
    "80B": (80, 8192, 64, 28672),
}
"""Layers, width, heads and width of the feed-forward network; all heads have their own keys."""

TIED = {"1B", "3B"}
"""Models whose output product has the embedding's weights, of which the last stage has a copy."""

VOCABULARY = 131072
SEQUENCE = 4096
SAMPLES = 256
GPU = device("h100")
MACHINE = 8
"""GPUs per machine."""

NEAR = 0.1
"""The share by which the chosen layout may be slower than the best and still count."""

BANDWIDTHS = {
    1: (436e9, 250e9),
    2: (362e9, 183e9),
    4: (160e9, 117e9),
    8: (99.6e9, 68.8e9),
    16: (84.7e9, 54.7e9),
    32: (64.9e9, 28.0e9),
    64: (32.9e9, 11.1e9),
}
"""Bytes/s by number of whole machines, the mean of many runs: of all-reduces, and of gathers and scatters
(fragments/pp_comm_bandwidth.html of the same source). They are treated as bus bandwidths."""


class FrameworkCosts(NamedTuple):
    """The seconds that the framework and the cluster add, and the bytes of a GPU in reserve.

    The host needs ``host_s`` for the kernels of a layer, forward and backward, independent of a rank's share
    of the work; ``network_s`` more per tensor-parallel rank where their group spans machines, and
    ``crowded_s`` where stages do. A message between stages takes ``message_s``, and ``slow_s`` where memory
    is short, so that it is freed and allocated again.
    """

    host_s: float
    network_s: float
    crowded_s: float
    message_s: float
    slow_s: float
    reserve: float


UNKNOWN = FrameworkCosts(*[0.0] * len(FrameworkCosts._fields))
"""A framework and a cluster that add nothing."""

OPTIONS: dict[str, tuple[float, ...]] = {
    "host_s": (0.003, 0.0035, 0.004, 0.0045, 0.005, 0.0055, 0.006),
    "network_s": (0.0, 0.0001, 0.0002, 0.0003, 0.0004, 0.0005),
    "crowded_s": (0.0, 0.0015, 0.002, 0.0025, 0.003, 0.0035, 0.004),
    "message_s": (0.0, 0.001, 0.002, 0.003, 0.005),
    "slow_s": (0.2, 0.4, 0.5, 0.6, 0.7, 0.8),
    "reserve": tuple(GIB * number for number in range(6, 26, 2)),
}
"""The options of each figure, chosen one after another."""

ROUNDS = 3
"""The number of times that each figure is chosen again, given the others."""


class NanotronRun(NamedTuple):
    """A row; ``zero`` is 1 if the optimizer is sharded."""

    model: str
    gpus: int
    replicas: int
    pipeline: int
    tensor: int
    zero: int
    micro_batch: int
    tokens_per_s_per_gpu: float

    @property
    def model_text(self) -> str:
        """The model as a value of ``train --model``."""
        layers, width, heads, hidden = MODELS[self.model]
        shape = f"layers={layers},width={width},heads={heads},hidden={hidden},vocabulary={VOCABULARY}"
        return f"llama2-7b:{SEQUENCE},longest={SEQUENCE},{shape}"

    @property
    def decoder(self) -> Decoder:
        """The model's sizes."""
        return decoder(self.model_text)

    @property
    def step_s(self) -> float:
        """Seconds of a step, as measured."""
        return SAMPLES * SEQUENCE / self.gpus / self.tokens_per_s_per_gpu

    @property
    def micro_batches(self) -> int:
        """The number of micro-batches in a replica's step."""
        return SAMPLES // self.replicas // self.micro_batch

    @property
    def machines(self) -> int:
        """The number of machines."""
        return ceil(self.gpus / MACHINE)


class StepTerms(NamedTuple):
    """The terms of a layout's step: layers per stage, the stage of the head, times, and bytes of a rank."""

    stages: tuple[int, ...]
    head: int
    layer_s: float
    head_s: float
    reduced_s: float
    nbytes: float


@cache
def runs() -> tuple[NanotronRun, ...]:
    """Return all rows."""
    return tuple(read_rows(NanotronRun, "ultrascale.csv"))


def predicted_s(run: NanotronRun, fitted: FrameworkCosts) -> float:
    """Return the seconds of a step: the longest stage sets the pace, the others fill and drain."""
    terms = terms_of(run)
    least_s = fitted.host_s
    if run.tensor > 1 and run.pipeline > 1 and run.machines > 1:
        least_s += fitted.crowded_s * run.tensor
    elif run.tensor > MACHINE:
        least_s += fitted.network_s * run.tensor
    layer_s = max(terms.layer_s, least_s)
    stages = [layers * layer_s for layers in terms.stages]
    stages[terms.head] += terms.head_s
    passed_s = (run.micro_batches - 1) * max(stages) + sum(stages)
    if run.pipeline > 1:
        short = terms.nbytes > GPU.memory - fitted.reserve
        slow = short or (not run.zero and run.replicas > 1 and run.machines > 1)
        # messages that are waited for one after another, where sends and receives are exchanged in pairs
        waits = 2 * (run.pipeline - 1) * run.micro_batches / run.pipeline + 2 * (run.pipeline - 2)
        passed_s += waits * (fitted.slow_s if slow else fitted.message_s)
    return passed_s + terms.reduced_s


@cache
def fitted(model: str) -> FrameworkCosts:
    """Fit the figures of a model: those of the least mean logarithmic error for the other models."""
    others = [run for run in runs() if run.model != model]

    def off(chosen: FrameworkCosts) -> float:
        return fmean(abs(log(predicted_s(run, chosen) / run.step_s)) for run in others)

    best = FrameworkCosts(**{name: options[len(options) // 2] for name, options in OPTIONS.items()})
    for name, options in [*OPTIONS.items()] * ROUNDS:
        best = min((best._replace(**{name: value}) for value in options), key=off)
    return best


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


def judged() -> list[JudgedRow]:
    """Return for each cell the throughput of the best, of the chosen, and of the naive rule's layout."""
    results = []
    for cell in cells():
        best = max(run.tokens_per_s_per_gpu for run in cell)
        chosen = min(cell, key=ranked_s).tokens_per_s_per_gpu
        rule = min(cell, key=ruled).tokens_per_s_per_gpu
        results.append(JudgedRow(f"{cell[0].model} on {cell[0].gpus}", "the choice", best, chosen, rule))
    return results


def counted() -> list[Counted]:
    """Count the cells in which the choice is nearly the best."""
    rows = judged()
    return [
        Counted(
            "the choice is within 10 % of the best", sum(row.error >= -NEAR for row in rows), len(rows),
            sum(row.rule_error >= -NEAR for row in rows),
        )
    ]  # fmt: skip


def correlated() -> list[Correlated]:
    """Return the correlations of orders: over all rows, and the median of the cells."""
    ours, rule = (median(correlation(cell, rank) for cell in cells()) for rank in (ranked_s, ruled))
    return [
        Correlated(f"steps of all {len(runs())} layouts", correlation(runs(), ranked_s)),
        Correlated("steps of a cell, the median", ours, rule),
    ]


def absolute() -> list[JudgedRow]:
    """Return the rows of which compute is most, with nothing known and nothing fitted.

    Left out: pipelines and tensor parallelism across machines, whose messages and waits take the longer part,
    and layers that the host launches more slowly than the GPU computes them (`FrameworkCosts.host_s`).
    """
    return [
        alone(
            "ultrascale", f"{run.model} dp{run.replicas} pp{run.pipeline} tp{run.tensor} "
            f"mbs {run.micro_batch}", run.step_s, predicted_s(run, UNKNOWN),
            training(run.model_text, run.tensor, run.micro_batch),
        )
        for run in runs()
        if run.tensor <= MACHINE and (run.pipeline == 1 or run.machines == 1)
        and terms_of(run).layer_s >= fitted(run.model).host_s
    ]  # fmt: skip


@cache
def _layers(model: str, tensor: int, micro_batch: int) -> tuple[RankLayer, ...]:
    """Return a rank's compute and exchanges of each layer, as in ``train``."""
    return training(model, tensor, micro_batch).job.model.layers


def training(model: str, tensor: int, micro_batch: int) -> StepTime:
    """Return the training of one tensor-parallel group."""
    machines = ceil(tensor / MACHINE)
    return StepTime(
        model=model, cluster=f"dgx-h100:{machines}", ranks=tensor, precision="bf16", dtype="bf16",
        stack="nanotron", tp=tensor, sequence_parallel=tensor > 1, batch=micro_batch, micro_batch=micro_batch,
    )  # fmt: skip


@cache
def terms_of(run: NanotronRun) -> StepTerms:
    """Return the parts of a layout's step."""
    decoder, tensor = run.decoder, run.tensor
    layers = _layers(run.model_text, tensor, run.micro_batch)
    time = _time(tensor, run.machines)
    layer_s, head_s = (
        pass_s(one.forward, time) + pass_s(one.backward, time) for one in (layers[1], layers[-1])
    )
    stages, head = cut(run.model, run.pipeline)
    parameters = _parameters(run, stages, head)
    # activations wait in a stage for as many micro-batches as there are stages from it on
    tokens = run.micro_batch * SEQUENCE
    kept = layers[1].kept_nbytes + NORMS * tokens * decoder.width // tensor
    states = 6 + 12 / (run.replicas if run.zero else 1)
    nbytes = [
        states * own + min(run.pipeline - stage, run.micro_batches) * count * kept
        for stage, (own, count) in enumerate(zip(parameters, stages, strict=True))
    ]
    return StepTerms(stages, head, layer_s, head_s, _reduced_s(run, 4 * max(parameters)), max(nbytes))


@cache
def cut(model: str, pipeline: int) -> tuple[tuple[int, ...], int]:
    """Return the number of layers of each stage, and the stage of the head, as nanotron cuts them.

    It weighs layers and head by the parameters of their products; a stage is full when the cumulated weight
    exceeds its share (nanotron, build_model).
    """
    layers, width, _, hidden = MODELS[model]
    layer, head = 4 * width**2 + 3 * width * hidden, VOCABULARY * width
    stages, stage = [0] * pipeline, 0
    for number in range(1, layers + 1):
        stages[stage] += 1
        if number * layer * pipeline > (layers * layer + head) * (stage + 1):
            stage += 1
    return tuple(stages), stage


def _parameters(run: NanotronRun, stages: Sequence[int], head: int) -> list[float]:
    """Return the number of parameters of a rank of each stage."""
    decoder = run.decoder
    parameters = [count * decoder.layer_parameters(0) / run.tensor for count in stages]
    vocabulary = VOCABULARY * decoder.width / run.tensor
    parameters[0] += vocabulary
    if head or run.model not in TIED:
        parameters[head] += vocabulary
    return parameters


@cache
def _time(tensor: int, machines: int) -> CostModel:
    """Return the time of tensor-parallel ranks' collectives."""
    if tensor == 1:
        return lambda _: 0.0
    if tensor > MACHINE:
        return partial(_measured_s, machines=machines)
    return library_time(Libraries("nccl", "dgx-h100", {}, MACHINE).of(tuple(range(tensor))))


def _measured_s(collective: Collective, *, machines: int) -> float:
    """Return a collective's seconds at the bandwidth that was measured on this number of machines."""
    whole, half = BANDWIDTHS[machines]
    share = (collective.ranks - 1) / collective.ranks
    passes, rate = (2, whole) if collective.kind == "all_reduce" else (1, half)
    return passes * share * collective.nbytes / rate


def _reduced_s(run: NanotronRun, nbytes: float) -> float:
    """Return the seconds of summing gradients at the end; each group has its share of a machine's network."""
    if run.replicas == 1:
        return 0.0
    summed = Collective("all_reduce", run.replicas, int(nbytes))
    if run.replicas * run.tensor <= MACHINE:
        return _measured_s(summed, machines=1)
    beside = min(run.tensor, MACHINE)
    return beside * _measured_s(summed, machines=run.machines)


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
