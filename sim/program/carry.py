"""What a simulation of a program hands to whoever carries bytes, and what it is told."""

from collections.abc import Callable, Generator
from typing import Any, Protocol

import simpy

from ringside.sim.clock import Clock
from ringside.sim.collective import Collective
from ringside.sim.program.operations import Call, Group

Carry = Callable[[Collective], Generator[simpy.Event, Any, None]]
"""A SimPy process that lasts as long as one collective."""


class Meeting:
    """One collective of a group on its way.

    ``present`` are the played ranks that have come and not left yet, with the operation's place in their
    lists; ``missing`` counts who has not come. It begins when the last has. Whoever carries it calls
    ``leave`` for every rank for which it is over.
    """

    __slots__ = ("begin", "call", "end", "leave", "missing", "present")

    def __init__(self, call: Call, members: int, leave: Callable[["Meeting", int], None]) -> None:
        self.call = call
        self.present: dict[int, int] = {}
        self.missing = members
        self.begin = self.end = 0.0
        self.leave = leave


class Signal:
    """Something that happens once, and what is to be done then."""

    __slots__ = ("_happened", "_to_do")

    def __init__(self) -> None:
        self._happened = False
        self._to_do: list[Callable[[], None]] = []

    def happen(self) -> None:
        """It happens now."""
        self._happened = True
        for do in self._to_do:
            do()

    def then(self, do: Callable[[], None]) -> None:
        """Do something when it happens, or now if it has."""
        if self._happened:
            do()
        else:
            self._to_do.append(do)


class Parcel:
    """One message of a group, which both sides have asked for; ``deliver`` is told when it is there.

    ``word`` is that of the receive, which the sender hears. Of what its source sends at one moment the
    smaller ``key`` is first: (connection by first use, place in the source's program).
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


class Carrier(Protocol):
    """Who carries the bytes of a job, in one simulation."""

    def arrive(self, meeting: Meeting, rank: int) -> None:
        """A rank has come to a collective just now."""
        ...

    def announce(self, group: Group, dst: int, src: int) -> Signal:
        """A rank has come to a receive from another just now; what happens when that one hears of it."""
        ...

    def send(self, parcel: Parcel) -> None:
        """Both sides of a message have come, the later one just now."""
        ...


class AtOnce:
    """Collectives that begin when their last member has come and end on all at once; no messages."""

    def __init__(self, env: Clock, carry: Carry) -> None:
        self._env = env
        self._carry = carry

    def arrive(self, meeting: Meeting, rank: int) -> None:
        """Begin with the last."""
        if not meeting.missing:
            self._env.process(self._run(meeting))

    def announce(self, group: Group, dst: int, src: int) -> Signal:
        """There are none."""
        raise NotImplementedError

    def send(self, parcel: Parcel) -> None:
        """There are none."""
        raise NotImplementedError

    def _run(self, meeting: Meeting) -> Generator[simpy.Event, Any, None]:
        yield from self._carry(meeting.call.collective)
        for rank in list(meeting.present):
            meeting.leave(meeting, rank)
