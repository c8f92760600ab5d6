"""A step of DistributedDataParallel without times: its buckets, collectives and copies, around passes.

Every rank has all of a stage; gradients are averaged. They go into their buckets as backward makes them: in
every backward, as torch does by default, or under ``no_sync`` only in the step's last. A bucket is launched
when it and all earlier ones are full, and waited for when that backward is over. Launch delays, and the cast
back of a comm hook, occupy no compute units, so they have no lane.

PowerSGD's three all-reduces of a bucket follow one another beside the stream. On NCCL it synchronises the
device at their end, so the host launches no further part of backward until then. Gloo has no device; one of
its threads waits until the third is done (`ringside.sim.training.ddp.simulate`).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ringside.sim.collective import ITEMSIZE, Collective
from ringside.sim.program import Call, Compute, Group, Wait
from ringside.sim.training.ddp.buckets import (
    BROADCAST_CHUNK,
    Bucket,
    Compression,
    assign,
    compression,
    layout,
)
from ringside.sim.training.ddp.job import COMM_HOOKS, Costs, DataParallel
from ringside.sim.training.layers import RankLayer, workload_of
from ringside.sim.training.stage import STREAM, RankList
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
    PowerSGD (`ringside.sim.training.ddp.buckets`) reduces three times.
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
    """Return the plan of a stage's layers, in the order of `ringside.sim.training.layers.arriving`."""
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
    for tensor in workload.parameters if ddp.comm_hook == "powersgd" else ():
        if tensor.sparse or not tensor.count:
            what = "is sparse" if tensor.sparse else "has no elements"
            raise ValueError(
                f"{workload.name}: the gradient of {tensor.name} {what}, which PowerSGD cannot "
                "compress; write another `comm_hook`, or leave the parameter out"
            )
    return StepPlan(workload, ranks, ddp, costs, layout(workload, bucketing, ddp.settled))


@dataclass(slots=True)
class Launched:
    """A collective as places in one rank's list: its readiness, its launch, its call, its end.

    ``None`` means the step's begin.
    """

    name: str
    collective: Collective
    ready: int | None
    launch: int | None
    call: int
    finish: int


@dataclass(frozen=True, slots=True)
class Chain:
    """A bucket's collectives, one after another.

    The last is launched after the operation at ``launched_after``; the chain ends with that at ``finish``.
    """

    launched: tuple[Launched, ...]
    launched_after: int | None
    finish: int | None


class Replicated:
    """A rank's part in the step of a plan, whose workload has one layer for each of the stage's.

    Collectives are ``group``'s. After writing they are listed here by kind, in launch order.
    """

    def __init__(self, rank: RankList, job: StepPlan, group: Group) -> None:
        self.job = job
        self.rebuild: list[Launched] = []
        self.buffers: list[Launched] = []
        self.chains: list[Chain] = []
        self.usage: list[Launched] = []
        self._rank = rank
        self._group = group
        self._forward_order = job.workload.layers[::-1]
        self._bucket_of = {
            index: number for number, one in enumerate(job.buckets) for index in one.parameters
        }
        self._first = job.workload.arrival[0]
        self._reduced = 0
        """Number of backward passes whose gradients are reduced."""
        self._begin()

    @property
    def buckets(self) -> list[Launched]:
        """The collectives of buckets."""
        return [launched for chain in self.chains for launched in chain.launched]

    @property
    def launched(self) -> list[Launched]:
        """Every collective, in the order of the answer's rows."""
        return [*self.rebuild, *self.buffers, *self.buckets, *self.usage]

    def _begin(self) -> None:
        """Begin to collect the gradients of another backward."""
        self._pending = [len(bucket.parameters) for bucket in self.job.buckets]
        self._ready: list[int | None] = [None] * len(self.job.buckets)
        self._under_way: list[Chain] = []
        self._has_begun = False

    def before_forward(self, layer: int) -> None:
        """Broadcast rank 0's bucket layout and buffers before the first layer, after a reduced backward."""
        if self._has_begun:
            return
        self._has_begun = True
        for number, collective in enumerate(self.job.rebuild() if not self._reduced else ()):
            self.rebuild.append(self._launch(f"rebuild {number}", collective))
            self._wait(self.rebuild[-1])
        buffers: list[Launched] = []
        for number, collective in enumerate(self.job.buffers()):
            if number >= BROADCASTS_IN_FLIGHT:
                self._wait(buffers[number - BROADCASTS_IN_FLIGHT])
            buffers.append(self._launch(self._named(f"buffers {number}"), collective))
        for launched in buffers:
            self._wait(launched)
        self.buffers += buffers

    def after_forward(self, layer: int) -> None:
        """Do nothing."""

    def before_backward(self, layer: int) -> None:
        """Do nothing."""

    def after_backward(self, layer: int, *, last: bool) -> None:
        """Copy the layer's gradients into their buckets, if this backward reduces."""
        if self.job.ddp.no_sync and not last:
            return
        if not self.job.delayed:
            self._reduce(self._forward_order[layer].gradients)
        if layer == 0 and not last:
            self._finish()

    def after_step(self) -> None:
        """Wait for the last backward's buckets, and copy their gradients back."""
        self._finish()

    def _finish(self) -> None:
        """Copy a backward's gradients back from their buckets."""
        if self.job.delayed:
            self._reduce(self.job.workload.arrival)
        for number, chain in enumerate(self._under_way):
            name = self._named(f"bucket {number}")
            self._wait_until(name, chain.finish)
            self._copy(f"{name} to gradients", self.job.out_of_bucket_s(self.job.buckets[number]))
        if self.job.usage():
            self._wait(self.usage[-1])
        self._reduced += 1
        self._begin()

    def _named(self, name: str) -> str:
        """Return the name with the backward's number, unless it is the first that is reduced."""
        return f"{name}, backward {self._reduced}" if self._reduced else name

    def _reduce(self, gradients: Sequence[int]) -> None:
        """Copy gradients into their buckets, and launch full buckets."""
        job = self.job
        for index in job.unused if self._first in gradients[:1] else ():
            self._in_bucket(index)
        for index in gradients:
            self._copy(f"{job.workload.parameters[index].name} into bucket", job.into_bucket_s(index))
            self._in_bucket(index)
            if not job.delayed:
                self._launch_buckets()
        if job.delayed:
            self._launch_buckets()

    def _in_bucket(self, index: int) -> None:
        number = self._bucket_of[index]
        self._pending[number] -= 1
        self._ready[number] = self._last

    def _launch_buckets(self) -> None:
        """Launch full buckets in strict order."""
        job = self.job
        while len(self._under_way) < len(job.buckets) and not self._pending[len(self._under_way)]:
            number = len(self._under_way)
            self._under_way.append(self._chain(number))
            self.chains.append(self._under_way[-1])
            if job.ddp.compresses and self._group.rules.on_stream:
                self._wait_until(self._named(f"bucket {number}"), self.chains[-1].finish)
            usage = job.usage()
            if len(self._under_way) == len(job.buckets) and usage:
                self.usage.append(self._launch(self._named("used parameters 0"), usage))

    def _chain(self, number: int) -> Chain:
        """Launch a bucket's collectives; a PowerSGD all-reduce without elements sends no data."""
        bucket = self.job.buckets[number]
        self._copy(f"pack bucket {number}", self.job.pack_s(bucket))
        launched: list[Launched] = []
        caller = place = self._last
        for part in self.job.parts(bucket):
            name, caller = self._named(f"bucket {number}{part.name}"), place
            if part.collective.nbytes or not self.job.ddp.compresses:
                one = self._launch(name, part.collective, part.after_s, place)
                one.ready = one.launch if launched else self._ready[number]
                launched.append(one)
                place = one.finish
            elif part.after_s:
                place = self._unpack(name, part.after_s, place)
        return Chain(tuple(launched), caller, place)

    def _launch(
        self, name: str, collective: Collective, unpack_s: float = 0.0, after: int | None = None
    ) -> Launched:
        """Launch a collective after an operation, or after the stream's latest."""
        launch = self._last if after is None else after
        before = () if launch is None else (launch,)
        if self.job.costs.launch_s:
            delay = Compute(self.job.costs.launch_s)
            before = (self._rank.post(delay, f"launch of {name}", "launch", None, before),)
        call = Call(self._group, collective.kind, collective)
        finish = place = self._rank.post(call, name, collective.kind, None, before)
        if unpack_s:
            finish = self._unpack(name, unpack_s, place)
        return Launched(name, collective, launch, launch, place, finish)

    def _unpack(self, name: str, seconds: float, after: int | None) -> int:
        before = () if after is None else (after,)
        return self._rank.post(Compute(seconds), f"unpack {name}", "unpack", None, before)

    def _wait(self, launched: Launched) -> None:
        self._wait_until(launched.name, launched.finish)

    def _wait_until(self, name: str, place: int | None) -> None:
        if place is not None:
            self._rank.post(Wait(), f"wait for {name}", "wait", STREAM, (place,))

    def _copy(self, name: str, seconds: float) -> None:
        self._rank.compute(seconds, name, "copy")

    @property
    def _last(self) -> int | None:
        """The stream's latest operation."""
        return self._rank.latest.get(STREAM)
