"""The content of a step without times: its buckets, collectives and copies."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ringside.sim.collective import ITEMSIZE, Collective
from ringside.sim.training.ddp.buckets import BROADCAST_CHUNK, Bucket, assign, layout
from ringside.sim.training.ddp.job import COMM_HOOKS, Costs, DataParallel
from ringside.sim.training.ddp.powersgd import Compression, compression
from ringside.sim.training.layers import RankLayer
from ringside.sim.training.modules import workload_of
from ringside.sim.workload.workload import Tensor, Workload

INDEX_DTYPE = "int32"
"""The type in which DistributedDataParallel counts parameters."""

BROADCASTS_IN_FLIGHT = 2
"""Chunks of buffers in flight at once (torch/csrc/distributed/c10d/comm.cpp, ``broadcast_coalesced``)."""


class Part(NamedTuple):
    """One collective of a bucket: the suffix of its name, and the seconds of the hook's work after it."""

    name: str
    collective: Collective
    after_s: float


@dataclass(frozen=True, slots=True)
class StepPlan:
    """One step of a workload on ``ranks`` ranks, with seconds of work but no start times.

    A gradient is read and written once on its way into its bucket, which divides it. If it is already a view
    of the bucket (only after ``zero_grad(set_to_none=False)``) it is divided in place. A comm hook divides by
    itself, once more per byte, and then views cost nothing on their way. Gradients are copied back from the
    bucket unless they became views. torch's compression hooks cast, divide in place, reduce, cast back;
    PowerSGD (`ringside.sim.training.ddp.powersgd`) reduces three times.
    """

    workload: Workload
    ranks: int
    ddp: DataParallel
    costs: Costs
    buckets: tuple[Bucket, ...]

    @property
    def delayed(self) -> bool:
        """Whether nothing is reduced before backward ends, as in the first iteration of a static graph."""
        return self.ddp.bucketing.static_graph and self.ddp.settled == 1

    @property
    def unused(self) -> tuple[int, ...]:
        """Parameters without a gradient; their place in the bucket is ready with the first gradient."""
        return tuple(sorted(set(range(len(self.workload.parameters))) - set(self.workload.arrival)))

    def parts(self, bucket: Bucket) -> tuple[Part, ...]:
        """Return the all-reduces of a bucket, in order: one, or three with PowerSGD."""
        if not self.ddp.compresses:
            dtype = self._reduced_in(bucket)
            count = bucket.nbytes // ITEMSIZE[bucket.dtype]
            return (Part("", self._all_reduce(count, dtype), self._unpack_s(bucket)),)
        compression, (_, *after) = self._compression(bucket), self._stretches_s(bucket)
        counts = (("", compression.uncompressed), (" P", compression.left), (" Q", compression.right))
        return tuple(
            Part(name, self._all_reduce(count, bucket.dtype), seconds)
            for (name, count), seconds in zip(counts, after, strict=True)
        )

    def usage(self) -> Collective | None:
        """Return the all-reduce of the flags of used parameters, if requested."""
        bucketing = self.ddp.bucketing
        if not bucketing.find_unused_parameters or bucketing.static_graph:
            return None
        nbytes = len(self.workload.parameters) * ITEMSIZE[INDEX_DTYPE]
        return Collective("all_reduce", self.ranks, nbytes, dtype=INDEX_DTYPE)

    def rebuild(self) -> Iterator[Collective]:
        """Broadcasts of rank 0's new bucket layout: the order, then the sizes."""
        if self.ddp.settled == self.ddp.bucketing.rebuilds_before:
            for count in (len(self.workload.parameters) + 1, len(self.buckets)):
                yield Collective("broadcast", self.ranks, count * ITEMSIZE[INDEX_DTYPE], dtype=INDEX_DTYPE)

    def buffers(self) -> Iterator[Collective]:
        """Broadcasts of rank 0's buffers before forward."""
        if self.ddp.broadcast_buffers:
            for chunk in assign(self.workload.buffers, (BROADCAST_CHUNK,)):
                yield Collective("broadcast", self.ranks, chunk.nbytes, dtype=chunk.dtype)

    def into_bucket_s(self, parameter: int) -> float:
        """Return the time to copy one gradient into its bucket."""
        if self.ddp.gradient_as_bucket_view and not self.ddp.set_to_none and self.ddp.comm_hook:
            return 0.0
        return self._moving(2 * self.workload.parameters[parameter].nbytes)

    def out_of_bucket_s(self, bucket: Bucket) -> float:
        """Return the time to copy a bucket's gradients back to their parameters."""
        return 0.0 if self.ddp.gradient_as_bucket_view else self._moving(2 * bucket.nbytes)

    def pack_s(self, bucket: Bucket) -> float:
        """Return a comm hook's time before it reduces: cast, divide in place; or PowerSGD's first product."""
        if not self.ddp.comm_hook:
            return 0.0
        if self.ddp.compresses:
            return self._stretches_s(bucket)[0]
        dtype = self._reduced_in(bucket)
        narrow = bucket.nbytes // ITEMSIZE[bucket.dtype] * ITEMSIZE[dtype]
        return self._moving((0 if bucket.dtype == dtype else bucket.nbytes + narrow) + 2 * narrow)

    def after_s(self, bucket: Bucket) -> float:
        """Return a comm hook's time after its collectives."""
        return sum(part.after_s for part in self.parts(bucket))

    def _unpack_s(self, bucket: Bucket) -> float:
        """Return a comm hook's time to cast the sum back into the bucket, or to copy it there."""
        if self.ddp.comm_hook not in ("fp16_compress", "bf16_compress"):
            return 0.0
        narrow = bucket.nbytes // ITEMSIZE[bucket.dtype] * ITEMSIZE[self._reduced_in(bucket)]
        return self._moving(narrow + bucket.nbytes)

    def _compression(self, bucket: Bucket) -> Compression:
        return compression(bucket, self.workload.parameters, self.ddp.powersgd)

    def _all_reduce(self, count: int, dtype: str) -> Collective:
        return Collective("all_reduce", self.ranks, count * ITEMSIZE[dtype], dtype=dtype)

    def _stretches_s(self, bucket: Bucket) -> tuple[float, ...]:
        """Return the times of PowerSGD's stretches: measured, or to move elements or to launch operators."""
        if self.costs.hook_s:
            return self.costs.hook_s[self.buckets.index(bucket)]
        return tuple(
            max(self._moving(work.elements * ITEMSIZE[bucket.dtype]), work.operators * self.costs.operator_s)
            for work in self._compression(bucket).stretches
        )

    def _reduced_in(self, bucket: Bucket) -> str:
        return COMM_HOOKS.get(self.ddp.comm_hook or "") or bucket.dtype

    def _moving(self, nbytes: int) -> float:
        return nbytes / self.costs.memory_bandwidth


def plan_of_layers(
    name: str,
    layers: Sequence[RankLayer],
    ranks: int,
    ddp: DataParallel,
    costs: Costs,
    buffers: tuple[Tensor, ...] = (),
) -> StepPlan:
    """Return the plan of a stage's layers, in the order of `ringside.sim.training.modules.arriving`."""
    workload = workload_of(name, layers, buffers)
    return StepPlan(workload, ranks, ddp, costs, layout(workload, ddp.bucketing, ddp.settled))


def plan(workload: Workload, ranks: int, ddp: DataParallel, costs: Costs) -> StepPlan:
    """Return the plan of a step; raise ValueError if DistributedDataParallel would refuse the workload."""
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
    if ddp.settled == 1 and not bucketing.find_unused_parameters:
        layout(workload, bucketing, 2)  # an error of the second iteration is raised in the first
    if ddp.comm_hook == "powersgd":
        _check_matrices(workload)
    return StepPlan(workload, ranks, ddp, costs, layout(workload, bucketing, ddp.settled))


def _check_matrices(workload: Workload) -> None:
    """Raise ValueError for gradients that PowerSGD cannot compress: sparse ones and ones without elements."""
    for tensor in workload.parameters:
        if tensor.sparse or not tensor.count:
            what = "is sparse" if tensor.sparse else "has no elements"
            raise ValueError(
                f"{workload.name}: the gradient of {tensor.name} {what}, which PowerSGD cannot "
                "compress; write another `comm_hook`, or leave the parameter out"
            )
