"""A rank's list of operations while strategies write it.

A rank's compute runs on one stream. A collective is beside it in its group's queue: it begins no earlier than
the stream's operations before its call, and the stream waits for it on request. With a blocking library, as
Gloo is by default, the stream waits at once.
"""

from collections.abc import Sequence

from ringside.sim.collective import Collective
from ringside.sim.program import Action, Call, Compute, Group, Operation, Recv, Send, Together, Wait
from ringside.sim.training.mesh import Communicators

STREAM = "compute"
"""The lane of compute."""


class RankList:
    """The operations of rank ``rank`` of the communicators' mesh, as written so far.

    ``latest`` is the place of each lane's latest operation.
    """

    def __init__(self, rank: int, communicators: Communicators, *, blocks: bool = False) -> None:
        self.rank = rank
        self.communicators = communicators
        self.operations: list[Operation] = []
        self.blocks = blocks
        self.latest: dict[str, int] = {}
        self._taken: list[tuple[str, int]] = []

    def last(self, lane: str = STREAM) -> tuple[int, ...]:
        """Return the latest operation of a lane as an ``after``; empty before the first."""
        return (self.latest[lane],) if lane in self.latest else ()

    def compute(
        self, seconds: float, name: str, kind: str, *, lane: str = STREAM, after: tuple[int, ...] = ()
    ) -> None:
        """Compute on a lane; zero seconds of work that take no memory write no operation."""
        if seconds or self._taken:
            self.post(Compute(seconds), name, kind, lane, after)

    def call(
        self,
        group: Group,
        collective: Collective,
        name: str,
        *,
        lane: str | None = None,
        after: tuple[int, ...] | None = None,
        beside: bool = False,
    ) -> int | None:
        """Call a collective, by default after the stream's latest operation; return its place.

        A group of one rank has nothing to exchange. A call ``beside`` other work does not block, even with a
        blocking library: the caller waits for it.
        """
        if len(group.ranks) == 1:
            return None
        call = Call(group, collective.kind, collective)
        place = self.post(call, name, collective.kind, lane, self.last() if after is None else after)
        if self.blocks and not beside:
            self.wait(place)
        return place

    def exchange(
        self, parts: Sequence[Send | Recv], name: str, *, after: tuple[int, ...] | None = None
    ) -> int | None:
        """Send and receive at once, after the stream's latest operation; return the place, if any."""
        if not parts:
            return None
        action = parts[0] if len(parts) == 1 else Together(parts[0].group, tuple(parts))
        return self.post(action, name, "message", None, self.last() if after is None else after)

    def wait(self, place: int | None, lane: str = STREAM) -> None:
        """Make a lane wait for an operation, if there is one."""
        if place is not None:
            self.post(Wait(), f"wait for {self.operations[place].name}", "wait", lane, (place,))

    def hold(self, place: int) -> None:
        """Make the host wait for an operation before it posts later ones."""
        name = f"hold until {self.operations[place].name}"
        self.operations.append(Operation(Wait(), None, (place,), True, name, "wait"))

    def take(self, pool: str, nbytes: int) -> None:
        """Allocate ``nbytes`` bytes of a pool from the beginning of the next operation on."""
        if nbytes:
            self._taken.append((pool, nbytes))

    def give(self, pool: str, nbytes: int, place: int = -1) -> None:
        """Free ``nbytes`` bytes of a pool at the end of an operation, by default the latest.

        Bytes of an operation that is not written yet are freed at its end.
        """
        if not nbytes:
            return
        if not self.operations or any(taken == pool for taken, _ in self._taken):
            self._taken.append((pool, -nbytes))
        else:
            one = self.operations[place]
            self.operations[place] = one._replace(memory=(*one.memory, (pool, -nbytes)))

    def post(self, action: Action, name: str, kind: str, lane: str | None, after: tuple[int, ...]) -> int:
        """Append an operation and return its place."""
        self.operations.append(Operation(action, lane, after, False, name, kind, memory=tuple(self._taken)))
        self._taken.clear()
        place = len(self.operations) - 1
        if lane is not None:
            self.latest[lane] = place
        return place


class Streams:
    """Copies and collectives on streams; with a blocking library a rank has one stream and always waits.

    A copy takes the bytes that it reads and writes, over ``memory_bandwidth`` (bytes/s).
    """

    def __init__(self, rank: RankList, memory_bandwidth: float) -> None:
        self.rank = rank
        self._memory_bandwidth = memory_bandwidth
        self._aside: set[int] = set()
        """Calls that no operation has waited for, with any library."""

    def lane(self, name: str) -> str:
        """Return the lane of the stream of that name."""
        return STREAM if self.rank.blocks else name

    def last(self, name: str = STREAM) -> int | None:
        """Return a stream's latest operation, if any."""
        return self.rank.latest.get(self.lane(name))

    def copy(self, nbytes: float, name: str, stream: str = STREAM, after: tuple[int, ...] = ()) -> int:
        """Read and write ``nbytes`` in all; return the place."""
        action = Compute(nbytes / self._memory_bandwidth)
        return self.rank.post(action, name, "copy", self.lane(stream), after)

    def call(
        self, group: Group, collective: Collective, name: str, stream: str, after: tuple[int, ...]
    ) -> int:
        """Run a collective on a stream; return its place."""
        lane = None if self.rank.blocks else stream
        place = self.rank.call(group, collective, name, lane=lane, after=after)
        assert place is not None, "a rank alone in its group has no collective"
        return place

    def call_aside(self, group: Group, collective: Collective, name: str) -> int:
        """Run a collective after all compute so far, without waiting for it yet, with any library."""
        call = Call(group, collective.kind, collective)
        place = self.rank.post(call, name, collective.kind, None, self.rank.last())
        self._aside.add(place)
        return place

    def wait(self, place: int | None, stream: str = STREAM) -> int | None:
        """Make a stream wait for an operation; return the stream's latest place."""
        waited = self.rank.blocks and place not in self._aside
        if not waited and place != self.last(stream):
            self.rank.wait(place, self.lane(stream))
        return self.last(stream)
