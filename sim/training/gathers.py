"""FSDP2's gathers of parameters, and how it frees these.

From torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py, PyTorch 2.13: a shard is copied into its place
in a flat buffer on one stream, gathered in place on another, and copied out into tensors on the compute
stream. In forward the buffer stays until the next unit's is filled, so there are at most two.
"""

from dataclasses import dataclass, field
from enum import Enum, auto
from typing import NamedTuple

from ringside.sim.collective import Collective
from ringside.sim.program import Group
from ringside.sim.training.fsdp_policy import FLAT, GATHERED, FullyShardPolicy, Unit
from ringside.sim.training.rank import STREAM, Streams

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
        group = self._group(held)
        unit, policy = held.unit, self._policy
        nbytes = unit.padded_nbytes(len(self._shard.ranks), policy.param_dtype)
        if len(group.ranks) == 1:
            held.pending = Pending(None, nbytes, not aside)
            return
        self._streams.rank.take(FLAT, nbytes)
        copied = 2 * nbytes / len(group.ranks)
        if held.where is Where.SHARDED:
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
        rank = self._streams.rank
        if call is not None:
            self._streams.wait(call)
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
            self._streams.rank.give(FLAT, held.pending.nbytes, waited)
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
