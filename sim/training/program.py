"""A training step under a layout as a `Program`, folded to one rank a pipeline stage.

All ranks of a stage act alike, at all places along the other dimensions. A rank passes its micro-batches in
the schedule's order, sums gradients with the others, clips them if requested, and runs the optimizer.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ringside.sim.collective import Collective
from ringside.sim.libraries.rules import RULES
from ringside.sim.program import Group, Operation, Program
from ringside.sim.training.ddp.data_parallel import Replica
from ringside.sim.training.ddp.plan import Replicated, StepPlan, plan_of_layers
from ringside.sim.training.ddp.scaling import compression_nbytes
from ringside.sim.training.flat_shard import FlatPolicy, FlatShard
from ringside.sim.training.fsdp_policy import FullyShardPolicy
from ringside.sim.training.fully_shard import FullyShard, ShardedApart
from ringside.sim.training.job import ParallelJob
from ringside.sim.training.layers import RankLayer, arriving, as_modules, without_loss
from ringside.sim.training.memory.held import held, makes_gradients
from ringside.sim.training.mesh import DATA, Communicators
from ringside.sim.training.pipeline.program import Pipeline, find_pipeline
from ringside.sim.training.sharing import Apart, Sharing, Unshared, Updating, UpdatingApart
from ringside.sim.training.stage import HOST, RankList, Stage
from ringside.sim.training.strategies import BUCKETS, COPIES, FSDP, MEGATRON
from ringside.sim.training.tensor.layers import replicated_parameters
from ringside.sim.training.zero.broadcasts import HybridZero, ZeroRedundant
from ringside.sim.training.zero.distributed_optimizer import DistributedOptimizer, bucket_size, types_of
from ringside.sim.training.zero.partition import ZeroPolicy
from ringside.sim.training.zero.stages import ReducedWhole
from ringside.sim.training.zero.third import DealtOut


@dataclass(frozen=True, slots=True)
class RankStep:
    """One rank's operations in a step; ``held`` are bytes by pool that it holds throughout."""

    rank: RankList
    stages: dict[int, Stage]
    held: dict[str, int]


IN_PLACE = "megatron_fsdp"
"""The strategy whose shards are parts of the buffers that its collectives use
(megatron/core/distributed/custom_fsdp/param_and_grad_buffer.py)."""


class Writing:
    """Writes the lists of a job's ranks."""

    def __init__(self, job: ParallelJob) -> None:
        self.job = job
        self._communicators = Communicators(job.mesh, job.library, job.workers)
        self._steps: dict[int, RankStep] = {}
        self._optimizers: dict[tuple[int, tuple[str, ...]], list[DistributedOptimizer]] = {}
        whose = "torch"
        if job.layout.strategy in MEGATRON:
            # overlap_p2p_comm is on for interleaved stages, and does not exist for others
            whose = "megatron-overlap" if job.layout.schedule == "interleaved1f1b" else "megatron"
        layout = job.layout
        self._pipeline: Pipeline | None = None
        if job.mesh.pipeline > 1:
            self._pipeline = find_pipeline(
                whose,
                layout.schedule,
                layout.tables,
                layout.placement,
                job.micro_batches,
                layout.microbatch_group,
            )

    def program(self) -> Program:
        """Return the step of all ranks."""
        roles = self.job.roles
        return Program(
            f"{self.job.model.name} step", self.job.mesh.ranks, self.operations, role=roles.__getitem__
        )

    def operations(self, rank: int) -> Sequence[Operation]:
        """Return a rank's operations."""
        return self.step(rank).rank.operations

    def step(self, rank: int) -> RankStep:
        """Return a rank's step."""
        if rank not in self._steps:
            self._steps[rank] = self._written(rank)
        return self._steps[rank]

    def _written(self, rank: int) -> RankStep:
        job = self.job
        # FSDP's collectives on Gloo are waited for at once, as PyTorch does on CPU
        blocks = not RULES[job.library].on_stream and job.layout.strategy not in COPIES
        made = RankList(rank, self._communicators, blocks=blocks)
        own = self._pipeline.stages[job.mesh.place(rank)["pipeline"]] if self._pipeline else (0,)
        layers = {number: self._layers(number) for number in own}
        stages = {
            number: Stage(
                made, self._passed(of_stage), self._sharing(made, number, of_stage),
                f"stage {number}" if job.mesh.pipeline > 1 else "", makes_gradients=makes_gradients(job),
                overlaps=job.layout.overlap_experts,
            )
            for number, of_stage in layers.items()
        }  # fmt: skip
        self._pass(made, stages)
        for stage in stages.values():
            stage.sharing.after_step()
        everything = [layer for of_stage in layers.values() for layer in of_stage]
        _sum_copies(job, made, own, everything)
        updated = {number: _updated_nbytes(job, stage.sharing, layers[number])
                   for number, stage in stages.items()}  # fmt: skip
        if job.layout.clip:
            _clip(job, made, sum(updated.values()))
        for number, stage in stages.items():
            sharing, nbytes = stage.sharing, updated[number]
            seconds = job.optimizer.seconds(nbytes, job.costs.memory_bandwidth) * job.pace
            if isinstance(sharing, Updating | FullyShard | FlatShard | ShardedApart):
                sharing.update(seconds)
            else:
                made.compute(seconds, "optimizer", "optimizer")
                stage.forget()
        if job.costs.host_s:
            made.pause(job.costs.host_s, HOST)
        by_pool = held(job, everything, own)
        for stage in stages.values():
            if isinstance(stage.sharing, Replicated) and job.ddp.compresses:
                nbytes = compression_nbytes(stage.sharing.job.workload, job.ddp)
                by_pool["compression"] = by_pool.get("compression", 0) + nbytes
        return RankStep(made, stages, by_pool)

    def _pass(self, rank: RankList, stages: dict[int, Stage]) -> None:
        """Pass all micro-batches through the stages of a rank."""
        if self._pipeline:
            self._pipeline.write(rank, stages, self.job.between_nbytes)
        else:
            stages[0].pass_all(self.job.micro_batches)

    def _layers(self, stage: int) -> tuple[RankLayer, ...]:
        """Return the layers of a stage; unsharded experts are ordinary parameters."""
        layers = self.job.layers(stage)
        return layers if self.job.mesh.separates_experts else tuple(layer.undivided for layer in layers)

    def _passed(self, layers: tuple[RankLayer, ...]) -> tuple[RankLayer, ...]:
        """Return the layers to pass, cut into modules if these are gathered or reduced one by one.

        The loss is outside of what FSDP wraps: the hooks on the model's output run before it in forward, and
        after it in backward (torch/distributed/fsdp/_fully_shard/_fsdp_state.py, `_post_forward`).
        """
        if self.job.layout.strategy == "zero3":
            return as_modules(layers)
        if self.job.layout.strategy in FSDP:
            return without_loss(layers)
        return arriving(layers) if self.job.layout.strategy in BUCKETS else layers

    def _sharing(self, rank: RankList, stage: int, layers: Sequence[RankLayer]) -> Sharing:
        """Return the sharing of a stage's parameters among data-parallel ranks."""
        job = self.job
        if not job.mesh.separates_experts:
            return self._sharing_along(rank, stage, layers, DATA)
        # the experts' gradients are summed among ranks with the same experts
        dense = self._sharing_along(rank, stage, layers, DATA)
        if not any(layer.experts for layer in layers):
            return dense
        experts = self._sharing_along(
            rank, stage, [replace(one, parameters=one.experts) for one in layers], ("expert_data",)
        )
        if isinstance(dense, FullyShard) and isinstance(experts, FullyShard):
            return ShardedApart(dense, experts)
        if isinstance(dense, Updating) and isinstance(experts, Updating):
            return UpdatingApart(dense, experts)
        return Apart(dense, experts)

    def _sharing_along(
        self, rank: RankList, stage: int, layers: Sequence[RankLayer], along: tuple[str, ...]
    ) -> Sharing:
        """Return the sharing of the layers' parameters among ranks along some dimensions."""
        job = self.job
        alone = job.mesh.degree(*DATA) == 1 and job.layout.strategy not in MEGATRON
        if alone or not any(layer.parameters for layer in layers):
            return Unshared()
        if job.layout.strategy == "data_parallel":
            return Replica(rank, layers, job.model.buffers, job.model.output_nbytes, job.costs)
        if job.layout.strategy == "ddp":
            if job.mesh.degree(*along) == 1:
                return Unshared()
            return Replicated(rank, *_replicated(job, rank, layers, along, first=stage == 0))
        sharing: Updating | FullyShard | FlatShard
        if job.layout.strategy in FSDP:
            policy = _policy(job, layers)
            if job.layout.wrap_ends:
                layers = [replace(one, wrapped=True) for one in layers]
            if along != DATA and isinstance(policy, FullyShardPolicy):
                policy = replace(policy, shard=along)
            if isinstance(policy, FlatPolicy):
                sharing = FlatShard(rank, layers, policy)
            else:
                sharing = FullyShard(
                    rank, layers, policy, inputs_need_gradient=stage > 0 or along != DATA,
                    defers=job.mesh.pipeline > 1,
                )  # fmt: skip
        else:
            earlier = self._optimizers.setdefault((rank.rank, along), [])
            sharing = _updating(job, rank, stage, layers, along, earlier)
        sharing.hold(job.optimizer)
        return sharing


def _updating(
    job: ParallelJob,
    rank: RankList,
    stage: int,
    layers: Sequence[RankLayer],
    along: tuple[str, ...],
    earlier: list[DistributedOptimizer],
) -> Updating:
    """Return a sharing that shards the optimizer, parameters and gradients in the type of products.

    ``earlier`` are Megatron-LM's of the rank's stages before this one; its own joins them.
    """
    strategy, bandwidth = job.layout.strategy, job.costs.memory_bandwidth
    if strategy == "zero_redundancy":
        return ZeroRedundant(rank, *_replicated(job, rank, layers, DATA, first=stage == 0))
    dtype = job.precision or next(tensor.dtype for layer in layers for tensor in layer.parameters)
    if strategy in MEGATRON:
        _, dtype, gradients = types_of(job)
        overlaps, shards = job.layout.overlap_grad_reduce, strategy == "distributed_optimizer"
        within, across = _instance(along) if shards and job.mesh.replicate > 1 else (along, ())
        made = DistributedOptimizer(
            rank, layers, along=within, across=across, shards=shards, parameters=dtype,
            gradients=gradients,
            bucket_size=bucket_size(job.mesh.degree(*DATA)) if overlaps and stage == 0 else None,
            reduces_early=overlaps, gathers_early=job.layout.overlap_param_gather,
            memory_bandwidth=bandwidth,
            behind=earlier[-1] if len(earlier) > 1 else None,
        )  # fmt: skip
        earlier.append(made)
        return made
    policy = ZeroPolicy(dtype=dtype, memory_bandwidth=bandwidth)
    if strategy == "hybrid_zero":
        return HybridZero(rank, layers, policy)
    if strategy == "zero3":
        return DealtOut(rank, as_modules(layers), policy)
    return ReducedWhole(rank, layers, policy, stage=1 if strategy == "zero1" else 2)


def _instance(along: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the dimensions within one of several instances of an optimizer, and across these."""
    return (
        (("context", "shard"), ("replicate",))
        if along == DATA
        else (("expert_shard",), ("expert_replicate",))
    )


def _replicated(
    job: ParallelJob, rank: RankList, layers: Sequence[RankLayer], along: tuple[str, ...], *, first: bool
) -> tuple[StepPlan, Group]:
    """Return DistributedDataParallel around a stage: its plan, and its group."""
    buffers = job.model.buffers if first and along == DATA else ()
    group = rank.communicators.along(rank.rank, *along)
    ddp = replace(job.ddp, no_sync=not job.layout.syncs_each)
    return plan_of_layers(job.model.name, layers, len(group.ranks), ddp, job.costs, buffers), group


def _updated_nbytes(job: ParallelJob, sharing: Sharing, layers: Sequence[RankLayer]) -> int:
    """Return the bytes of a stage's parameters as its optimizer updates them."""
    return sharing.updated_nbytes if isinstance(sharing, Updating) else job.own_nbytes(layers)


def _sum_copies(job: ParallelJob, rank: RankList, stages: Sequence[int], layers: Sequence[RankLayer]) -> None:
    """Sum gradients of parameters that ranks replicate but used on different data.

    These are norms, along the tensor-parallel ranks (`replicated_parameters`); with a tied embedding on two
    stages, both copies of it. DTensor sums a gradient wherever the optimizer uses it, as no use stores the
    sum; FSDP does so once.
    """
    along = rank.communicators.along
    group = along(rank.rank, "tensor")
    copied = replicated_parameters(tuple(layers), tokens=job.layout.sequence_parallel)
    # FSDP has a part of each gradient by then; others sum whole ones, also where one part of them is used
    parts = job.holders if job.layout.strategy in FSDP else 1
    sums = [sum(one.nbytes for one in copied) // parts] if copied else []
    if job.layout.style == "dtensor" and job.mesh.degree(*DATA) == 1:
        sums = [one.nbytes for one in copied] * job.optimizer.uses
    for nbytes in sums if len(group.ranks) > 1 else ():
        norms = Collective("all_reduce", len(group.ranks), nbytes)
        rank.wait(rank.call(group, norms, "gradients of the norms"))
    if job.copies_embedding and job.model.tied and {0, job.layout.stages - 1} & set(stages):
        ranks = along(rank.rank, "pipeline").ranks
        group = rank.communicators.of((ranks[0], ranks[-1]), "pipeline embedding")
        copies = Collective("all_reduce", 2, job.model.tied.nbytes // parts)
        rank.wait(rank.call(group, copies, "gradients of the embedding"))


def _clip(job: ParallelJob, rank: RankList, nbytes: int) -> None:
    """Compute the gradients' norm, sum its square among ranks with other parameters, and scale them."""
    bandwidth = job.costs.memory_bandwidth
    rank.compute(nbytes / bandwidth, "norm of the gradients", "clip")
    # ranks that shard parameters also have different experts
    dealt = job.dealt or ("expert",)
    for dimensions in (("tensor",), dealt, ("pipeline",)):
        group = rank.communicators.along(rank.rank, *dimensions)
        square = Collective("all_reduce", len(group.ranks), 4)
        rank.wait(rank.call(group, square, f"norm along {' '.join(dimensions)}"))
    rank.compute(2 * nbytes / bandwidth, "scaled gradients", "clip")


def _policy(job: ParallelJob, layers: Sequence[RankLayer]) -> FullyShardPolicy | FlatPolicy:
    """Return FSDP's policy: by default gathers in the type of products, sums in that of the parameters."""
    stored = next(tensor.dtype for layer in layers for tensor in layer.parameters)
    strategy = job.layout.strategy
    policy = FlatPolicy if strategy == "fsdp1" else FullyShardPolicy
    made = policy(
        param_dtype=job.gathered, reduce_dtype=job.layout.reduce_dtype or stored,
        memory_bandwidth=job.costs.memory_bandwidth, no_sync=not job.layout.syncs_each,
    )  # fmt: skip
    if isinstance(made, FlatPolicy):
        shards = "shard_grad_op" if job.layout.no_reshard else made.strategy
        return replace(made, strategy=shards, splits=job.model.splits)
    last = layers[-1]
    # as torchtitan does: backward begins with the head, which would be gathered again at once
    keeps = job.layout.wrap_ends and last.parameters and not last.wrapped
    return replace(
        made, in_place=strategy == IN_PLACE, reshard_of={last.name: False} if keeps else {},
        reshard_after_forward=False if job.layout.no_reshard else None,
    )  # fmt: skip
