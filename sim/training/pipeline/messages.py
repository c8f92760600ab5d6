"""Sends and receives of one pipeline rank, as libraries accept them."""

from collections.abc import Iterable, Sequence

from ringside.sim.program import Group, Recv, Send
from ringside.sim.training.pipeline.actions import Action, Kind
from ringside.sim.training.pipeline.lowering import met
from ringside.sim.training.pipeline.placement import Placement
from ringside.sim.training.rank import RankList

_PAIRS = ("pair", "world pair")

SENDS = frozenset({Kind.SEND_FORWARD, Kind.SEND_BACKWARD})


class Messages:
    """Writes messages into a rank's list: one micro-batch's activations, or their gradient.

    They have ``nbytes``, or entry s of it between stages s and s + 1.

    Waits refer to places in the list. Unbatched messages use a communicator of the two ranks if the library
    makes one, as NCCL does, otherwise the pipeline's.
    """

    def __init__(self, rank: RankList, placement: Placement, nbytes: int | Sequence[int]) -> None:
        sizes = (nbytes,) * (placement.stages - 1) if isinstance(nbytes, int) else tuple(nbytes)
        if min(sizes, default=0) < 0:
            raise ValueError(f"activations of {min(sizes)} bytes; write 0 or more")
        self.rank = rank
        self.placement = placement
        self._sizes = sizes
        self._group = rank.communicators.along(rank.rank, "pipeline")
        self.position = self._group.ranks.index(rank.rank)
        if len(self._group.ranks) != placement.ranks:
            raise ValueError(
                f"stages on {placement.ranks} ranks, but the mesh has {len(self._group.ranks)} along pipeline"
            )

    def one_by_one(self, actions: Iterable[Action], purpose: str = "pair") -> list[int]:
        """Post messages separately, in this order."""
        return [self._post(action, self._pair(action, purpose)) for action in actions]

    def batch(self, actions: Sequence[Action]) -> list[int]:
        """Post messages that are under way at once, in one call of NCCL; Gloo handles each separately."""
        if not self._group.rules.on_stream:
            return self.one_by_one(actions)
        parts = [self._message(action, self._group) for action in actions]
        place = self.rank.exchange(parts, " ".join(map(str, actions)))
        return [] if place is None else [place]

    def mixed_batch(self, actions: Sequence[Action]) -> list[int]:
        """Post a batch as torch's pipelines do: only one that both sends and receives is batched."""
        kinds = {action.kind in SENDS for action in actions}
        return self.batch(actions) if len(kinds) > 1 else self.one_by_one(actions)

    def free(self, action: Action) -> int:
        """Post a message that never queues; a receive is posted at the step's beginning."""
        send = action if action.kind in SENDS else met(action)
        return self._post(action, self._pair(action, f"message {send}"), None if send is action else ())

    def wait(self, places: Iterable[int]) -> None:
        """Make the stream wait for messages."""
        for place in places:
            self.rank.wait(place)

    def _post(self, action: Action, group: Group, after: tuple[int, ...] | None = None) -> int:
        place = self.rank.exchange([self._message(action, group)], str(action), after=after)
        assert place is not None
        return place

    def _message(self, action: Action, group: Group) -> Send | Recv:
        make = Send if action.kind in SENDS else Recv
        before = min(action.stage, met(action).stage)
        return make(group, self._peer(action), self._sizes[before])

    def _peer(self, action: Action) -> int:
        return self._group.ranks[self.placement.rank(met(action).stage)]

    def _pair(self, action: Action, purpose: str) -> Group:
        if not self._group.rules.on_stream and purpose in _PAIRS:
            return self._group
        low, high = sorted((self.rank.rank, self._peer(action)))
        return self.rank.communicators.of((low, high), f"pipeline {purpose}")
