"""Lower bounds of a job's step time and of its ranks' memory, without simulation.

A step is no shorter than its passes and messages without waits, nor than one communicator's traffic. A rank
holds at least its parameters and the activations that wait for backward. Both are below the results of
`ringside.sim.training.parallel`, mostly by a few percent: a layout whose bound is worse than a known result
need not be simulated.
"""

from collections.abc import Sequence
from typing import NamedTuple

from ringside.sim.collective import ITEMSIZE, Collective
from ringside.sim.program.groups import CostModel, library_time
from ringside.sim.program.libraries import Libraries
from ringside.sim.training.job import ParallelJob, RankModel
from ringside.sim.training.layers import Exchange, Kernels, Pass, RankLayer, is_of_experts
from ringside.sim.training.memory.held import makes_gradients
from ringside.sim.training.mesh import DATA, Mesh
from ringside.sim.training.pipeline.actions import Kind
from ringside.sim.training.search.walk import Moment, ends_of, moments, order_of
from ringside.sim.training.strategies import FSDP, MEGATRON
from ringside.sim.training.zero.distributed_optimizer import Moved, types_of
from ringside.sim.training.zero.partition import MASTER

CLIPPED = 3
"""Passes over gradients that read them for their norm, and scale them."""

SIZES = tuple(1 << power for power in range(21, 34, 3))
"""Sizes whose pace bounds that of a collective that goes in parts: 2 MiB to 8 GiB."""


class StageCost(NamedTuple):
    """Costs of a stage on one rank: seconds of a micro-batch's passes, bytes.

    ``again_nbytes`` are recomputed for backward, layer by layer, ``most_nbytes`` the most that
    one micro-batch holds anywhere in the stage; ``nbytes`` are the parameters', ``wrapped_nbytes``
    those of layers that FSDP wraps.
    """

    forward: float = 0.0
    backward: float = 0.0
    input_gradient: float = 0.0
    weight_gradient: float = 0.0
    kept_nbytes: int = 0
    again_nbytes: int = 0
    most_nbytes: int = 0
    nbytes: int = 0
    wrapped_nbytes: int = 0

    def seconds(self, kind: Kind) -> float:
        """Return the seconds of a pass."""
        return {
            Kind.FORWARD: self.forward,
            Kind.BACKWARD: self.backward,
            Kind.INPUT_GRADIENT: self.input_gradient,
            Kind.WEIGHT_GRADIENT: self.weight_gradient,
        }[kind]


class _Cut:
    """A model as some layouts cut it: its stages, and the dimensions along which its layers exchange."""

    def __init__(self, model: RankModel) -> None:
        self.model = model
        self.stages: dict[tuple[int, str | None], tuple[range, ...]] = {}
        self.dimensions = sorted(
            {
                part.dimensions
                for layer in model.layers
                for part in (*layer.forward, *layer.backward)
                if isinstance(part, Exchange)
            }
        )


class Bounds:
    """Lower bounds of jobs on one cluster; results that layouts share are computed once."""

    def __init__(self, libraries: Libraries) -> None:
        self._libraries = libraries
        self._times: dict[tuple[Mesh, tuple[str, ...]], CostModel] = {}
        self._paces: dict[tuple[Mesh, tuple[str, ...], str], float] = {}
        self._hops: dict[tuple[int, int, int], float] = {}
        self._known: dict[int, _Cut] = {}
        self._costs: dict[tuple[object, ...], tuple[StageCost, ...]] = {}

    def nbytes(self, job: ParallelJob) -> int:
        """Return the bytes that some rank of the job certainly holds at one moment."""
        costs = self.stages(job)
        most = 0
        for place, every in moments(order_of(job.layout), job.micro_batches):
            own = [costs[stage] for stage in job.placement.of(place)]
            gradients = sum(cost.nbytes for cost in own) if makes_gradients(job) else 0
            waiting = max(_waiting(job, own, moment) for moment in every)
            most = max(most, _held(job, own) + max(waiting, gradients))
        return most

    def step_s(self, job: ParallelJob, *, walks: bool = True) -> float:
        """Return the seconds of a step.

        Without ``walks`` the order of actions in a pipeline is ignored, which is faster to compute.
        """
        costs = self.stages(job)
        # passes together are in another order
        follows = walks and job.mesh.pipeline > 1 and not job.layout.overlap_experts
        passed = self._walked(job, costs) if follows else _filled(job, costs)
        return max(
            self._ended(job, [costs[stage] for stage in job.placement.of(place)], passed[place])
            for place in range(job.mesh.pipeline)
        )

    def stages(self, job: ParallelJob) -> tuple[StageCost, ...]:
        """Return the costs of all stages of a job, at the pace of the slowest rank."""
        model, count = job.model, job.layout.stages
        if id(model) not in self._known:
            # kept, so that the id is not reused by another object
            self._known[id(model)] = _Cut(model)
        known = self._known[id(model)]
        cut = count, job.layout.pp_layout
        if cut not in known.stages:
            known.stages[cut] = model.cut(count, job.layout.parts)
        groups = tuple(job.mesh.together(0, *dimensions) for dimensions in known.dimensions)
        hides = job.layout.overlap_experts
        key = id(model), groups, cut, job.pace * job.factor, job.costs.contention, hides
        if key not in self._costs:
            costs = self._layers(job)
            self._costs[key] = tuple(
                self._receiving(_together([costs[number] for number in own]), job, stage)
                for stage, own in enumerate(known.stages[cut])
            )
        return self._costs[key]

    def _receiving(self, cost: StageCost, job: ParallelJob, stage: int) -> StageCost:
        """Return the costs of a stage with what makes whole tensors of the parts that it gets."""
        before_s, after_s = (self._pass_s(parts, job, 1.0) for parts in job.receives(stage))
        return cost._replace(
            forward=cost.forward + before_s,
            backward=cost.backward + after_s,
            input_gradient=cost.input_gradient + after_s,
        )

    def _layers(self, job: ParallelJob) -> list[StageCost]:
        """Return the costs of each layer; a decoder's layers share their passes, which are timed once."""
        known: dict[tuple[object, ...], StageCost] = {}
        costs = []
        for layer in job.model.layers:
            same = layer.forward, layer.backward, layer.recomputed, layer.kept_nbytes, layer.nbytes
            if same not in known:
                known[same] = self._layer(layer, job)
            costs.append(known[same])
        return costs

    def _layer(self, layer: RankLayer, job: ParallelJob) -> StageCost:
        """Return a layer's costs. Exchanges of experts that another micro-batch hides take no time."""

        def alone(parts: Pass) -> float:
            seen = tuple(part for part in parts if not (job.layout.overlap_experts and is_of_experts(part)))
            return self._pass_s(seen, job, job.pace * job.factor)

        again = alone(layer.recomputed)
        nbytes, most = layer.nbytes, layer.kept_nbytes + layer.recomputed_nbytes
        return StageCost(
            alone(layer.forward), again + alone(layer.backward), again + alone(layer.input_gradient),
            alone(layer.weight_gradient), layer.kept_nbytes, layer.recomputed_nbytes, most, nbytes,
            nbytes if layer.wrapped else 0,
        )  # fmt: skip

    def _pass_s(self, parts: Pass, job: ParallelJob, pace: float) -> float:
        """Return the seconds of a pass. Work hides earlier exchanges that overlap, which slow it."""
        now = beside = 0.0
        taken = job.costs.contention
        for part in parts:
            if isinstance(part, Kernels):
                seconds = part.seconds * pace
                slowed = min(seconds / (1 - taken), max(beside - now, 0.0))
                now = max(now + seconds + taken * slowed, beside)
                continue
            beside = max(now, beside) + self._exchange_s(part, job.mesh)
            if not part.overlaps:
                now = beside
        return max(now, beside)

    def _exchange_s(self, exchange: Exchange, mesh: Mesh) -> float:
        if mesh.degree(*exchange.dimensions) == 1:
            return 0.0
        return self._time(mesh, exchange.dimensions)(exchange.collective)

    def _time(self, mesh: Mesh, dimensions: tuple[str, ...]) -> CostModel:
        key = mesh, dimensions
        if key not in self._times:
            self._times[key] = library_time(self._libraries.of(mesh.together(0, *dimensions)))
        return self._times[key]

    def _parted_s(self, job: ParallelJob, dimensions: tuple[str, ...], kind: str, nbytes: int) -> float:
        """Return the least seconds of a collective that goes at once or in parts, in any number of calls.

        Measured times need not grow with sizes: parts may take less than all at once.
        """
        group = job.mesh.degree(*dimensions)
        time = self._time(job.mesh, dimensions)
        key = job.mesh, dimensions, kind
        if key not in self._paces:
            self._paces[key] = min(time(Collective(kind, group, size)) / size for size in SIZES)
        return min(nbytes * self._paces[key], time(Collective(kind, group, nbytes)))

    def _walked(self, job: ParallelJob, costs: Sequence[StageCost]) -> list[float]:
        """Return when each rank of the pipeline has passed all micro-batches, in its order."""
        tables = order_of(job.layout).actions(job.micro_batches)
        hops = [self._hop_s(job, stage) for stage in range(job.layout.stages - 1)]
        return ends_of(tables, job.placement, lambda one: costs[one.stage].seconds(one.kind), hops)

    def _hop_s(self, job: ParallelJob, stage: int) -> float:
        """Return the seconds of a message from a stage to the next."""
        each = job.mesh.ranks // job.mesh.pipeline
        here, there = (job.placement.rank(one) * each for one in (stage, stage + 1))
        nbytes = job.between_nbytes[stage]
        if here == there or not nbytes:
            return 0.0
        key = here, there, nbytes
        if key not in self._hops:
            self._hops[key] = self._libraries.message(*key)[0]
        return self._hops[key]

    def _ended(self, job: ParallelJob, own: Sequence[StageCost], passed: float) -> float:
        """Return when a rank has run its optimizer, given the end of its passes."""
        if job.layout.strategy in MEGATRON and not job.mesh.separates_experts:
            return passed + _updated_s(job, own)
        if job.layout.strategy not in ("ddp", *FSDP) or job.mesh.separates_experts:
            return passed
        nbytes = sum(cost.nbytes for cost in own) / job.holders
        update_s = job.optimizer.seconds(int(nbytes), job.costs.memory_bandwidth) * job.pace
        if job.mesh.degree(*DATA) == 1:
            return passed + update_s
        if job.layout.strategy == "ddp":
            # the last stage to end is summed from the begin of the backward of each, or the last, micro-batch
            longest = max(cost.backward for cost in own)
            reduced_s = min(self._all_reduce_s(job, cost.nbytes) for cost in own)
            return passed + _reduces(job) * max(0.0, reduced_s - longest) + update_s
        return max(passed, self._shared_s(job, own)) + update_s

    def _all_reduce_s(self, job: ParallelJob, nbytes: int) -> float:
        if job.ddp.comm_hook not in (None, "allreduce") or not nbytes:
            return 0.0
        return self._parted_s(job, DATA, "all_reduce", nbytes)

    def _shared_s(self, job: ParallelJob, own: Sequence[StageCost]) -> float:
        """Return the seconds in which one communicator gathers parameters and reduces gradients."""
        layout = job.layout
        if job.holders == 1:
            return 0.0
        nbytes, wrapped = sum(cost.nbytes for cost in own), sum(cost.wrapped_nbytes for cost in own)
        parts = [(1, nbytes)]
        if not layout.no_reshard and (job.mesh.pipeline == 1 or layout.strategy == "fsdp1"):
            # all of it for each micro-batch, and for its backward the part that was freed
            parts = [(job.micro_batches, nbytes + wrapped)]
        elif not layout.no_reshard and layout.schedule in ("gpipe", "1f1b"):
            # backward frees nothing, so the part that each forward frees is gathered once
            parts.append((job.micro_batches, wrapped))
        gathers_s = sum(
            times * self._parted_s(job, job.dealt, "all_gather", _computed_nbytes(job, gathered))
            for times, gathered in parts
        )
        return gathers_s + _reduces(job) * self._parted_s(job, job.dealt, "reduce_scatter", nbytes)


def _updated_s(job: ParallelJob, costs: Sequence[StageCost]) -> float:
    """Return the seconds in which Megatron-LM's optimizer updates a rank's part, clipping included."""
    stored, parameters, gradients = types_of(job)
    elements = sum(cost.nbytes for cost in costs) // ITEMSIZE[stored]
    part = elements // (job.mesh.degree(*DATA) if job.layout.strategy == "distributed_optimizer" else 1)
    own_nbytes = part * ITEMSIZE[MASTER]
    nbytes = sum(Moved.by(elements, part, gradients, parameters))
    if job.layout.clip:
        nbytes += CLIPPED * own_nbytes
    bandwidth = job.costs.memory_bandwidth
    return nbytes / bandwidth + job.optimizer.seconds(own_nbytes, bandwidth) * job.pace


def _reduces(job: ParallelJob) -> int:
    """Return the number of times that gradients are reduced per step."""
    return job.micro_batches if job.layout.syncs_each else 1


def _together(costs: Sequence[StageCost]) -> StageCost:
    """Return the costs of consecutive layers. Backward recomputes them from the last, each in its turn."""
    kept = most = 0
    for cost in costs:
        most = max(most, kept + cost.most_nbytes)
        kept += cost.kept_nbytes
    return StageCost(
        forward=sum(cost.forward for cost in costs),
        backward=sum(cost.backward for cost in costs),
        input_gradient=sum(cost.input_gradient for cost in costs),
        weight_gradient=sum(cost.weight_gradient for cost in costs),
        kept_nbytes=kept,
        again_nbytes=sum(cost.again_nbytes for cost in costs),
        most_nbytes=most,
        nbytes=sum(cost.nbytes for cost in costs),
        wrapped_nbytes=sum(cost.wrapped_nbytes for cost in costs),
    )


def _filled(job: ParallelJob, costs: Sequence[StageCost]) -> list[float]:
    """Return when each rank has passed its micro-batches if it never waits once the first has arrived."""
    ends = []
    for place in range(job.mesh.pipeline):
        own = job.placement.of(place)
        before = sum(cost.forward for cost in costs[: own[0]])
        work = sum(costs[stage].forward + _backward_s(costs[stage]) for stage in own)
        ends.append(before + job.micro_batches * work)
    return ends


def _backward_s(cost: StageCost) -> float:
    """Return the shorter of backward at once and in two parts."""
    return min(cost.backward, cost.input_gradient + cost.weight_gradient)


def _held(job: ParallelJob, costs: Sequence[StageCost]) -> int:
    """Return the bytes that a rank with these stages holds throughout."""
    nbytes, states = sum(cost.nbytes for cost in costs), job.optimizer.states
    if job.layout.strategy == "ddp":
        # experts without replicas are in no bucket
        shares = job.mesh.degree(*DATA) > 1 and not job.mesh.separates_experts
        has_buckets = shares and not job.ddp.gradient_as_bucket_view
        return (1 + states + has_buckets + (not makes_gradients(job))) * nbytes
    return (1 + states) * nbytes // job.holders if job.layout.strategy in FSDP else 0


def _computed_nbytes(job: ParallelJob, nbytes: int) -> int:
    """Return the size of ``nbytes`` bytes of parameters in the type of products."""
    dtype = next(tensor.dtype for layer in job.model.layers for tensor in layer.parameters)
    return nbytes // ITEMSIZE[dtype] * ITEMSIZE[job.gathered or dtype]


def _waiting(job: ParallelJob, costs: Sequence[StageCost], moment: Moment) -> int:
    """Return a rank's transient bytes at a moment: activations, and gradients that each step makes again.

    Gradients count from the second micro-batch on: the first one's backward makes them layer by layer. FSDP
    reduces them beside the last backward, or after it, as a pipeline's table defines. FSDP1 keeps them in the
    type in which backward made them.
    """
    now = costs[moment.stage]
    whole = sum(
        kept * cost.kept_nbytes + halved * cost.again_nbytes
        for kept, halved, cost in zip(moment.kept, moment.halved, costs, strict=True)
    )
    backward = whole - now.kept_nbytes + now.most_nbytes if moment.whole else whole
    sums = sum(cost.nbytes for cost, summed in zip(costs, moment.summed, strict=True) if summed)
    if job.layout.strategy not in FSDP:
        return backward + (sums if makes_gradients(job) else 0)
    if job.layout.syncs_each:
        return backward
    if job.layout.strategy == "fsdp1":
        sums = _computed_nbytes(job, sums)
    if job.mesh.pipeline > 1:
        return backward + sums
    return max(backward, whole + sums) if moment.last else backward + sums
