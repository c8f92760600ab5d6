"""Collectives and messages of a rehearsal, by Gloo: as many bytes as the script's, of zeros.

Each group has connections of its own for each lane that calls it: there calls are in the host's order, which
is the same on all ranks. Messages of all groups share those of all ranks, where tags keep groups apart.
"""

from collections.abc import Callable
from datetime import timedelta
from threading import Lock
from typing import Any

import torch
from torch._C._distributed_c10d import PrefixStore, Store

from ringside.real.record.calls import groups
from ringside.sim.recorded.job import GroupCall, PeerMessage

_backends: Any = torch._C._distributed_c10d

_GROUPS = 1000
"""Tags of a script's messages are this far apart, for its groups to fit between."""


class GlooExchange:
    """The exchange of rank ``rank`` among ``ranks``, which meet in ``store``."""

    def __init__(self, store: Store, rank: int, ranks: int, timeout_s: float) -> None:
        self._store = store
        self._rank = rank
        self._timeout = timedelta(seconds=timeout_s)
        self._made: dict[str, Any] = {}
        self._room: dict[tuple[int, int], torch.Tensor] = {}
        self._lock = Lock()
        self.all = self.among(tuple(range(ranks)), "steps")
        self._messages = self.among(tuple(range(ranks)), "messages")

    def start(self, action: GroupCall | PeerMessage, lane: str) -> Any:
        """Start a call or a message; return its work, None for a group of one rank."""
        number, group_of = next(
            (number, one) for number, one in enumerate(groups.recorded()) if one.name == action.group
        )
        if isinstance(action, PeerMessage):
            tag = action.tag * _GROUPS + number
            if action.is_send:
                return self._messages.send([self._zeros(action.nbytes)], action.peer, tag)
            return self._messages.recv([self._zeros(action.nbytes, 1)], action.peer, tag)
        ranks = group_of.of(self._rank)
        assert ranks is not None
        if len(ranks) == 1:
            return None
        root = 0 if action.root is None else ranks.index(action.root)
        group = self.among(ranks, f"{action.group} {lane}")
        return _CALLS[action.collective](self, group, action.nbytes, len(ranks), root)

    def among(self, ranks: tuple[int, ...], name: str) -> Any:
        """Return Gloo's connections of some ranks by this name, this rank among them; all of them ask."""
        name = f"{name} of {ranks}"
        with self._lock:
            if name not in self._made:
                own = PrefixStore(name, self._store)
                place = ranks.index(self._rank)
                self._made[name] = _backends.ProcessGroupGloo(own, place, len(ranks), self._timeout)
            return self._made[name]

    def _zeros(self, nbytes: int, room: int = 0) -> torch.Tensor:
        """Return a tensor of ``nbytes`` bytes, to the next four; ``room`` separates input and output."""
        key = (-(-nbytes // 4), room)
        if key not in self._room:
            self._room[key] = torch.empty(key[0]).zero_()  # filled, so that its pages exist
        return self._room[key]

    def _reduce(self, group: Any, nbytes: int, ranks: int, root: int) -> Any:
        options = _backends.ReduceOptions()
        options.rootRank = root
        return group.reduce([self._zeros(nbytes)], options)

    def _broadcast(self, group: Any, nbytes: int, ranks: int, root: int) -> Any:
        options = _backends.BroadcastOptions()
        options.rootRank = root
        return group.broadcast([self._zeros(nbytes)], options)

    def _all_reduce(self, group: Any, nbytes: int, ranks: int, root: int) -> Any:
        return group.allreduce([self._zeros(nbytes)])

    def _all_gather(self, group: Any, nbytes: int, ranks: int, root: int) -> Any:
        share = self._zeros(nbytes // ranks)
        return group._allgather_base(self._zeros(4 * share.numel() * ranks, 1), share)

    def _reduce_scatter(self, group: Any, nbytes: int, ranks: int, root: int) -> Any:
        share = self._zeros(nbytes // ranks, 1)
        return group._reduce_scatter_base(share, self._zeros(4 * share.numel() * ranks))

    def _all_to_all(self, group: Any, nbytes: int, ranks: int, root: int) -> Any:
        size = 4 * ranks * -(-nbytes // (4 * ranks))
        return group.alltoall_base(self._zeros(size, 1), self._zeros(size), [], [])

    def _gather(self, group: Any, nbytes: int, ranks: int, root: int) -> Any:
        options = _backends.GatherOptions()
        options.rootRank = root
        share = self._zeros(nbytes // ranks)
        every = [[self._zeros(nbytes // ranks, 1 + one) for one in range(ranks)]]
        return group.gather(every if group.rank() == root else [], [share], options)

    def _scatter(self, group: Any, nbytes: int, ranks: int, root: int) -> Any:
        options = _backends.ScatterOptions()
        options.rootRank = root
        share = self._zeros(nbytes // ranks, 1)
        every = [[self._zeros(nbytes // ranks) for _ in range(ranks)]]
        return group.scatter([share], every if group.rank() == root else [], options)


_CALLS: dict[str, Callable[[GlooExchange, Any, int, int, int], Any]] = {
    "all_reduce": GlooExchange._all_reduce,
    "all_gather": GlooExchange._all_gather,
    "reduce_scatter": GlooExchange._reduce_scatter,
    "all_to_all": GlooExchange._all_to_all,
    "broadcast": GlooExchange._broadcast,
    "reduce": GlooExchange._reduce,
    "gather": GlooExchange._gather,
    "scatter": GlooExchange._scatter,
}
