"""Megatron-LM's distributed optimizer: whole parameters on each data-parallel rank, an optimizer for a part.

Gradients are reduced and scattered once a step, and the parameters that each rank's part of the optimizer has
updated are gathered for the next one (megatron/core/distributed; Apex's DistributedFusedAdam does the same):
before and after the optimizer, or where they overlap with the passes beside the last backward and the next
step's first forward. Then the gathering of the step before stands at the beginning of each step.
"""

from collections.abc import Sequence
from math import ceil, inf, lcm

from ringside.sim.collective import ITEMSIZE, Collective
from ringside.sim.training.fsdp.units import GRADIENTS, OPTIMIZER, PARAMETERS
from ringside.sim.training.layers import RankLayer
from ringside.sim.training.memory import Optimizer
from ringside.sim.training.mesh import DATA
from ringside.sim.training.rank import RankList
from ringside.sim.training.zero.master import MASTER, state_nbytes

ALIGNMENT = 128
"""Elements of which a bucket has a multiple, beside one of its ranks (`param_and_grad_buffer.py`)."""


def bucket_size(ranks: int) -> int:
    """Parameters from which on a bucket is closed, if nobody says: Megatron's own for so many ranks."""
    return max(40_000_000, 1_000_000 * ranks)


class DistributedOptimizer:
    """A `ringside.sim.training.sharing.Sharing` of a stage's layers.

    They are one bucket, or have one of ``bucket_size`` parameters or a little more each, filled from the last
    layer on: Megatron has several on the pipeline's first stage alone, and only where gradients are exchanged
    early. Where the rank ``gathers_early`` a bucket's parameters are gathered when those before it begin to
    be used, and waited for when they are; else all are gathered after the optimizer. Gradients, exchanged in
    type ``gradients``, are on their way when the last micro-batch has made them where it ``reduces_early``,
    else after all passes. Parameters are of type ``parameters``, or of their own. Ranks ``along`` these
    dimensions have the same ones: all data-parallel ranks, or those with the same experts.
    """

    def __init__(
        self,
        rank: RankList,
        layers: Sequence[RankLayer],
        *,
        along: tuple[str, ...] = DATA,
        gradients: str = "float32",
        parameters: str | None = None,
        reduces_early: bool = True,
        gathers_early: bool = True,
        bucket_size: int | None = None,
        memory_bandwidth: float = inf,
    ) -> None:
        self._rank = rank
        self._group = rank.communicators.along(rank.rank, *along)
        self._reduces_early = reduces_early
        self._gathers_early = gathers_early
        self._memory_bandwidth = memory_bandwidth
        self._dtype = gradients
        self._elements = sum(tensor.count for layer in layers for tensor in layer.parameters)
        self._parameters_nbytes = sum(
            tensor.count * ITEMSIZE[parameters or tensor.dtype]
            for layer in layers
            for tensor in layer.parameters
        )
        self._buckets = _buckets(layers, bucket_size)
        """The layers of each, and how many parameters it has, in the order in which they are filled."""
        self._reduced: list[int | None] = []
        itemsize = self._parameters_nbytes / max(self._elements, 1)
        self._gathers = [
            Collective("all_gather", len(self._group.ranks), int(self._padded(count) * itemsize))
            for _, count in self._buckets
        ]
        self._gathered: dict[int, int | None] = {}
        if self._buckets and gathers_early:
            self._gather(len(self._buckets) - 1)

    @property
    def updated_nbytes(self) -> int:
        """Bytes of the parameters that this rank's optimizer steps on."""
        return self._part * ITEMSIZE[MASTER]

    def hold(self, optimizer: Optimizer) -> None:
        """Have all parameters and the buffer of all gradients, copies and states of the rank's part."""
        self._rank.take(PARAMETERS, self._parameters_nbytes)
        self._rank.take(GRADIENTS, self._elements * ITEMSIZE[self._dtype])
        self._rank.take(OPTIMIZER, state_nbytes(optimizer, self._part))

    def before_forward(self, layer: int) -> None:
        """Have the layer's parameters, and begin to gather those of the next bucket."""
        for number in reversed(range(len(self._buckets))):
            layers, _ = self._buckets[number]
            if layer not in layers or number not in self._gathered:
                continue
            self._rank.wait(self._gathered.pop(number))
            if number:
                self._gather(number - 1)

    def after_forward(self, layer: int) -> None:
        """Keep them."""

    def before_backward(self, layer: int) -> None:
        """They are there."""

    def after_backward(self, layer: int, *, last: bool) -> None:
        """Send the gradients of buckets off of which this is the first layer, and so the last to have any."""
        while last and self._reduces_early and len(self._reduced) < len(self._buckets):
            if min(self._buckets[len(self._reduced)][0]) < layer:
                break
            self._reduce()

    def after_step(self) -> None:
        """Have a part of all gradients."""
        while len(self._reduced) < len(self._buckets):
            self._reduce()
        for place in self._reduced:
            self._rank.wait(place)

    def update(self, seconds: float) -> None:
        """Step on the rank's part, and cast it into the parameters, which are gathered now or in the next."""
        self._rank.compute(seconds, "optimizer", "optimizer")
        nbytes = self.updated_nbytes + self._parameters_nbytes / len(self._group.ranks)
        self._rank.compute(nbytes / self._memory_bandwidth, "parameters of the own part", "copy")
        for number in () if self._gathers_early else reversed(range(len(self._buckets))):
            self._gather(number)
            self._rank.wait(self._gathered.pop(number))

    @property
    def _part(self) -> int:
        """Elements of the rank's part."""
        return sum(self._padded(count) for _, count in self._buckets) // len(self._group.ranks)

    def _padded(self, elements: int) -> int:
        step = lcm(len(self._group.ranks), ALIGNMENT)
        return ceil(elements / step) * step

    def _gather(self, number: int) -> None:
        # the first is that of the step before, which nothing of this one comes ahead of
        after = () if self._gathers_early and number == len(self._buckets) - 1 else None
        self._gathered[number] = self._rank.call(
            self._group, self._gathers[number], "all-gather of parameters", after=after
        )

    def _reduce(self) -> None:
        _, count = self._buckets[len(self._reduced)]
        nbytes = self._padded(count) * ITEMSIZE[self._dtype]
        scattered = Collective("reduce_scatter", len(self._group.ranks), nbytes, dtype=self._dtype)
        self._reduced.append(self._rank.call(self._group, scattered, "reduce-scatter of gradients"))


def _buckets(layers: Sequence[RankLayer], size: int | None) -> list[tuple[set[int], int]]:
    """Layers and parameters of each bucket."""
    found: list[tuple[set[int], int]] = []
    own: set[int] = set()
    count = 0
    for number, layer in reversed(list(enumerate(layers))):
        for tensor in reversed(layer.parameters):
            own.add(number)
            count += tensor.count
            if size is not None and count >= size:
                found.append((own, count))
                own, count = set(), 0
    return [*found, (own, count)] if count else found
