"""A recorded rank whose shards of parameters are smaller, on more ranks, or larger."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from ringside.sim.recorded.job import Action, Entry, GroupCall, Operator, RecordedRank, Shaped
from ringside.sim.recorded.kernels import is_of_lists

SHARDED_POOLS = ("parameters", "gradients", "optimizer")
"""Pools of shards where parameters are sharded."""

ALLOCATED = 512
"""Bytes to which PyTorch rounds an allocation."""


def sharded(one: RecordedRank, sharing: Sequence[GroupCall], ratio: float) -> RecordedRank:
    """Return a rank whose shards are ``ratio`` times as large; ``sharing`` are calls that gather and scatter.

    The buffers of gradients that are scattered are wholes, as large as before.
    """
    buffers = _Buffers(call for call in sharing if call.collective == "reduce_scatter")

    def resized(pool: str, nbytes: int) -> int:
        if pool not in SHARDED_POOLS:
            return nbytes
        whole = buffers.of(nbytes) if pool == "gradients" else 0
        return whole + round((nbytes - whole) * ratio)

    def entry(own: Entry) -> Entry:
        return replace(own, memory=tuple((pool, resized(pool, nbytes)) for pool, nbytes in own.memory))

    return replace(
        one, held={pool: round(nbytes * ratio) if pool in SHARDED_POOLS else nbytes
                   for pool, nbytes in one.held.items()},
        actions=tuple(_of_shards(action, ratio) for action in one.actions),
        entries=tuple(map(entry, one.entries)),
    )  # fmt: skip


class _Buffers:
    """Buffers of whole gradients among changes of memory, by their bytes."""

    def __init__(self, scatters: Iterable[GroupCall]) -> None:
        sizes = {-(-call.nbytes // ALLOCATED) * ALLOCATED for call in scatters}
        self._there = Counter(dict.fromkeys(sorted(sizes, reverse=True), 0))

    def of(self, change: int) -> int:
        """Return the bytes of a change that are such buffers."""
        whole = 0
        for nbytes in self._there:
            if change >= nbytes:
                self._there[nbytes] += 1
                return nbytes
            while self._there[nbytes] and change - whole <= -nbytes:
                self._there[nbytes] -= 1
                whole -= nbytes
        return whole


def _of_shards(action: Action, ratio: float) -> Action:
    """Return an operator on lists of shards with smaller ones; other actions use whole tensors."""
    if not (isinstance(action, Operator) and is_of_lists(action)):
        return action

    def smaller(tensor: Shaped) -> Shaped:
        rows = tuple(max(1, round(extent * ratio)) for extent in tensor.shape[:1])
        return replace(tensor, shape=(*rows, *tensor.shape[1:]))

    inputs, outputs = (tuple(map(smaller, tensors)) for tensors in (action.inputs, action.outputs))
    return replace(action, inputs=inputs, outputs=outputs)
