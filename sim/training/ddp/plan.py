"""What a step has to do, before any of it happens: its buckets, its collectives, its copies."""

from collections.abc import Iterator
from dataclasses import dataclass

from sim.collective import ITEMSIZE, Collective
from sim.training.ddp.buckets import BROADCAST_CHUNK, Bucket, assign, layout
from sim.training.ddp.job import COMM_HOOKS, Costs, DataParallel
from sim.workload.workload import Workload

INDEX_DTYPE = "int32"
"""In which DistributedDataParallel counts parameters."""

BROADCASTS_IN_FLIGHT = 2
"""Chunks of buffers broadcast at once (torch/csrc/distributed/c10d/comm.cpp, ``broadcast_coalesced``)."""


@dataclass(frozen=True, slots=True)
class StepPlan:
    """One step of a workload on ``ranks`` ranks, all of its times in seconds but nothing timed yet.

    A gradient is read and written once on its way into its bucket, which divides it; where it is a view of
    it already (only after ``zero_grad(set_to_none=False)``) it is divided in place. A comm hook divides for
    itself, once more for each byte, and then views cost nothing on their way. Back from the bucket it is
    copied unless it became a view. torch's compression hooks cast, divide in place, reduce, cast back.
    """

    workload: Workload
    ranks: int
    ddp: DataParallel
    costs: Costs
    buckets: tuple[Bucket, ...]

    @property
    def delayed(self) -> bool:
        """Whether nothing is reduced before backward has ended: the first iteration of a static graph."""
        return self.ddp.bucketing.static_graph and self.ddp.iteration == 1

    @property
    def unused(self) -> tuple[int, ...]:
        """Parameters that get no gradient; their place in the bucket is ready with the first that does."""
        return tuple(sorted(set(range(len(self.workload.parameters))) - set(self.workload.arrival)))

    def reduction(self, bucket: Bucket) -> Collective:
        """The all-reduce of a bucket."""
        dtype = self._reduced_in(bucket)
        nbytes = bucket.nbytes // ITEMSIZE[bucket.dtype] * ITEMSIZE[dtype]
        return Collective("all_reduce", self.ranks, nbytes, dtype=dtype)

    def usage(self) -> Collective | None:
        """The all-reduce that tells all ranks which parameters any of them used, if that is looked for."""
        bucketing = self.ddp.bucketing
        if not bucketing.find_unused_parameters or bucketing.static_graph:
            return None
        nbytes = len(self.workload.parameters) * ITEMSIZE[INDEX_DTYPE]
        return Collective("all_reduce", self.ranks, nbytes, dtype=INDEX_DTYPE)

    def rebuild(self) -> Iterator[Collective]:
        """Broadcasts by which rank 0 makes its new bucket layout everybody's: the order, then the sizes."""
        if self.ddp.iteration == self.ddp.bucketing.rebuilds_before:
            for count in (len(self.workload.parameters) + 1, len(self.buckets)):
                yield Collective("broadcast", self.ranks, count * ITEMSIZE[INDEX_DTYPE], dtype=INDEX_DTYPE)

    def buffers(self) -> Iterator[Collective]:
        """Broadcasts of rank 0's buffers before forward."""
        if self.ddp.broadcast_buffers:
            for chunk in assign(self.workload.buffers, (BROADCAST_CHUNK,)):
                yield Collective("broadcast", self.ranks, chunk.nbytes, dtype=chunk.dtype)

    def into_bucket_s(self, parameter: int) -> float:
        """Time to bring one gradient into its bucket."""
        if self.ddp.gradient_as_bucket_view and not self.ddp.set_to_none and self.ddp.comm_hook:
            return 0.0
        return self._moving(2 * self.workload.parameters[parameter].nbytes)

    def out_of_bucket_s(self, bucket: Bucket) -> float:
        """Time to bring a bucket's gradients back to their parameters."""
        return 0.0 if self.ddp.gradient_as_bucket_view else self._moving(2 * bucket.nbytes)

    def pack_s(self, bucket: Bucket) -> float:
        """Time a comm hook takes before it reduces: cast, then divide in place."""
        if not self.ddp.comm_hook:
            return 0.0
        narrow = self.reduction(bucket).nbytes
        cast = 0 if bucket.dtype == self._reduced_in(bucket) else bucket.nbytes + narrow
        return self._moving(cast + 2 * narrow)

    def unpack_s(self, bucket: Bucket) -> float:
        """Time a comm hook takes to cast the sum back into the bucket, or to copy it there."""
        if self.ddp.comm_hook in (None, "allreduce"):
            return 0.0
        return self._moving(self.reduction(bucket).nbytes + bucket.nbytes)

    def _reduced_in(self, bucket: Bucket) -> str:
        return COMM_HOOKS.get(self.ddp.comm_hook or "") or bucket.dtype

    def _moving(self, nbytes: int) -> float:
        return nbytes / self.costs.memory_bandwidth


def plan(workload: Workload, ranks: int, ddp: DataParallel, costs: Costs) -> StepPlan:
    """The plan of a step; raise ValueError where DistributedDataParallel would refuse the workload."""
    if not workload.parameters:
        raise ValueError(f"{workload.name}: no parameter requires a gradient, so there is nothing to reduce")
    if not workload.arrival:
        raise ValueError(f"{workload.name}: no layer names a gradient, so there is nothing to reduce")
    bucketing = ddp.bucketing
    if workload.reentrant and bucketing.find_unused_parameters and not bucketing.static_graph:
        raise ValueError(
            f"{workload.name} checkpoints with use_reentrant: find_unused_parameters finds gradients ready "
            "twice, which stops DistributedDataParallel; write use_reentrant=False, or static_graph"
        )
    if ddp.iteration == 1 and not bucketing.find_unused_parameters:
        layout(workload, bucketing, 2)  # what stops the second iteration is refused in the first
    return StepPlan(workload, ranks, ddp, costs, layout(workload, bucketing, ddp.iteration))
