"""The simulation of a program: a `Play` with a clock, on SimPy.

The play decides which operations may begin and which ranks meet. The simulation adds the times: compute takes
its seconds, and longer while collectives of its rank are under way, unless it has no lane; the transport
determines collectives and messages. Creating groups and posting take no time.

Ranks may be folded: one of each role is played on behalf of all. Then a collective meets when one of each
role among its members has arrived, and messages go from role to role.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from typing import NamedTuple, Protocol

import simpy

from ringside.sim.clock import Clock
from ringside.sim.effort import uncollected
from ringside.sim.program.operations import (
    ANY,
    Call,
    Compute,
    Group,
    Join,
    Operation,
    Program,
    Recv,
    Send,
    Together,
)
from ringside.sim.program.play import Play
from ringside.sim.program.stretch import Units

_OF_GROUPS = Call | Join | Send | Recv | Together


class Meeting:
    """One collective of a group under way.

    ``present`` are the played ranks that have arrived and not left yet, with the operation's place in their
    lists; ``missing`` counts the others. It begins when the last rank arrives. The transport calls ``leave``
    for every rank that is done.
    """

    __slots__ = ("begin", "call", "end", "leave", "missing", "present")

    def __init__(self, call: Call, members: int, leave: Callable[["Meeting", int], None]) -> None:
        self.call = call
        self.present: dict[int, int] = {}
        self.missing = members
        self.begin = self.end = 0.0
        self.leave = leave


class Signal:
    """An event that happens once, with callbacks."""

    __slots__ = ("_happened", "_to_do")

    def __init__(self) -> None:
        self._happened = False
        self._to_do: list[Callable[[], None]] = []

    def happen(self) -> None:
        """Trigger the event now."""
        self._happened = True
        for do in self._to_do:
            do()

    def then(self, do: Callable[[], None]) -> None:
        """Run an action when the event happens, or now if it has."""
        if self._happened:
            do()
        else:
            self._to_do.append(do)


class Parcel:
    """One message of a group, posted on both sides; the transport calls ``deliver`` when it has arrived.

    ``word`` is the receive's signal to the sender. Messages that one source sends at the same moment go in
    order of ``key``: (connection by first use, place in the source's program).
    """

    __slots__ = ("deliver", "dst", "group", "key", "nbytes", "src", "word")

    def __init__(
        self,
        group: Group,
        ends: tuple[int, int],
        nbytes: int,
        key: int,
        word: Signal,
        deliver: Callable[[], None],
    ) -> None:
        self.group = group
        self.src, self.dst = ends
        self.nbytes = nbytes
        self.key = key
        self.word = word
        self.deliver = deliver


class Transport(Protocol):
    """The transport of a job's bytes in one simulation."""

    def arrive(self, meeting: Meeting, rank: int) -> None:
        """Handle a rank's arrival at a collective."""
        ...

    def announce(self, group: Group, dst: int, src: int) -> Signal:
        """Handle a rank's arrival at a receive from another rank; return the signal to the sender."""
        ...

    def send(self, parcel: Parcel) -> None:
        """Handle a message whose send and receive have both been posted."""
        ...


class SimulationError(ArithmeticError):
    """A program that did not end: a defect of Ringside where the program was proved."""


class Side(NamedTuple):
    """One side of a message that waits for its other side."""

    played: int
    place: int
    peer: int
    nbytes: int
    word: Signal | None


class Simulation:
    """A program under way, in an environment that others may share.

    ``roles`` gives every rank's representative, itself or another; without ``roles`` all are played.
    ``contention`` is the share of a rank's units that collectives use. Hosts of ``late`` ranks begin that
    many seconds after the others; ``serial`` is that of `Play`. Afterwards ``begin`` and ``end`` have the
    moments of every operation of the played ranks, ``meetings`` all collectives.
    """

    def __init__(
        self,
        env: Clock,
        program: Program,
        transport: Transport,
        *,
        roles: Sequence[int] | None = None,
        contention: float = 0.0,
        late: Mapping[int, float] | None = None,
        serial: bool = False,
    ) -> None:
        self.program = program
        self.roles = range(program.ranks) if roles is None else roles
        self.played = sorted(set(self.roles))
        self.meetings: dict[tuple[object, int], Meeting] = {}
        self._index = {rank: index for index, rank in enumerate(self.played)}
        self._env = env
        self._transport = transport
        self._running = False
        self.operations = [program.operations(rank) for rank in self.played]
        """The list of each played rank."""
        played = Program(program.name, len(self.played), self.operations.__getitem__)
        self._play = Play(
            played, self._arrived, serial=serial, late=[self._index[rank] for rank in late or {}]
        )
        for rank, seconds in (late or {}).items():
            env.timeout(seconds).callbacks.append(partial(self._come, self._index[rank]))
        self.begin = [[0.0] * len(own) for own in self.operations]
        self.end = [[0.0] * len(own) for own in self.operations]
        self.start = [[0.0] * len(own) for own in self.operations]
        """When the last participant of a collective, a message or a group's creation had arrived."""
        self.assumes: tuple[str, ...] = ()
        """Limits of the result, in sentences."""
        self.makespan_s = 0.0
        """When the last operation has ended, once all have."""
        self.units = [Units(env, contention) for _ in self.played]
        self._same: dict[tuple[int, Group], object] = {}
        self._counts: dict[Group, int] = {}
        self._joins: dict[object, list[tuple[int, int]]] = {}
        self._sends: dict[tuple[object, int, int], list[Side]] = {}
        self._receives: dict[tuple[object, int, int], list[Side]] = {}
        self._parts: dict[tuple[int, int], int] = {}
        self._connections: dict[int, dict[tuple[object, int], int]] = {}
        """Destinations of each played rank's sends, in order of first use."""

    def numbers(self, index: int) -> dict[int, int]:
        """Return the number in its group of each call of a played rank, by its place."""
        return self._play.ranks[index].number

    def run(self) -> None:
        """Begin, or continue, until no operation can begin."""
        self._running = True
        self._play.run()
        self._running = False

    def check_ended(self) -> None:
        """Raise `SimulationError` unless all has ended."""
        self.makespan_s = max((max(ends) for ends in self.end if ends), default=0.0)
        for rank, operation in self.waiting():
            what = f"rank {rank} never ends {operation.name} ({operation.where})"
            raise SimulationError(f"{self.program.name}: {what}; prove it first")

    def waiting(self) -> Iterator[tuple[int, Operation]]:
        """Yield each played rank that has not ended, with the first of its operations that has not."""
        for rank, state in zip(self.played, self._play.ranks, strict=True):
            if not all(state.ended):
                yield rank, state.operations[state.ended.index(0)]

    def _come(self, index: int, _: simpy.Event) -> None:
        self._play.come(index)
        self.run()

    def _end(self, index: int, place: int, _: simpy.Event | None = None) -> None:
        self.end[index][place] = self._env.now
        self._play.end(index, place)
        if not self._running:
            self.run()

    def _arrived(self, index: int, place: int) -> None:
        self.begin[index][place] = self._env.now
        operation = self._play.ranks[index].operations[place]
        action = operation.action
        if type(action) is Compute:
            if self.units[index].matters and operation.lane is not None:
                self.units[index].work(action.seconds, partial(self._end, index, place))
            else:
                event = self._env.timeout(action.seconds)
                event.callbacks.append(partial(self._end, index, place))
            return
        match action:
            case Call():
                self._meet(index, place, action)
            case Send() | Recv():
                self._parts[index, place] = 1
                self._ask(index, place, action)
            case Together(_, parts):
                self._parts[index, place] = len(parts)
                for part in parts:
                    self._ask(index, place, part)
                if not parts:
                    self._end(index, place)
            case Join(group):
                self._join(index, place, group)
            case _:
                self._end(index, place)

    def _meet(self, index: int, place: int, call: Call) -> None:
        key = self._group(index, call.group), self._play.ranks[index].number[place]
        meeting = self.meetings.get(key)
        if meeting is None:
            meeting = self.meetings[key] = Meeting(call, self._members(call.group), self._leave)
        rank = self.played[index]
        meeting.present[rank] = place
        meeting.missing -= 1
        if not meeting.missing:
            meeting.begin = self._env.now
            for other, its in meeting.present.items():
                self.start[self._index[other]][its] = self._env.now
                self.units[self._index[other]].take(1)
        self._transport.arrive(meeting, rank)

    def _leave(self, meeting: Meeting, rank: int) -> None:
        index, place = self._index[rank], meeting.present.pop(rank)
        if meeting.missing:
            self.start[index][place] = self._env.now
        else:
            self.units[index].take(-1)
        meeting.end = self._env.now
        self._end(index, place)

    def _join(self, index: int, place: int, group: Group) -> None:
        here = self._joins.setdefault(self._group(index, group), [])
        here.append((index, place))
        if len(here) == self._members(group):
            for one in here:
                self.start[one[0]][one[1]] = self._env.now
                self._end(*one)

    def _ask(self, index: int, place: int, message: Send | Recv) -> None:
        """Post one side of a message: match it with the first waiting counterpart, or queue it."""
        group, peer, nbytes, tag = message
        own, same = self.played[index], self._group(index, group)
        sends = isinstance(message, Send)
        peer = peer if peer == ANY else self.roles[peer]
        word = None if sends or peer == ANY else self._transport.announce(group, own, peer)
        side = Side(index, place, peer, nbytes, word)
        target = peer if sends else own
        there = (self._receives if sends else self._sends).get((same, target, tag), [])
        if sends:
            fit = [number for number, other in enumerate(there) if other.peer in (own, ANY)]
            # a receive that names its sender precedes those from any source, as with Gloo
            fit.sort(key=lambda number: there[number].peer == ANY)
        else:
            fit = [number for number, other in enumerate(there) if peer in (self.played[other.played], ANY)]
        if fit:
            other = there.pop(fit[0])
            self._deliver(group, *((side, other) if sends else (other, side)))
        else:
            (self._sends if sends else self._receives).setdefault((same, target, tag), []).append(side)

    def _deliver(self, group: Group, send: Side, receive: Side) -> None:
        def ended() -> None:
            for side in (send, receive):
                self._parts[side.played, side.place] -= 1
                if not self._parts[side.played, side.place]:
                    self._end(side.played, side.place)

        for side in (send, receive):
            self.start[side.played][side.place] = self._env.now
        src, dst = self.played[send.played], self.played[receive.played]
        word = receive.word or self._transport.announce(group, dst, src)
        key = self._connection(send.played, group, dst) << 32 | send.place
        self._transport.send(Parcel(group, (src, dst), send.nbytes, key, word, ended))

    def _connection(self, index: int, group: Group, dst: int) -> int:
        """Return the number of ranks to which a rank sends before its first message to this one."""
        if index not in self._connections:
            actions = (operation.action for operation in self.operations[index])
            parts = (part for one in actions for part in (one.parts if isinstance(one, Together) else (one,)))
            sends = (
                (self._group(index, part.group), self.roles[part.peer])
                for part in parts
                if isinstance(part, Send)
            )
            self._connections[index] = {pair: number for number, pair in enumerate(dict.fromkeys(sends))}
        return self._connections[index][self._group(index, group), dst]

    def _members(self, group: Group) -> int:
        """Return the number of a group's members that are played."""
        if len(self.played) == len(self.roles):
            return len(group.ranks)
        if group not in self._counts:
            self._counts[group] = len({self.roles[rank] for rank in group.ranks})
        return self._counts[group]

    def _group(self, index: int, group: Group) -> object:
        """Return a group's name among the played ones; groups with the same sequence of roles are one."""
        if len(self.played) == len(self.roles):
            return group
        if not self._same:
            self._name_groups()
        return self._same[index, group]

    def _name_groups(self) -> None:
        """Name the groups of each played rank: the sequence of roles, and a number in order of first use.

        A group that two played ranks share has one number.
        """
        numbers: dict[Group, tuple[tuple[int, ...], int]] = {}
        for index, own in enumerate(self.operations):
            actions = [one.action for one in own if isinstance(one.action, _OF_GROUPS)]
            parts = (part for one in actions if isinstance(one, Together) for part in one.parts)
            groups = dict.fromkeys(one.group for one in (*actions, *parts))
            taken = {numbers[group] for group in groups if group in numbers}
            for group in groups:
                if group not in numbers:
                    roles = tuple(self.roles[rank] for rank in group.ranks)
                    numbers[group] = next(one for n in count() if (one := (roles, n)) not in taken)
                    taken.add(numbers[group])
                self._same[index, group] = numbers[group]


def run_all(env: Clock, simulations: Sequence[Simulation]) -> None:
    """Run simulations of one environment to their ends; raise `SimulationError` if one never ends."""
    with uncollected():
        for simulation in simulations:
            simulation.run()
        env.run()
    for simulation in simulations:
        simulation.check_ended()
