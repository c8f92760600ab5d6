"""One play of a program without time: which ranks meet, until none can continue.

A receive from any source may take any message that waits for it, and a message that has set out may arrive
late. Where more than one continuation exists, the play stops and has `ways`: an earlier receive from any
source takes the first message of one of its senders, or a receive that names its sender, which nothing
overtakes once it is posted (Gloo's Pair::handleRemotePendingSend, gloo/transport/tcp/pair.cc), is posted now.
"""

from bisect import bisect_left
from collections import Counter, defaultdict, deque
from hashlib import blake2b
from typing import NamedTuple

from ringside.sim.program.agreement import EAGER, agreement, needs
from ringside.sim.program.operations import (
    ANY,
    Call,
    Compute,
    Drop,
    Group,
    Join,
    Program,
    Raise,
    Recv,
    Send,
    Together,
    Wait,
)
from ringside.sim.program.play import INSTANT, Play, RankState
from ringside.sim.program.story import Stop

Channel = tuple[Group, int, int]
"""Messages of a group to one rank with one tag."""


class Anybody:
    """The receives from any source in one program, and the messages that can match them.

    Let a rank post one receive from any source per message still to come, with no operation between them that
    waits for other ranks. Then each message has a receive, and the set of received messages determines those
    sent. All orders lead to one state, so one order is enough.
    """

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
        """Return whether the receives from ``place`` on match all messages ``left`` on a channel."""
        if channel in self._named or self._largest[channel] > self._room[channel]:
            return False
        places = self._places[channel]
        first = bisect_left(places, place)
        return len(places) - first >= left and self._runs(places[first : first + left], state)

    def _runs(self, places: list[int], state: RankState) -> bool:
        """Return whether no operation between some receives waits for other ranks."""
        receives = set(places)
        return all(self._goes_on(state, place, receives) for place in range(places[0], places[-1] + 1))

    def _goes_on(self, state: RankState, place: int, receives: set[int]) -> bool:
        action, lane, after, holds, *_ = state.operations[place]
        if place in receives:
            return not after and lane is None
        if not holds or isinstance(action, Compute) or state.ended[place]:
            return True
        return isinstance(action, Wait) and all(state.ended[one] or one in receives for one in after)


class PendingMessage(NamedTuple):
    """One side of a message that waits for its other side."""

    rank: int
    place: int
    nbytes: int
    has_left: bool = False
    """Whether a send has ended before it was received."""


class Take(NamedTuple):
    """A receive from any source takes the first message of a sender."""

    channel: Channel
    source: int


class Post(NamedTuple):
    """A receive that names its sender is posted, behind receives from any source that still wait."""

    channel: Channel
    receive: PendingMessage
    source: int


class Untimed:
    """One play; in strict ones no rank leaves early, and every message waits for its other side."""

    def __init__(
        self, program: Program, *, strict: bool, serial: bool = False, anybody: Anybody | None = None
    ) -> None:
        """Set up the play; ``anybody`` are the program's receives from any source, if there are some."""
        self.failed: Stop | None = None
        self.perhaps: Stop | None = None
        """Possible failures; the play continues as if they waited forever."""
        self.meetings: dict[tuple[Group, int], list[tuple[int, int]]] = {}
        """The ranks that have arrived at each call of each group."""
        self.doubt = ""
        """Warnings about a program that ends."""
        self._strict = strict
        self._sends: dict[tuple[Channel, int], deque[PendingMessage]] = {}
        self._receives: dict[tuple[Channel, int], deque[PendingMessage]] = {}
        self._known = anybody
        self._anybody: dict[Channel, deque[PendingMessage]] = {}
        self._taken: Counter[Channel] = Counter()
        self._in_any_order: set[Channel] = set()
        self._posts: list[Post] = []
        self._parts: dict[tuple[int, int], int] = {}
        self.play = Play(program, self._arrived, serial=serial, instant=INSTANT, stepwise=anybody is not None)
        self._dropped = [
            {
                place
                for one in state.operations[-1:]
                if isinstance(one.action, Drop)
                for place in one.action.messages
            }
            for state in self.play.ranks
        ]
        self.play.run()

    @property
    def ended(self) -> bool:
        """Whether all operations have ended; in plays that are not strict, whether every host has."""
        if self.failed:
            return False
        states = self.play.ranks
        hosts = all(s.held_by is None and s.posted == len(s.operations) for s in states)
        left_alone = not self._strict and not any(group.rules.on_stream for s in states for group in s.queues)
        return hosts and (left_alone or all(all(s.ended) for s in states))

    def ways(self) -> list[Take | Post]:
        """Return the ways to continue: none if the play is over, one if all lead to the same state."""
        if self.failed:
            return []
        takes: list[Take | Post] = []
        for channel, receives in self._anybody.items():
            sources = [source for source in channel[0].ranks if self._sends.get((channel, source))]
            if receives and sources:
                takes += [Take(channel, source) for source in sources]
                if self._takes_all(channel, receives[0]):
                    return takes[-1:]
        return [*takes, *self._posts]

    def _takes_all(self, channel: Channel, receive: PendingMessage) -> bool:
        """Check that receives from any source take all messages that are left, in any order."""
        if channel not in self._in_any_order:
            assert self._known
            left = self._known.messages[channel] - self._taken[channel]
            if not self._known.takes_all(channel, receive.place, left, self.play.ranks[receive.rank]):
                return False
            self._in_any_order.add(channel)
        return True

    def go(self, way: Take | Post) -> None:
        """Continue in one of the `ways`."""
        if isinstance(way, Take):
            self._taken[way.channel] += 1
            send = self._sends[way.channel, way.source].popleft()
            self._deliver(send, self._anybody[way.channel].popleft())
        else:
            self._posts.remove(way)
            self._receive(way.channel, way.source, way.receive)
            self.play.come(way.receive.rank)
        self.play.run()

    def state(self) -> bytes:
        """Return a key of the finished and waiting actions; plays with equal keys continue alike."""
        whole = blake2b(digest_size=16)
        for own in self.play.ranks:
            whole.update(own.posted.to_bytes(8, "little") + own.ended)
        queues = (*self._sends.values(), *self._receives.values(), *self._anybody.values())
        waiting = sorted(tuple(queue) for queue in queues if queue)
        whole.update(repr((waiting, sorted(self._parts.items()), self.perhaps)).encode())
        return whole.digest()

    def _arrived(self, rank: int, place: int) -> None:
        state = self.play.ranks[rank]
        action = state.operations[place][0]
        kind = type(action)
        if kind is Call or (kind is Together and action.is_call):  # type: ignore[union-attr]
            self._meet(action.group, state.number[place], rank, place)  # type: ignore[union-attr]
        elif kind is Send or kind is Recv:
            self._message(action, rank, place)  # type: ignore[arg-type]
        elif kind is Together:
            parts = action.parts  # type: ignore[union-attr]
            self._parts[rank, place] = len(parts)
            for part in parts:
                self._message(part, rank, place)
            if not parts:
                self._end_once(rank, place)
        elif kind is Join:
            self._meet(action.group, -1, rank, place)  # type: ignore[union-attr]
        elif kind is Raise:
            self.failed = self.failed or Stop(rank, place, action.message)  # type: ignore[union-attr]

    def _meet(self, group: Group, number: int, rank: int, place: int) -> None:
        here = self.meetings.setdefault((group, number), [])
        here.append((rank, place))
        whole = len(here) == len(group.ranks)
        if self._strict and not whole:
            return
        meets = self._agree(here)
        if meets and whole:
            if self._strict:
                del self.meetings[group, number]
            for one in here:
                self._end_once(*one)
        elif not self._strict:
            there = {member for member, _ in here}
            for member, its in here:
                needed = needs(self.play.ranks[member].operations[its].action, member)
                if needed <= (there if meets else {member}):
                    self._end_once(member, its)

    def _agree(self, here: list[tuple[int, int]]) -> bool:
        """Return whether the ranks at a call take part in one collective, and survive."""
        ranks = self.play.ranks
        first = ranks[here[0][0]].operations[here[0][1]][0]
        if all(ranks[rank].operations[place][0] is first for rank, place in here):
            return True
        outcome = agreement({rank: ranks[rank].operations[place][0] for rank, place in here})
        if outcome.killed is not None:
            stop = Stop(outcome.killed, dict(here)[outcome.killed], outcome.doubt)
            if outcome.certain:
                self.failed = self.failed or stop
            else:
                self.perhaps = self.perhaps or stop
            return False
        self.doubt = self.doubt or outcome.doubt
        return outcome.meets

    def _end_once(self, rank: int, place: int) -> None:
        if not self.play.ranks[rank].ended[place]:
            self.play.end(rank, place)

    def _message(self, message: Send | Recv, rank: int, place: int) -> None:
        group, peer, nbytes, tag = message
        own = PendingMessage(rank, place, nbytes)
        if type(message) is Send:
            if not self._strict and group.rules.on_stream and nbytes <= EAGER:
                self._end_part(rank, place)
                own = own._replace(has_left=True)
            key = (group, peer, tag), rank
            there = self._receives.get(key)
            if there:
                self._deliver(own, there.popleft())
            else:
                self._sends.setdefault(key, deque()).append(own)
            return
        channel = group, rank, tag
        if peer == ANY:
            self._anybody.setdefault(channel, deque()).append(own)
        elif self._anybody.get(channel):
            self._posts.append(Post(channel, own, peer))
            self.play.stop(rank)
        else:
            self._receive(channel, peer, own)

    def _receive(self, channel: Channel, source: int, receive: PendingMessage) -> None:
        there = self._sends.get((channel, source))
        if there:
            self._deliver(there.popleft(), receive)
        else:
            self._receives.setdefault((channel, source), deque()).append(receive)

    def _deliver(self, send: PendingMessage, receive: PendingMessage) -> None:
        sent = self.play.ranks[send.rank].operations[send.place]
        on_stream = sent.action.group.rules.on_stream  # type: ignore[union-attr]
        if send.nbytes > receive.nbytes and not on_stream:
            text = (
                f"a message of {send.nbytes} bytes from rank {send.rank} ({sent.where}) exceeds "
                f"its receive buffer of {receive.nbytes} bytes, which kills the process"
            )
            stop = Stop(receive.rank, receive.place, text)
            if self._is_dropped(send) or self._is_dropped(receive):
                self.perhaps = self.perhaps or stop
            else:
                self.failed = self.failed or stop
                return
        elif send.nbytes != receive.nbytes and on_stream:
            return
        if not send.has_left:
            self._end_part(send.rank, send.place)
        self._end_part(receive.rank, receive.place)

    def _is_dropped(self, message: PendingMessage) -> bool:
        return message.place in self._dropped[message.rank]

    def _end_part(self, rank: int, place: int) -> None:
        left = self._parts.get((rank, place), 1) - 1
        if left:
            self._parts[rank, place] = left
        else:
            self._end_once(rank, place)
