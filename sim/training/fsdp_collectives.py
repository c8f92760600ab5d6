"""All-gathers of parameters and reduce-scatters of gradients in FSDP2.

From torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py and _fsdp_collectives.py, PyTorch 2.13: a shard
is copied into its place in a flat buffer on one stream, gathered in place on another, and copied out into
tensors on the compute stream. In forward the buffer stays until the next unit's is filled, so there are at
most two.

In backward the compute stream waits for the oldest of the reduce-scatters that may be pending, then copies a
unit's gradients into a buffer. They are reduced on a stream of their own, and their shards summed across
replicas on another.
"""

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple

from ringside.sim.collective import ITEMSIZE, Collective
from ringside.sim.program import Group
from ringside.sim.training.fsdp_policy import (
    BUFFERS,
    FLAT,
    GATHERED,
    GRADIENTS,
    UNREDUCED,
    FullyShardPolicy,
    Unit,
)
from ringside.sim.training.layers import RankLayer
from ringside.sim.training.stage import STREAM, Streams

COPY_IN = "all-gather copy-in"
ALL_GATHER = "all-gather"
GATHER_STREAMS = (COPY_IN, ALL_GATHER)


class Where(Enum):
    """A rank's part of a unit: its shard, a larger one kept after forward, or all of it."""

    SHARDED = auto()
    KEPT = auto()
    WHOLE = auto()


class Pending(NamedTuple):
    """A unit that is being gathered, and the collective; None if the rank holds all of it."""

    call: int | None
    nbytes: int
    beside: bool


@dataclass(slots=True)
class Held:
    """A rank's state of one unit while its list is written; places are those of operations."""

    unit: Unit
    where: Where = Where.SHARDED
    pending: Pending | None = None
    kept: int | None = None
    """The copy of the larger shard."""
    passes: list[int] = field(default_factory=list)
    """Its positions in forward order, one for each pass whose backward has not begun."""
    fresh: int = 0
    """Bytes of gradients of this backward."""
    accumulated: int = 0
    """Bytes of unreduced gradients of earlier backwards."""
    reduced: int | None = None
    """The last operation of its reduction, until the compute stream has waited for it."""
    has_shard: bool = False
    """Whether there is a shard of reduced gradients to add to."""
    over: bool = False
    """Whether this backward has finished with it."""


class Gathers:
    """Writes one rank's gathers and frees of whole parameters."""

    def __init__(self, streams: Streams, policy: FullyShardPolicy, shard: Group) -> None:
        self._streams = streams
        self._policy = policy
        self._shard = shard
        self._previous: tuple[int, int] | None = None
        """In forward: the latest copy-out, and the bytes of the buffer that it read."""
        self._done: int | None = None
        """The compute before the unit in use, whose parameters are free then."""

    def begin(self) -> None:
        """Make gathers wait for earlier compute, such as the optimizer."""
        for stream in GATHER_STREAMS:
            self._streams.wait(self._streams.last(), stream)

    def ask(self, held: Held, *, aside: bool = False) -> None:
        """Begin to gather a unit; ``aside`` on the compute stream, as ``unshard(async_op=True)`` does."""
        if held.pending or held.where is Where.WHOLE:
            return
        for stream in GATHER_STREAMS if held.kept is not None else ():
            self._streams.wait(held.kept, stream)
        held.kept = None
        for stream in GATHER_STREAMS if self._policy.in_place and self._done is not None else ():
            self._streams.wait(self._done, stream)
        group = self._group(held)
        unit, policy = held.unit, self._policy
        nbytes = unit.padded_nbytes(len(self._shard.ranks), policy.param_dtype)
        if len(group.ranks) == 1:
            held.pending = Pending(None, nbytes, not aside)
            return
        self._streams.rank.take(self._flat, nbytes)
        copied = 0.0 if policy.in_place else 2 * nbytes / len(group.ranks)
        if held.where is Where.SHARDED and not policy.in_place:
            copied += self._cast_nbytes(unit)
        name = f"all-gather of {unit.name}"
        copy = self._streams.copy(copied, f"copy-in of {unit.name}", STREAM if aside else COPY_IN)
        collective = Collective(
            "all_gather", len(group.ranks), nbytes, dtype=policy.param_dtype or unit.dtype
        )
        if aside:
            call = self._streams.call_aside(group, collective, name)
        else:
            call = self._streams.call(group, collective, name, ALL_GATHER, (copy,))
        held.pending = Pending(call, nbytes, not aside)

    def wait(self, held: Held, *, forward: bool = False) -> None:
        """Make later compute wait for a whole unit."""
        if held.pending is None:
            return
        call, nbytes, beside = held.pending
        held.pending = None
        if forward:
            self.flush()
        rank, done = self._streams.rank, self._streams.last()
        if call is not None:
            self._streams.wait(call)
        if self._policy.in_place and call is not None:
            held.where = Where.WHOLE
            self._done = done
            return
        rank.take(GATHERED, nbytes)
        copied = 2 * nbytes + (self._cast_nbytes(held.unit) if call is None else 0)
        copy = self._streams.copy(copied, f"copy-out of {held.unit.name}")
        if held.where is Where.KEPT:
            rank.give(GATHERED, nbytes // self._keeps(held), copy)
        held.where = Where.WHOLE
        if forward and beside and call is not None:
            self._previous = copy, nbytes
        elif call is not None:
            self._wait_for(copy)
            rank.give(FLAT, nbytes, copy)

    def flush(self) -> None:
        """Free the buffer that forward's latest copy-out read, after the running gather."""
        if self._previous is not None:
            copy, nbytes = self._previous
            waited = self._wait_for(copy)
            assert waited is not None, "it waits for the copy"
            self._streams.rank.give(FLAT, nbytes, waited)
        self._previous = None

    def drop(self, held: Held) -> None:
        """Wait for a unit that was gathered but not used, and free its buffer."""
        if held.pending is not None and held.pending.call is not None:
            waited = self._streams.wait(held.pending.call)
            assert waited is not None, "it waits for the gather"
            self._streams.rank.give(self._flat, held.pending.nbytes, waited)
        held.pending = None

    def give_back(self, held: Held, *, forward: bool = False) -> None:
        """Free the gathered part of a unit after all compute so far."""
        keeps = self._keeps(held) if forward else len(self._shard.ranks)
        if held.where is Where.SHARDED or not keeps:
            return
        rank, last = self._streams.rank, self._streams.last()
        nbytes = held.unit.padded_nbytes(len(self._shard.ranks), self._policy.param_dtype)
        if held.where is Where.KEPT:
            nbytes //= self._keeps(held)
        held.where = Where.SHARDED
        if keeps < len(self._shard.ranks):
            rank.take(GATHERED, nbytes // keeps)
            name = f"copy of the part of {held.unit.name} that is kept"
            last = held.kept = self._streams.copy(2 * nbytes / keeps, name)
            held.where = Where.KEPT
        assert last is not None, "it was copied out"
        rank.give(GATHERED, nbytes, last)

    @property
    def _flat(self) -> str:
        """The pool of what is gathered, until it is copied out."""
        return GATHERED if self._policy.in_place else FLAT

    def _keeps(self, held: Held) -> int:
        return self._policy.keeps(held.unit, len(self._shard.ranks))

    def _wait_for(self, copy: int) -> int | None:
        """Make later gathers wait for a copy-out; return the place on the first stream that has waited."""
        at, _ = [self._streams.wait(copy, stream) for stream in GATHER_STREAMS]
        return at

    def _group(self, held: Held) -> Group:
        """Return the group of a unit's gather: all its ranks, or the few that keep it."""
        if held.where is not Where.KEPT:
            return self._shard
        rank, few = self._streams.rank, self._keeps(held)
        first = self._shard.ranks.index(rank.rank) // few * few
        return rank.communicators.of(self._shard.ranks[first : first + few], f"shard among {few}")

    def _cast_nbytes(self, unit: Unit) -> float:
        """Return the bytes read and written to cast a shard before it is copied in."""
        if self._policy.param_dtype in (None, unit.dtype):
            return 0.0
        ranks = len(self._shard.ranks)
        return (unit.padded_nbytes(ranks) + unit.padded_nbytes(ranks, self._policy.param_dtype)) / ranks


REDUCE_SCATTER = "reduce-scatter"
ALL_REDUCE = "all-reduce"


class Reductions:
    """Writes one rank's operations on gradients."""

    def __init__(self, streams: Streams, policy: FullyShardPolicy, shard: Group, replicate: Group) -> None:
        self._streams = streams
        self._policy = policy
        self._shard = shard
        self._replicate = replicate
        self._buffers: list[tuple[int, int]] = []
        """Reduce-scatters whose buffers are not free yet, with their bytes."""
        self._last: dict[str, int] = {}
        """The latest reduction on each stream."""

    def make(self, held: Held, layer: RankLayer) -> None:
        """Allocate a layer's gradients as its backward ends, which has made them one by one.

        Those of later micro-batches are added to the first ones.
        """
        if held.accumulated:
            return
        itemsize = ITEMSIZE[self._policy.param_dtype or held.unit.dtype]
        nbytes = sum(tensor.count for tensor in layer.parameters) * itemsize
        self._streams.rank.take(UNREDUCED, nbytes)
        held.fresh += nbytes

    def accumulate(self, held: Held) -> None:
        """Add the unit's gradients to those of earlier micro-batches, in the type of the sum."""
        rank, last = self._streams.rank, self._streams.last()
        kept = held.unit.nbytes(self._dtype(held.unit)) if held.fresh else 0
        if held.accumulated or kept == held.fresh:
            given = held.fresh if held.accumulated else 0
        else:
            rank.take(UNREDUCED, kept)
            name = f"cast of the gradients of {held.unit.name}"
            last, given = self._streams.copy(held.fresh + kept, name), held.fresh
        held.accumulated = held.accumulated or kept
        held.fresh = 0
        if given and last is not None:
            rank.give(UNREDUCED, given, last)

    def reduce(self, held: Held) -> None:
        """Sum the unit's gradients."""
        while len(self._buffers) >= self._policy.max_input_buffers:
            self._free()
        if held.accumulated:
            self.accumulate(held)
        unit, rank = held.unit, self._streams.rank
        made, held.fresh, held.accumulated = held.fresh + held.accumulated, 0, 0
        if not made:
            return
        if held.reduced is not None:
            self._streams.wait(held.reduced)
        nbytes = unit.padded_nbytes(len(self._shard.ranks), self._dtype(unit))
        rank.take(BUFFERS, nbytes)
        copy = self._streams.copy(made + nbytes, f"copy-in of the gradients of {unit.name}")
        rank.give(UNREDUCED, made, copy)
        held.reduced = self._sum(held, nbytes, copy)

    def finish(self) -> None:
        """Make the compute stream wait for all reductions."""
        for place in self._last.values():
            self._streams.wait(place)
        self._last.clear()
        while self._buffers:
            self._free()

    def drop(self, held: Held) -> None:
        """Free the unit's gradients after the optimizer."""
        last = self._streams.last()
        if held.has_shard and last is not None:
            ranks = len(self._shard.ranks)
            self._streams.rank.give(GRADIENTS, held.unit.padded_nbytes(ranks) // ranks, last)
        held.has_shard = False

    def _free(self) -> None:
        """Wait for the oldest reduce-scatter and free its buffer."""
        call, nbytes = self._buffers.pop(0)
        waited = self._streams.wait(call)
        if waited is not None:
            self._streams.rank.give(BUFFERS, nbytes, waited)

    def _sum(self, held: Held, nbytes: int, copy: int) -> int:
        """Sum from the filled buffer to the shard of the gradients; return the last place."""
        unit, rank, streams = held.unit, self._streams.rank, self._streams
        ranks, dtype, name = len(self._shard.ranks), self._dtype(unit), f"the gradients of {unit.name}"
        shard, own = nbytes // ranks, unit.padded_nbytes(ranks) // ranks
        before, after = self._divided(dtype)
        if before:
            copy = streams.copy(2 * nbytes, f"division of {name}", REDUCE_SCATTER, (copy,))
        adds, casts = held.has_shard, dtype != unit.dtype
        rank.take(BUFFERS, shard if adds or casts else 0)
        rank.take(GRADIENTS, 0 if adds else own)
        if ranks > 1:
            scatter = Collective("reduce_scatter", ranks, nbytes, dtype=dtype, redop=_redop(dtype))
            last = streams.call(
                self._scatters(), scatter, f"reduce-scatter of {name}", REDUCE_SCATTER, (copy,)
            )
        else:
            last = streams.copy(2 * nbytes, f"copy of {name}", REDUCE_SCATTER, (copy,))
        self._buffers.append((last, nbytes))
        stream = REDUCE_SCATTER
        if len(self._replicate.ranks) > 1:
            stream = ALL_REDUCE
            replicas = len(self._replicate.ranks)
            reduce = Collective("all_reduce", replicas, shard, dtype=dtype, redop=_redop(dtype))
            last = streams.call(self._replicate, reduce, f"all-reduce of {name}", stream, (last,))
        copied = (2 * shard if after else 0) + (shard + own if casts else 0) + (3 * own if adds else 0)
        if copied:
            last = streams.copy(copied, f"shard of {name}", stream, (last,))
            rank.give(BUFFERS, shard if adds or casts else 0, last)
        held.has_shard = True
        self._last[stream] = last
        return last

    def _scatters(self) -> Group:
        """Return the communicator of reduce-scatters, by default that of all-gathers."""
        if not self._policy.separate_reduce_scatter:
            return self._shard
        return self._streams.rank.communicators.of(self._shard.ranks, "reduce-scatter")

    def _dtype(self, unit: Unit) -> str:
        return self._policy.reduce_dtype or self._policy.param_dtype or unit.dtype

    def _divided(self, dtype: str) -> tuple[bool, bool]:
        """Return whether gradients are divided by a power of two before the sum, and by the rest after it."""
        if _redop(dtype) == "avg":
            return False, False
        ranks = len(self._shard.ranks) * len(self._replicate.ranks)
        before = predivision(ranks)
        return before > 1, ranks > before


def predivision(ranks: int) -> int:
    """Return the power of two near the root of the ranks by which gradients are divided before the sum.

    As in `_get_gradient_divide_factors`, so that sums of float16 neither overflow nor vanish.
    """
    factor = 1
    while ranks % factor == 0 and ranks / factor > factor:
        factor *= 2
    return factor


def _redop(dtype: str) -> str:
    return "avg" if dtype in ("float32", "bfloat16") else "sum"
