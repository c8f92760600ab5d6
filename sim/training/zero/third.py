"""DeepSpeed's ZeRO stage 3: everything is sharded, and gathered in the order recorded in a first step.

As in deepspeed/runtime/zero/stage3.py and partitioned_param_coordinator.py, 0.16.5. A module gathers its
missing parameters, then prefetches the next ones of the recorded trace. Parameters that are used again soon
are kept. The simulated step is a later one: the record is complete.
"""

from collections import deque
from collections.abc import Sequence
from math import ceil

from ringside.sim.collective import ITEMSIZE, Collective
from ringside.sim.training.fsdp_policy import BUFFERS, GATHERED, GRADIENTS, PARAMETERS, UNREDUCED
from ringside.sim.training.layers import RankLayer
from ringside.sim.training.memory.optimizers import Optimizer
from ringside.sim.training.mesh import DATA
from ringside.sim.training.stage import RankList, Streams
from ringside.sim.training.zero.partition import MASTER, ZeroPolicy, hold_states, step_on
from ringside.sim.workload.workload import Tensor

GATHER = "all-gather"
REDUCE = "reduce-scatter"

MOST_FETCHES = 2
"""Awaited gathers in flight, beyond which the host waits for the oldest."""

MOST_REDUCES = 2
"""Buckets of gradients in flight, beyond which the host waits for the oldest."""


class DealtOut:
    """A `Sharing` by ZeRO stage 3, of layers that are modules (`ringside.sim.training.layers`).

    All parameters of a module are gathered by one collective; so are those of several modules that are
    prefetched at once, whose tensors are then separated by copies. Small parameters are never released.
    """

    def __init__(self, rank: RankList, modules: Sequence[RankLayer], policy: ZeroPolicy) -> None:
        self.rank = rank
        self._modules = modules
        self._policy = policy
        self._group = rank.communicators.along(rank.rank, *DATA)
        self._streams = Streams(rank, policy.memory_bandwidth)
        least = policy.param_persistence_threshold
        self._counts = [
            sum(one.count for one in module.parameters if one.count > least) for module in modules
        ]
        self._trace = [*range(len(modules)), *reversed(range(len(modules)))]
        self._calls: dict[int, int | None] = {}
        """The collective of each module that is gathered, or is being gathered."""
        self._step = 0
        """Position in the trace in this micro-batch."""
        self._queued = 0
        """Position up to which the trace is gathered."""
        self._fetches: deque[int] = deque()
        self._reduces: deque[int] = deque()
        self._bucket = 0
        self._has_buffer = self._has_part = False

    @property
    def updated_nbytes(self) -> int:
        """Bytes of the parameters that this rank's optimizer updates."""
        return self._part * ITEMSIZE[MASTER]

    def hold(self, optimizer: Optimizer) -> None:
        """Hold the rank's part of parameters, copies and states, and the small parameters whole."""
        small = sum(
            one.count for one in self._tensors if one.count <= self._policy.param_persistence_threshold
        )
        self.rank.take(PARAMETERS, (self._part + small) * self._policy.itemsize)
        hold_states(self.rank, optimizer, self._part)

    def before_forward(self, layer: int) -> None:
        """Wait for the module's parameters, and begin to gather the next ones."""
        if layer == 0:
            self._step = self._queued = 0
        self._fetch(layer)

    def after_forward(self, layer: int) -> None:
        """Release the module's parameters, unless they are used again soon."""
        self._release(layer)

    def before_backward(self, layer: int) -> None:
        """Wait for the module's parameters again, and allocate their gradients."""
        if not self._has_buffer:
            self.rank.take(BUFFERS, self._policy.reduce_bucket_size * self._policy.itemsize)
            self._has_buffer = True
        self._fetch(layer)
        self.rank.take(UNREDUCED, self._nbytes(layer))

    def after_backward(self, layer: int, *, last: bool) -> None:
        """Release the module's parameters, and sum its gradients among the ranks."""
        self._release(layer)
        for tensor in reversed(self._modules[layer].parameters):
            if self._bucket and self._bucket + tensor.count > self._policy.reduce_bucket_size:
                self._reduce()
            self._bucket += tensor.count
        copied = 2 * self._nbytes(layer)
        place = self._streams.copy(
            copied, f"gradients of {self._modules[layer].name}", REDUCE, self.rank.last()
        )
        self.rank.give(UNREDUCED, self._nbytes(layer), place)
        if layer == 0:
            self._reduce()
            self._streams.wait(self._streams.last(REDUCE))
            self._reduces.clear()

    def after_step(self) -> None:
        """Free the bucket: each backward has summed its gradients."""
        if self._has_buffer:
            self.rank.give(BUFFERS, self._policy.reduce_bucket_size * self._policy.itemsize)
            self._has_buffer = False

    def update(self, seconds: float) -> None:
        """Update the rank's part in float32, and cast it; gather the small parameters."""
        policy, rank, ranks = self._policy, self.rank, len(self._group.ranks)
        step_on(rank, policy, self._part, seconds)
        if self._has_part:
            rank.give(GRADIENTS, self._part * policy.itemsize)
            self._has_part = False
        small = sum(
            ceil(one.count / ranks) * ranks for one in self._tensors
            if one.count <= policy.param_persistence_threshold
        )  # fmt: skip
        if small:
            gathered = Collective("all_gather", ranks, small * policy.itemsize, dtype=policy.dtype)
            rank.wait(rank.call(self._group, gathered, "all-gather of small parameters"))

    @property
    def _tensors(self) -> list[Tensor]:
        return [tensor for module in self._modules for tensor in module.parameters]

    @property
    def _part(self) -> int:
        """Elements of the rank's part: of each parameter, padded."""
        return sum(ceil(tensor.count / len(self._group.ranks)) for tensor in self._tensors)

    def _nbytes(self, layer: int) -> int:
        return sum(tensor.count for tensor in self._modules[layer].parameters) * self._policy.itemsize

    def _gathered_nbytes(self, layers: Sequence[int]) -> int:
        ranks, least = len(self._group.ranks), self._policy.param_persistence_threshold
        return self._policy.itemsize * sum(
            ceil(tensor.count / ranks) * ranks
            for layer in layers
            for tensor in self._modules[layer].parameters
            if tensor.count > least
        )

    def _fetch(self, layer: int) -> None:
        """Gather the module's missing parameters, wait for them, and prefetch along the trace."""
        self._step += 1
        self._queued = max(self._queued, self._step)
        if not self._counts[layer]:
            self._prefetch()
            return
        if layer not in self._calls:
            self._gather([layer])
        call = self._calls[layer]
        if call is not None:
            while len(self._fetches) > MOST_FETCHES:
                self.rank.hold(self._fetches.popleft())
            self._streams.wait(call)
            if call not in self._fetches:
                self._fetches.append(call)
        self._prefetch()

    def _prefetch(self) -> None:
        live = sum(self._counts[layer] for layer in self._calls)
        most = min(self._policy.max_live_parameters - live, self._policy.prefetch_bucket_size)
        modules: list[int] = []
        count = 0
        while self._queued < len(self._trace) and count < most:
            layer = self._trace[self._queued]
            self._queued += 1
            if self._counts[layer] and layer not in self._calls and layer not in modules:
                modules.append(layer)
                count += self._counts[layer]
        if modules:
            self._gather(modules)

    def _gather(self, layers: Sequence[int]) -> None:
        nbytes, ranks = self._gathered_nbytes(layers), len(self._group.ranks)
        self.rank.take(GATHERED, nbytes)
        name = ", ".join(self._modules[layer].name for layer in layers[:1])
        more = f" and {len(layers) - 1} more" if len(layers) > 1 else ""
        if ranks == 1:
            place: int | None = None
        else:
            gathered = Collective("all_gather", ranks, nbytes, dtype=self._policy.dtype)
            place = self._streams.call(self._group, gathered, f"all-gather of {name}{more}", GATHER, ())
            if more:
                place = self._streams.copy(2 * nbytes, f"parameters of {name}{more}", GATHER, (place,))
        for layer in layers:
            self._calls[layer] = place

    def _release(self, layer: int) -> None:
        """Free the module's parameters, unless they occur again in the trace within the reuse distance."""
        if layer not in self._calls:
            return
        distance = 0
        for later in self._trace[self._step :]:
            if distance >= self._policy.max_reuse_distance:
                break
            if later == layer:
                return
            distance += sum(tensor.count for tensor in self._modules[later].parameters)
        del self._calls[layer]
        self.rank.give(GATHERED, self._gathered_nbytes([layer]), *self.rank.last())

    def _reduce(self) -> None:
        """Divide the bucket, scatter its sum, copy or add the rank's own slices, on a stream of its own."""
        if not self._bucket:
            return
        policy, ranks, streams = self._policy, len(self._group.ranks), self._streams
        nbytes, self._bucket = ceil(self._bucket / ranks) * ranks * policy.itemsize, 0
        while len(self._reduces) >= MOST_REDUCES:
            self.rank.hold(self._reduces.popleft())
        if not self._has_part:
            self.rank.take(GRADIENTS, self._part * policy.itemsize)
            self._has_part = True
        last = streams.copy(2 * nbytes, "bucket, divided", REDUCE, self.rank.last(streams.lane(REDUCE)))
        if ranks > 1:
            scattered = Collective("reduce_scatter", ranks, nbytes, dtype=policy.dtype)
            last = streams.call(self._group, scattered, "reduce-scatter of gradients", REDUCE, (last,))
        last = streams.copy(3 * nbytes / ranks, "own slices of the bucket", REDUCE, (last,))
        self._reduces.append(last)
