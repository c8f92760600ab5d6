"""A step of nanotron's 1F1B pipelines on its own cluster, from a predicted layer and fitted costs.

Between machines collectives have the bandwidths that were measured on the cluster by number of machines
(`ultrascale_busbw.csv`, of fragments/pp_comm_bandwidth.html of the source that `ultrascale` names: the mean
of many runs, treated as bus bandwidths). Stages are cut as nanotron cuts them.
"""

from collections.abc import Sequence
from functools import cache, partial
from math import ceil, exp, log, sqrt
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ringside.sim.collective import Collective
from ringside.sim.program.groups import CostModel, library_time
from ringside.sim.program.libraries import Libraries
from ringside.sim.training.layers import RankLayer
from ringside.sim.training.tensor.alone import pass_s
from ringside.sim.workload.decoder import Decoder, decoder
from ringside.sim.workload.devices import device
from ringside.validation.published.training.aleph_alpha.kept import NORMS
from ringside.validation.questions.step_time import StepTime
from ringside.validation.readers.bandwidth_table import read_bandwidth_table

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


UPDATE_NBYTES = 28
"""Bytes that the optimizer reads and writes per parameter: four float32 arrays, three of them both ways."""


class FrameworkCosts(NamedTuple):
    """The seconds that the framework and the cluster add, and the bytes of a GPU in reserve.

    The host needs ``host_s`` for the kernels of a layer, forward and backward, independent of a rank's share
    of the work; ``network_s`` more per tensor-parallel rank where their group spans machines, and
    ``crowded_s`` where stages do, each times the square root of the group's machines. A message between
    stages takes ``message_s``, and ``slow_s`` where memory is short, so that it is freed and allocated again.
    """

    host_s: float
    network_s: float
    crowded_s: float
    message_s: float
    slow_s: float
    reserve: float


UNKNOWN = FrameworkCosts(*[0.0] * len(FrameworkCosts._fields))
"""A framework and a cluster that add nothing."""


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
    """The terms of a layout's step: layers per stage, the stage of the head, times, and bytes of a rank.

    The loss is on the stage after that of the head, if there is one.
    """

    stages: tuple[int, ...]
    head: int
    layer_s: float
    head_s: float
    loss_s: float
    updated_s: float
    nbytes: float


def predicted_s(run: NanotronRun, fitted: FrameworkCosts) -> float:
    """Return the seconds of a step: the longest stage sets the pace, the others fill and drain."""
    terms = terms_of(run)
    crowd = run.tensor * sqrt(ceil(run.tensor / MACHINE))
    least_s = fitted.host_s
    if run.tensor > 1 and run.pipeline > 1 and run.machines > 1:
        least_s += fitted.crowded_s * crowd
    elif run.tensor > MACHINE:
        least_s += fitted.network_s * crowd
    layer_s = max(terms.layer_s, least_s)
    stages = [layers * layer_s for layers in terms.stages]
    stages[terms.head] += terms.head_s
    stages[min(terms.head + 1, run.pipeline - 1)] += terms.loss_s
    passed_s = (run.micro_batches - 1) * max(stages) + sum(stages)
    if run.pipeline > 1:
        short = terms.nbytes > GPU.memory - fitted.reserve
        slow = short or (not run.zero and run.replicas > 1 and run.machines > 1)
        # messages that are waited for one after another, where sends and receives are exchanged in pairs
        waits = 2 * (run.pipeline - 1) * run.micro_batches / run.pipeline + 2 * (run.pipeline - 2)
        passed_s += waits * (fitted.slow_s if slow else fitted.message_s)
    return passed_s + terms.updated_s


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
    layer_s = pass_s(layers[1].forward, time) + pass_s(layers[1].backward, time)
    last, loss = layers[-1], layers[-1].loss
    assert loss
    forward_s, backward_s = pass_s(last.forward, time), pass_s(last.backward, time)
    loss_s = forward_s * loss.forward + backward_s * loss.backward
    head_s = forward_s + backward_s - loss_s
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
    updated_s = _updated_s(run, max(parameters))
    return StepTerms(stages, head, layer_s, head_s, loss_s, updated_s, max(nbytes))


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
@cache
def bandwidths(kind: str) -> tuple[list[float], list[float]]:
    """Return the logarithms of machines, and of the site's bus bandwidth on them."""
    path = Path(__file__).with_name("ultrascale_busbw.csv")
    table = read_bandwidth_table(path.read_text(encoding="utf-8"), path)
    rows = [row for row in table if row.collective == kind]
    return [log(row.nodes) for row in rows], [log(row.busbw) for row in rows]


@cache
def _time(tensor: int, machines: int) -> CostModel:
    """Return the time of tensor-parallel ranks' collectives in a job on this number of machines."""
    if tensor == 1:
        return lambda _: 0.0
    if tensor > MACHINE:
        return partial(_measured_s, machines=group_machines(tensor, machines))
    return library_time(Libraries("nccl", "dgx-h100", {}, MACHINE).of(tuple(range(tensor))))


def _measured_s(collective: Collective, *, machines: float) -> float:
    """Return a collective's seconds at the bandwidth that was measured on this number of machines."""
    rate = exp(float(np.interp(log(machines), *bandwidths(collective.kind))))
    return collective.nbytes * collective.busbw_factor / rate


def group_machines(ranks: int, machines: int) -> float:
    """Return the machines whose bandwidth a group of consecutive ranks has in a job on ``machines``.

    A group alone would have that of its own machines; if the slowest of all groups sets the pace, that of
    all. The truth lies between (tensor-parallel groups of two machines have 0.6 of their bandwidth in a job
    on four, 0.55 on eight), so this is their geometric mean. Inside a machine a group is alone.
    """
    spanned = ceil(ranks / MACHINE)
    return sqrt(spanned * machines) if spanned > 1 else 1.0


def _updated_s(run: NanotronRun, parameters: float) -> float:
    """Return the seconds of summing gradients and of the optimizer, at the end of a step.

    Gradients are float32. With ZeRO they are scattered, and parameters in bfloat16 gathered from each rank's
    share. A group of replicas spans the machines of one stage; those beside it share their networks.
    """
    update_s = parameters * UPDATE_NBYTES / GPU.streaming
    if run.replicas == 1:
        return update_s
    spanned = group_machines(run.replicas * run.tensor, run.machines)
    beside = min(run.tensor, MACHINE) if spanned > 1 else 1
    moved = {"reduce_scatter": 4, "all_gather": 2} if run.zero else {"all_reduce": 4}
    exchanged_s = sum(
        _measured_s(Collective(kind, run.replicas, int(size * parameters)), machines=spanned)
        for kind, size in moved.items()
    )
    return beside * exchanged_s + update_s / (run.replicas if run.zero else 1)
