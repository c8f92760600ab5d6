"""Receives from whoever sends: which of them take all that comes, in whatever order that is.

Let a rank post receives from anybody one after another, with nothing between them that waits for others, as
many as there are messages left to come. Then each message finds one, and what has been sent follows from the
set of messages that were taken. So all orders lead to one state, and one of them tells.
"""

from bisect import bisect_left
from collections import defaultdict

from ringside.sim.program.operations import ANY, Compute, Group, Program, Recv, Send, Together, Wait
from ringside.sim.program.play import RankState

Channel = tuple[Group, int, int]
"""Messages of a group to one rank with one tag."""


class Anybody:
    """The receives from anybody of one program, and the messages that can come to them."""

    def __init__(self, program: Program) -> None:
        self._places: dict[Channel, list[int]] = defaultdict(list)
        """Of each channel the places of its receives in its rank's list."""
        self._room: dict[Channel, int] = {}
        self._named: set[Channel] = set()
        self._largest: dict[Channel, int] = defaultdict(int)
        self.messages: dict[Channel, int] = defaultdict(int)
        """How many messages of each channel there are."""
        for rank in range(program.ranks):
            for place, operation in enumerate(program.operations(rank)):
                action = operation.action
                for part in action.parts if isinstance(action, Together) else (action,):
                    self._add(rank, place, part)

    def _add(self, rank: int, place: int, action: object) -> None:
        if isinstance(action, Send):
            channel = action.group, action.peer, action.tag
            self.messages[channel] += 1
            self._largest[channel] = max(self._largest[channel], action.nbytes)
        elif isinstance(action, Recv):
            channel = action.group, rank, action.tag
            if action.peer == ANY:
                self._places[channel].append(place)
                self._room[channel] = min(self._room.get(channel, action.nbytes), action.nbytes)
            else:
                self._named.add(channel)

    def __bool__(self) -> bool:
        return bool(self._places)

    def takes_all(self, channel: Channel, place: int, left: int, state: RankState) -> bool:
        """Whether the receives from ``place`` on take all messages of a channel that are ``left``."""
        if channel in self._named or self._largest[channel] > self._room[channel]:
            return False
        places = self._places[channel]
        first = bisect_left(places, place)
        return len(places) - first >= left and self._runs(places[first : first + left], state)

    def _runs(self, places: list[int], state: RankState) -> bool:
        """Whether nothing between some receives waits for others."""
        receives = set(places)
        return all(self._goes_on(state, place, receives) for place in range(places[0], places[-1] + 1))

    def _goes_on(self, state: RankState, place: int, receives: set[int]) -> bool:
        action, lane, after, holds, *_ = state.operations[place]
        if place in receives:
            return not after and lane is None
        if not holds or isinstance(action, Compute) or state.ended[place]:
            return True
        return isinstance(action, Wait) and all(state.ended[one] or one in receives for one in after)
