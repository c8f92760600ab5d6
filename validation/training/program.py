"""The program of a training that `ringside.real.training` runs on Gloo, whose collectives block the host."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from math import inf

from ringside.real.training.job import DTYPES, ExpertLayers, Sleeping, SmallDecoder, SmallGpt, TrainingJob
from ringside.sim.collective import ITEMSIZE, Collective
from ringside.sim.compute.prices import Prices, StackOnGpu
from ringside.sim.libraries.rules import GLOO
from ringside.sim.program import Operation, Program
from ringside.sim.training.ddp.job import Costs, DataParallel
from ringside.sim.training.ddp.plan import plan_of_layers
from ringside.sim.training.fsdp_policy import FullyShardPolicy
from ringside.sim.training.fully_shard import FullyShard
from ringside.sim.training.layers import Exchange, Kernels, Pass, RankLayer, arriving
from ringside.sim.training.mesh import DATA, Communicators
from ringside.sim.training.pipeline.program import find_pipeline
from ringside.sim.training.sharing import Sharing, Unshared
from ringside.sim.training.stage import RankList, Stage
from ringside.sim.training.tensor.context import Attention
from ringside.sim.training.tensor.costs import Numerics
from ringside.sim.training.tensor.cut import TensorParallel
from ringside.sim.training.tensor.layers import rank_layers
from ringside.sim.training.zero.broadcasts import ZeroRedundant
from ringside.sim.workload.decoder import Decoder
from ringside.sim.workload.devices import Roofline
from ringside.sim.workload.workload import Tensor
from ringside.validation.training.host import HostedRank, Seconds


def write_experts(job: TrainingJob, model: ExpertLayers, rank: RankList) -> None:
    """Write a rank's operations of a step."""
    along = rank.communicators.along
    layer = _layer(job, model, along(rank.rank, "expert").ranks.index(rank.rank))
    stage = Stage(rank, [layer] * model.layers, Unshared())
    stage.pass_all(job.micro_batches)
    router = 4 * model.layers * model.hidden * model.experts
    experts = 8 * model.layers * model.hidden * model.inner * model.experts // job.expert
    for name, nbytes, dimensions in (("routers", router, DATA), ("experts", experts, ("expert_data",))):
        group = along(rank.rank, *dimensions)
        rank.call(group, Collective("all_reduce", len(group.ranks), nbytes), f"gradients of {name}")


def _layer(job: TrainingJob, model: ExpertLayers, position: int) -> RankLayer:
    """Return a layer on the rank at this position among those that shard experts; all layers are alike."""
    ranks, each = job.expert, model.experts // job.expert
    load = model.load(position, ranks)
    counts = [model.counts(sender) for sender in range(ranks)]
    rows = [
        [sum(own[receiver * each : (receiver + 1) * each]) for receiver in range(ranks)] for own in counts
    ]
    there, back = (
        [[count * model.hidden for count in row] for row in way]
        for way in (rows, list(zip(*rows, strict=True)))
    )
    announced = Exchange(("expert",), Collective("all_gather", ranks, 8 * ranks * model.experts))
    sent, returned, probabilities, theirs = (
        Exchange(("expert",), Collective.uneven(way))
        for way in (there, back, rows, list(zip(*rows, strict=True)))
    )
    half, back_half = model.forward_s / 2, model.backward_s / 2
    return RankLayer(
        name="experts",
        forward=(Kernels(half), announced, sent, probabilities, Kernels(load * half), returned),
        backward=(sent, Kernels(load * back_half), theirs, returned, Kernels(back_half)),
    )


HOST_S = 5e-4
"""Seconds by which some hosts lag in each layer: more than a latency, but negligible."""

_UNKNOWN = {dtype: StackOnGpu(Prices(roofline=Roofline(1e10, 1e10, ITEMSIZE[dtype]))) for dtype in DTYPES}
"""A pace for decoders that compute on CPUs, whose times are not predicted, by type."""


def program_of(job: TrainingJob, host: Sequence[Seconds] = ()) -> Program:
    """Return one step of the job on all its ranks; with each one's own ``host`` work where it is known."""
    communicators = Communicators(job.mesh, GLOO.name, GLOO.workers)
    # FSDP's and functional collectives block, those of DistributedDataParallel and of an optimizer do not
    blocks = job.strategy == "fsdp"
    write: Callable[[RankList], None]
    if isinstance(job.model, ExpertLayers):
        write = partial(write_experts, job, job.model)
    else:
        write = _piped(job) if job.pipeline > 1 else partial(_WHOLE[job.strategy], job)

    @cache
    def operations(number: int) -> list[Operation]:
        if not host:
            rank = RankList(number, communicators, blocks=blocks)
            write(rank)
            return rank.operations
        hosted = HostedRank(number, communicators, host[number], blocks=blocks)
        write(hosted)
        hosted.work()
        return hosted.operations

    return Program(f"{job.model.kind} layers", job.mesh.ranks, operations)


def _whole(job: TrainingJob, rank: RankList) -> None:
    layers = layers_of(job)
    # a sleeping model has gradients of its inputs too, one that reads tokens does not
    sharing = _sharing(job, rank, layers, inputs_need_gradient=isinstance(job.model, Sleeping))
    Stage(rank, layers, sharing).pass_all(job.micro_batches)
    sharing.after_step()


def _redundant(job: TrainingJob, rank: RankList) -> None:
    """Write DistributedDataParallel's step, and a broadcast of each parameter by the rank that stepped it."""
    layers = [part for layer in layers_of(job) for part in _arriving(job, layer)]
    group = rank.communicators.along(rank.rank, "replicate")
    plan = plan_of_layers("replica", layers, job.replicate, DataParallel(no_sync=job.no_sync), Costs())
    sharing = ZeroRedundant(rank, plan, group)
    Stage(rank, layers, sharing).pass_all(job.micro_batches)
    sharing.after_step()
    sharing.update(0.0)


_WHOLE = {"fsdp": _whole, "zero_redundancy": _redundant}
"""The writer of a rank's list per strategy without a pipeline."""


def _arriving(job: TrainingJob, layer: RankLayer) -> tuple[RankLayer, ...]:
    """Split a layer by arrival of gradients: a sleeping one's row at once, its column, then its input's."""
    model = job.model
    if not isinstance(model, Sleeping):
        return tuple(arriving((layer,)))
    column, row = layer.parameters
    half = (Kernels(model.backward_s / 2),)
    return (
        RankLayer(name=f"{layer.name} input", backward=half),
        RankLayer(name=f"{layer.name} column", parameters=(column,), backward=half),
        RankLayer(name=f"{layer.name} row", parameters=(row,), forward=layer.forward),
    )


def _piped(job: TrainingJob) -> Callable[[RankList], None]:
    pipeline = find_pipeline("torch", job.schedule, (), job.placement, job.micro_batches)

    def write(rank: RankList) -> None:
        position = job.mesh.place(rank.rank)["pipeline"]
        stages = {}
        for number in pipeline.stages[position]:
            layers = _stage_layers(job, number)
            if position % 2:
                layers = tuple(map(_later, layers))
            sharing = _sharing(job, rank, layers, inputs_need_gradient=number > 0)
            stages[number] = Stage(rank, layers, sharing, f"stage {number}")
        pipeline.write(rank, stages, _between(job))
        for stage in stages.values():
            stage.sharing.after_step()

    return write


def _sharing(
    job: TrainingJob, rank: RankList, layers: Sequence[RankLayer], *, inputs_need_gradient: bool
) -> Sharing:
    if job.mesh.degree(*DATA) == 1:
        return Unshared()
    policy = FullyShardPolicy(
        reshard_after_forward=job.reshard,
        reshard_of={"root": False},
        param_dtype=job.param_dtype,
        reduce_dtype=job.reduce_dtype,
        no_sync=job.no_sync,
    )
    return FullyShard(
        rank, layers, policy, inputs_need_gradient=inputs_need_gradient, defers=job.pipeline > 1
    )


def _stage_layers(job: TrainingJob, stage: int) -> tuple[RankLayer, ...]:
    """Return the layers of a stage; a decoder's embedding precedes the first, its head follows the last."""
    own, every = job.layers_of(stage), layers_of(job)
    if isinstance(job.model, Sleeping):
        every = every[own.start : own.stop]
        return every if stage else (_first(every[0]), *map(_undivided, every[1:]))
    first, last = own.start + (stage > 0), own.stop + 1 + (stage == job.stages - 1)
    return every[first:last]


def layers_of(job: TrainingJob) -> tuple[RankLayer, ...]:
    """Return all layers as one rank has them."""
    model = job.model
    if isinstance(model, Sleeping):
        return tuple(_sleeping(job, model, number) for number in range(model.layers))
    assert not isinstance(model, ExpertLayers)
    parallel = TensorParallel(
        degree=job.tensor, style="dtensor", sequence=job.sequence_parallel, gathers_logits=True
    )
    return rank_layers(
        decoder_of(model), _UNKNOWN[job.param_dtype], micro_batch=model.batch, parallel=parallel,
        context=job.shared,
        numerics=Numerics(dtype="float32"),
    )  # fmt: skip


def decoder_of(model: SmallDecoder) -> Decoder:
    """Return the decoder that a small one is."""
    is_gpt = isinstance(model, SmallGpt)
    return Decoder(
        name=model.kind, layers=model.layers, width=model.hidden, heads=model.heads,
        key_value_heads=model.few_heads, hidden=model.inner, vocabulary=model.vocabulary,
        sequence=model.sequence, longest=model.sequence, gated=not is_gpt,
        norm="layer" if is_gpt else "rms", biases=is_gpt, positions=model.sequence if is_gpt else 0,
    )  # fmt: skip


def _first(layer: RankLayer) -> RankLayer:
    """Return a pipeline's first layer, without the exchange of its inputs' gradients."""
    gathered = tuple(part for part in layer.backward[:1] if isinstance(part, Exchange))
    return _undivided(replace(layer, backward=(*gathered, *layer.weight_gradient)))


def _later(layer: RankLayer) -> RankLayer:
    """Return a layer on a rank slightly later than its neighbours, as one of two real ranks always is.

    Over Gloo, crossing messages of two ranks overlap only if both are started within a latency; otherwise the
    later rank's announcement of its receive waits behind its send.
    """
    host = Kernels(HOST_S)
    return replace(
        layer,
        forward=(host, *layer.forward),
        backward=(host, *layer.backward),
        input_gradient=(host, *layer.input_gradient) if layer.input_gradient else (),
    )


def _undivided(layer: RankLayer) -> RankLayer:
    """Return a layer of the first stage, for which torch computes all gradients at the weights' time."""
    return replace(layer, input_gradient=(), weight_gradient=layer.backward)


def _sleeping(job: TrainingJob, model: Sleeping, number: int) -> RankLayer:
    inner, hidden = model.inner // job.tensor, model.hidden
    enter, leave = _exchanges(job, "all_gather"), _exchanges(job, "reduce_scatter")
    half = model.backward_s / 2
    forward: Pass = (Kernels(model.forward_s),)
    backward: Pass = (Kernels(model.backward_s),)
    if job.context > 1:
        shared = _shared(job, model)
        forward, backward = shared.forward, shared.backward
    return RankLayer(
        name=f"layer {number}",
        parameters=(
            Tensor("column.weight", inner * hidden, rows=inner),
            Tensor("row.weight", hidden * inner, rows=hidden),
        ),
        forward=(*enter, *forward, *(leave or _exchanges(job, "all_reduce"))),
        backward=(*enter, *backward, *(leave or _exchanges(job, "all_reduce"))),
        input_gradient=(*enter, Kernels(half), *(leave or _exchanges(job, "all_reduce"))),
        weight_gradient=(Kernels(half),),
    )


def _shared(job: TrainingJob, model: Sleeping) -> Attention:
    """Return the attention of a layer with shared rows: merges cost nothing beside the sleeps."""
    elements = model.rows // job.context * model.inner // job.tensor
    return Attention(
        context=job.shared, roofline=Roofline(inf, inf, 4), dtype="float32", forward_s=model.forward_s,
        backward_s=model.backward_s, query=elements, key_value=elements,
    )  # fmt: skip


def _exchanges(job: TrainingJob, kind: str) -> Pass:
    """Return the tensor-parallel exchange of a micro-batch: two collectives where its rows are sharded."""
    if job.tensor == 1 or (kind != "all_reduce") != job.sequence_parallel:
        return ()
    assert isinstance(job.model, Sleeping)
    nbytes = job.model.rows // job.context * job.model.hidden * 4
    return (Exchange(("tensor",), Collective(kind, job.tensor, nbytes)),)


def _between(job: TrainingJob) -> int:
    """Return the bytes of a micro-batch between two stages."""
    model = job.model
    assert not isinstance(model, ExpertLayers)
    rows = model.rows if isinstance(model, Sleeping) else model.batch * model.sequence
    return rows * model.hidden * 4 // (job.tensor if job.sequence_parallel else 1)
