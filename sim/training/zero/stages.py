"""DeepSpeed's ZeRO stages 1 and 2: whole parameters on each rank, summed gradients, sharded optimizers.

As in deepspeed/runtime/zero/stage_1_and_2.py, 0.16.5, with its default configuration: a bucket is flattened,
divided and all-reduced, although ``reduce_scatter`` is set, and each rank copies out the slices that it owns
(``use_multi_rank_bucket_allreduce``); all of it on the compute stream (``overlap_comm`` is off). After the
step one exposed all-gather makes all parameters whole.
"""

from collections.abc import Sequence
from math import ceil

from ringside.sim.collective import ITEMSIZE, Collective
from ringside.sim.training.fsdp_policy import BUFFERS, GRADIENTS, PARAMETERS, UNREDUCED
from ringside.sim.training.layers import RankLayer
from ringside.sim.training.memory.optimizers import Optimizer
from ringside.sim.training.mesh import DATA
from ringside.sim.training.stage import RankList
from ringside.sim.training.zero.partition import MASTER, ZeroPolicy, hold_states, step_on
from ringside.sim.workload.workload import Tensor

ALIGNMENT = 2
"""Alignment of each rank's part in elements (``nccl_start_alignment_factor``)."""


class ReducedWhole:
    """A `Sharing` by ZeRO ``stage`` 1 or 2.

    Stage 1 keeps all gradients and sums them when the step's passes are over, in the order of the layers.
    Stage 2 sums them in every backward as they are made, and keeps the rank's part.
    """

    def __init__(
        self, rank: RankList, layers: Sequence[RankLayer], policy: ZeroPolicy, *, stage: int
    ) -> None:
        if stage not in (1, 2):
            raise ValueError(f"ZeRO stage {stage} does not keep whole parameters; write 1 or 2")
        self.rank = rank
        self._layers = layers
        self._policy = policy
        self._keeps = stage == 1
        self._group = rank.communicators.along(rank.rank, *DATA)
        self._elements = sum(tensor.count for layer in layers for tensor in layer.parameters)
        step = ALIGNMENT * len(self._group.ranks)
        self._part = ceil(self._elements / step) * ALIGNMENT
        self._bucket = 0
        """Number of elements in the bucket."""
        self._made: set[int] = set()
        """Layers whose gradients are held."""
        self._has_buffer = self._has_part = False

    @property
    def updated_nbytes(self) -> int:
        """Bytes of the parameters that this rank's optimizer updates."""
        return self._part * ITEMSIZE[MASTER]

    def hold(self, optimizer: Optimizer) -> None:
        """Hold all parameters, and copies and states of the rank's part."""
        self.rank.take(PARAMETERS, self._elements * self._policy.itemsize)
        hold_states(self.rank, optimizer, self._part)

    def before_forward(self, layer: int) -> None:
        """Do nothing: the parameters are whole."""

    def after_forward(self, layer: int) -> None:
        """Keep the parameters."""

    def before_backward(self, layer: int) -> None:
        """Allocate the bucket and the layer's gradients."""
        if not self._has_buffer:
            self.rank.take(BUFFERS, self._policy.reduce_bucket_size * self._policy.itemsize)
            self._has_buffer = True
        if layer not in self._made:
            self.rank.take(UNREDUCED, self._nbytes(self._layers[layer]))
            self._made.add(layer)

    def after_backward(self, layer: int, *, last: bool) -> None:
        """Put the layer's gradients into the bucket in stage 2; flush it after the last layer."""
        if self._keeps:
            return
        for tensor in reversed(self._layers[layer].parameters):
            self._add(tensor)
        self.rank.give(UNREDUCED, self._nbytes(self._layers[layer]))
        self._made.discard(layer)
        if layer == 0:
            self._reduce()

    def after_step(self) -> None:
        """Sum all gradients in stage 1; free the buckets."""
        if self._keeps:
            for tensor in (tensor for layer in self._layers for tensor in layer.parameters):
                self._add(tensor)
            self._reduce()
            self.rank.give(UNREDUCED, sum(self._nbytes(self._layers[layer]) for layer in self._made))
            self._made.clear()
        if self._has_buffer:
            self.rank.give(BUFFERS, self._policy.reduce_bucket_size * self._policy.itemsize)
            self._has_buffer = False

    def update(self, seconds: float) -> None:
        """Update the rank's part in float32, cast it, and gather all parts."""
        policy, rank = self._policy, self.rank
        step_on(rank, policy, self._part, seconds)
        if self._has_part:
            rank.give(GRADIENTS, self._part * policy.itemsize)
            self._has_part = False
        ranks = len(self._group.ranks)
        gathered = Collective("all_gather", ranks, self._part * ranks * policy.itemsize, dtype=policy.dtype)
        rank.wait(rank.call(self._group, gathered, "all-gather of parameters"))

    def _add(self, tensor: Tensor) -> None:
        """Copy a gradient into the bucket; sum one that exceeds the bucket's size by itself."""
        policy = self._policy
        if self._bucket and self._bucket + tensor.count > policy.reduce_bucket_size:
            self._reduce()
        if tensor.count <= policy.reduce_bucket_size:
            copied = policy.seconds(2 * tensor.count * policy.itemsize)
            self.rank.compute(copied, f"{tensor.name} into bucket", "copy")
        self._bucket += tensor.count
        if self._bucket >= policy.reduce_bucket_size:
            self._reduce()

    def _reduce(self) -> None:
        """Flatten and divide, sum, copy the rank's own slices out."""
        if not self._bucket:
            return
        policy, rank, ranks = self._policy, self.rank, len(self._group.ranks)
        nbytes, self._bucket = self._bucket * policy.itemsize, 0
        rank.take(BUFFERS, nbytes)
        rank.compute(policy.seconds(4 * nbytes), "flat bucket, divided", "copy")
        summed = Collective("all_reduce", ranks, nbytes, dtype=policy.dtype)
        rank.wait(rank.call(self._group, summed, "all-reduce of gradients"))
        if not self._has_part:
            rank.take(GRADIENTS, self._part * policy.itemsize)
            self._has_part = True
        rank.compute(policy.seconds(2 * nbytes / ranks), "own slices of the bucket", "copy")
        rank.give(BUFFERS, nbytes)

    def _nbytes(self, layer: RankLayer) -> int:
        return sum(tensor.count for tensor in layer.parameters) * self._policy.itemsize
