"""Receives from any source: which of them take all messages, in any order of arrival.

Let a rank post one receive from any source per message still to come, with no operation between them that
waits for other ranks. Then each message finds a receive, and what has been sent follows from the set of
messages taken. All orders lead to one state, so one order is enough.
"""

from bisect import bisect_left
from collections import defaultdict

from ringside.sim.program.operations import ANY, Compute, Group, Program, Recv, Send, Together, Wait
from ringside.sim.program.play import RankState

Channel = tuple[Group, int, int]
"""Messages of a group to one rank with one tag."""


class Anybody:
    """The receives from any source in one program, and the messages that can match them."""

    def __init__(self, program: Program) -> None:
        self._places: dict[Channel, list[int]] = defaultdict(list)
        """Places of each channel's receives in its rank's list."""
        self._room: dict[Channel, int] = {}
        self._named: set[Channel] = set()
        self._largest: dict[Channel, int] = defaultdict(int)
        self.messages: dict[Channel, int] = defaultdict(int)
        """Number of messages per channel."""
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
        """Check that the receives from ``place`` on take all messages ``left`` on a channel."""
        if channel in self._named or self._largest[channel] > self._room[channel]:
            return False
        places = self._places[channel]
        first = bisect_left(places, place)
        return len(places) - first >= left and self._runs(places[first : first + left], state)

    def _runs(self, places: list[int], state: RankState) -> bool:
        """Check that no operation between some receives waits for other ranks."""
        receives = set(places)
        return all(self._goes_on(state, place, receives) for place in range(places[0], places[-1] + 1))

    def _goes_on(self, state: RankState, place: int, receives: set[int]) -> bool:
        action, lane, after, holds, *_ = state.operations[place]
        if place in receives:
            return not after and lane is None
        if not holds or isinstance(action, Compute) or state.ended[place]:
            return True
        return isinstance(action, Wait) and all(state.ended[one] or one in receives for one in after)
