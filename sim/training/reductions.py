"""FSDP2's reductions: gradients are summed, and each rank keeps its shard.

From torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py and _fsdp_collectives.py, PyTorch 2.13: the
compute stream waits for the oldest of the reduce-scatters that may be pending, then copies a unit's gradients
into a buffer. They are reduced on a stream of their own, and their shards summed across replicas on another.
"""

from ringside.sim.collective import ITEMSIZE, Collective
from ringside.sim.program import Group
from ringside.sim.training.fsdp_policy import BUFFERS, GRADIENTS, UNREDUCED, FullyShardPolicy, Unit
from ringside.sim.training.gathers import Held
from ringside.sim.training.layers import RankLayer
from ringside.sim.training.rank import Streams

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
        """Allocate a layer's gradients before backward makes them."""
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
