"""Megatron-LM's data parallelism: whole parameters on each rank, an optimizer for all of them or for a part.

Its DistributedDataParallel all-reduces gradients once a step, and each rank updates everything. With the
distributed optimizer gradients are reduce-scattered once a step, and the parameters that each rank's part of
the optimizer has updated are gathered for the next step (megatron/core/distributed; Apex's
DistributedFusedAdam does the same): before and after the optimizer, or overlapped with the last backward and
the next step's first forward. In the latter case each step begins with the gathers of the step before. Of
several stages on a rank the first two are gathered at once, each other one when the one before it begins to
be used (megatron/core/pipeline_parallel/schedules.py, ``param_sync_func``).
"""

from collections.abc import Sequence
from math import ceil, inf, lcm
from typing import NamedTuple

from ringside.sim.collective import ITEMSIZE, Collective
from ringside.sim.program import Group
from ringside.sim.training.fsdp_policy import BUFFERS, GRADIENTS, PARAMETERS
from ringside.sim.training.job import ParallelJob
from ringside.sim.training.layers import RankLayer
from ringside.sim.training.memory.optimizers import Optimizer
from ringside.sim.training.mesh import DATA
from ringside.sim.training.stage import RankList
from ringside.sim.training.zero.partition import MASTER, hold_states

ALIGNMENT = 128
"""Divisor of a bucket's elements, as is its number of ranks (`param_and_grad_buffer.py`)."""


SCALED = "float16"
"""The type of products whose loss is scaled: gradients are scaled back, and tested for overflows."""

TOKENS = ("embedding.weight", "head.weight")
"""Matrices that embed tokens and make logits, which Muon leaves to Adam
(``is_embedding_or_output_parameter``)."""


def bucket_size(ranks: int) -> int:
    """Return Megatron's default number of parameters at which a bucket closes, for a number of ranks."""
    return max(40_000_000, 1_000_000 * ranks)


def types_of(job: ParallelJob) -> tuple[str, str, str]:
    """Return the types in which a job stores parameters, and computes with them, and that of gradients."""
    stored = next(tensor.dtype for layer in job.model.layers for tensor in layer.parameters)
    computed = job.precision or stored
    return stored, computed, job.layout.reduce_dtype or (SCALED if computed == SCALED else MASTER)


class Moved(NamedTuple):
    """Bytes that a step moves around its optimizer: an own part of parameters, and buffers of all gradients.

    Gradients of the part are cast to float32 and scaled back (`SCALED`), updated parameters are cast to their
    type, and all gradients are set to zero for the next step (megatron/core/optimizer/optimizer.py,
    ``prepare_grads``, ``_copy_main_params_to_model_params``; ``zero_grad_buffer``).
    """

    cast: int
    scaled: int
    updated: int
    zeroed: int

    @classmethod
    def by(cls, elements: int, part: int, gradients: str, parameters: str) -> "Moved":
        """Return the bytes for types of gradients and parameters."""
        master = ITEMSIZE[MASTER]
        return cls(
            cast=part * (master + ITEMSIZE[gradients]) if gradients != MASTER else 0,
            scaled=2 * part * master if parameters == SCALED else 0,
            updated=part * (master + ITEMSIZE[parameters]) if parameters != MASTER else 0,
            zeroed=elements * ITEMSIZE[gradients],
        )


class DistributedOptimizer:
    """A `ringside.sim.training.sharing.Sharing` of a stage's layers.

    They are one bucket, or several of at least ``bucket_size`` parameters each, filled from the last layer
    on: Megatron has several on the pipeline's first stage alone, and only where gradients are exchanged
    early. With ``gathers_early`` a bucket's parameters are gathered when those before it begin to
    be used, and waited for when they are used; otherwise all are gathered after the optimizer. Gradients,
    exchanged in type ``gradients``, are reduced as soon as the last micro-batch has made them with
    ``reduces_early``, otherwise after all passes. Parameters are of type ``parameters``, or their own. Ranks
    ``along`` these dimensions have the same ones: all data-parallel ranks, or those with the same experts.
    Early gathers begin with the step, or once the stage ``behind`` which this one stands is used. They share
    one optimizer if it ``shards``; other instances of it are ``across`` other dimensions, along which parts
    of the gradients are summed.
    """

    def __init__(
        self,
        rank: RankList,
        layers: Sequence[RankLayer],
        *,
        along: tuple[str, ...] = DATA,
        across: tuple[str, ...] = (),
        shards: bool = True,
        gradients: str = "float32",
        parameters: str | None = None,
        reduces_early: bool = True,
        gathers_early: bool = True,
        bucket_size: int | None = None,
        memory_bandwidth: float = inf,
        behind: "DistributedOptimizer | None" = None,
    ) -> None:
        self._rank = rank
        self._group = rank.communicators.along(rank.rank, *along)
        self._across = rank.communicators.along(rank.rank, *across) if across else None
        self._holders = len(self._group.ranks) if shards else 1
        self._reduces_early = reduces_early
        self._gathers_early = gathers_early
        self._memory_bandwidth = memory_bandwidth
        self._dtype = gradients
        self._elements = sum(tensor.count for layer in layers for tensor in layer.parameters)
        self._matrices = sum(
            tensor.count
            for layer in layers
            for tensor in layer.parameters
            if tensor.rows and tensor.name not in TOKENS
        )
        self._type = parameters or next((one.dtype for layer in layers for one in layer.parameters), MASTER)
        self._parameters_nbytes = self._elements * ITEMSIZE[self._type]
        self._buckets = _buckets(layers, bucket_size)
        """Layers and number of parameters of each bucket, in filling order."""
        self._reduced: list[int | None] = []
        self._copies = self._type != MASTER
        """Whether the optimizer has float32 copies: parameters are of another type."""
        self._gathers = [
            Collective("all_gather", self._holders, self._padded(count) * ITEMSIZE[self._type])
            for _, count in self._buckets
        ]
        self._gathered: dict[int, int | None] = {}
        self._next: DistributedOptimizer | None = None
        self._begins = behind is None
        if behind is not None:
            behind._next = self
        else:
            self._gather_first()

    @property
    def updated_nbytes(self) -> int:
        """Bytes of the parameters that this rank's optimizer updates."""
        return self._part * ITEMSIZE[MASTER]

    def hold(self, optimizer: Optimizer) -> None:
        """Hold all parameters and the buffer of all gradients, copies and states of the rank's part."""
        self._rank.take(PARAMETERS, self._parameters_nbytes)
        self._rank.take(GRADIENTS, self._elements * ITEMSIZE[self._dtype])
        hold_states(
            self._rank, optimizer, self._part, matrices=self._matrices // self._holders, copies=self._copies
        )

    def before_forward(self, layer: int) -> None:
        """Wait for the layer's parameters, and begin to gather those of the next bucket, or stage."""
        if self._next is not None:
            self._next._gather_first()
            self._next = None
        for number in reversed(range(len(self._buckets))):
            layers, _ = self._buckets[number]
            if layer not in layers or number not in self._gathered:
                continue
            self._rank.wait(self._gathered.pop(number))
            if number:
                self._gather(number - 1)

    def after_forward(self, layer: int) -> None:
        """Keep the parameters."""

    def before_backward(self, layer: int) -> None:
        """Do nothing: the parameters are whole."""

    def after_backward(self, layer: int, *, last: bool) -> None:
        """Reduce the buckets that this layer completes: its gradients are their last."""
        while last and self._reduces_early and len(self._reduced) < len(self._buckets):
            if min(self._buckets[len(self._reduced)][0]) < layer:
                break
            self._reduce()

    def after_step(self) -> None:
        """Wait for the rank's part of all gradients."""
        while len(self._reduced) < len(self._buckets):
            self._reduce()
        for place in self._reduced:
            self._rank.wait(place)

    def update(self, seconds: float) -> None:
        """Update the rank's part, cast it into the parameters, and gather these now or in the next step."""
        moved = Moved.by(self._elements, self._part, self._dtype, self._type)
        if moved.cast:
            self._rank.take(BUFFERS, self.updated_nbytes)
            self._move(moved.cast, "gradients of the own part")
        self._move(moved.scaled, "gradients scaled back")
        self._rank.compute(seconds, "optimizer", "optimizer")
        if moved.cast:
            self._rank.give(BUFFERS, self.updated_nbytes)
        self._move(moved.updated, "parameters of the own part")
        self._move(moved.zeroed, "gradients set to zero")
        for number in () if self._gathers_early else reversed(range(len(self._buckets))):
            self._gather(number)
            self._rank.wait(self._gathered.pop(number))

    @property
    def _part(self) -> int:
        """Elements of the rank's part."""
        return sum(self._padded(count) for _, count in self._buckets) // self._holders

    def _padded(self, elements: int) -> int:
        step = lcm(self._holders, ALIGNMENT) if self._holders > 1 else 1
        return ceil(elements / step) * step

    def _move(self, nbytes: int, name: str) -> None:
        """Read and write ``nbytes`` in all."""
        self._rank.compute(nbytes / self._memory_bandwidth, name, "copy")

    def _gather_first(self) -> None:
        if self._buckets and self._gathers_early:
            self._gather(len(self._buckets) - 1)

    def _gather(self, number: int) -> None:
        if self._holders == 1:
            self._gathered[number] = None
            return
        # the first gathers the step before's parameters, so no operation of this step precedes it
        begins = self._gathers_early and self._begins and number == len(self._buckets) - 1
        after = () if begins else None
        self._gathered[number] = self._rank.call(
            self._group, self._gathers[number], "all-gather of parameters", after=after
        )

    def _reduce(self) -> None:
        _, count = self._buckets[len(self._reduced)]
        nbytes = self._padded(count) * ITEMSIZE[self._dtype]
        kind = "reduce_scatter" if self._holders > 1 else "all_reduce"
        place = self._sum(self._group, kind, nbytes, None)
        if self._across:
            own = self._sum(self._across, "all_reduce", nbytes // self._holders, place)
            place = place if own is None else own
        self._reduced.append(place)

    def _sum(self, group: Group, kind: str, nbytes: int, after: int | None) -> int | None:
        summed = Collective(kind, len(group.ranks), nbytes, dtype=self._dtype)
        name = f"{kind.replace('_', '-')} of gradients"
        return self._rank.call(group, summed, name, after=None if after is None else (after,))


def _buckets(layers: Sequence[RankLayer], size: int | None) -> list[tuple[set[int], int]]:
    """Return layers and number of parameters of each bucket."""
    buckets: list[tuple[set[int], int]] = []
    own: set[int] = set()
    count = 0
    for number, layer in reversed(list(enumerate(layers))):
        for tensor in reversed(layer.parameters):
            own.add(number)
            count += tensor.count
            if size is not None and count >= size:
                buckets.append((own, count))
                own, count = set(), 0
    return [*buckets, (own, count)] if count else buckets
