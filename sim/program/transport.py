"""The interface between a simulated program and the transport of its bytes."""

from collections.abc import Callable
from typing import Protocol

from ringside.sim.program.operations import Call, Group


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
