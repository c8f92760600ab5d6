"""The streams of a rank beside its compute stream, as lanes of its list."""

from ringside.sim.collective import Collective
from ringside.sim.program import Call, Compute, Group
from ringside.sim.training.rank import STREAM, RankList


class Streams:
    """Copies and collectives on streams; with a blocking library a rank has one stream and always waits.

    A copy takes the bytes that it reads and writes, over ``memory_bandwidth`` (bytes/s).
    """

    def __init__(self, rank: RankList, memory_bandwidth: float) -> None:
        self.rank = rank
        self._memory_bandwidth = memory_bandwidth
        self._aside: set[int] = set()
        """Calls that no operation has waited for, whatever the library."""

    def lane(self, name: str) -> str:
        """Return the lane of the stream of that name."""
        return STREAM if self.rank.blocks else name

    def last(self, name: str = STREAM) -> int | None:
        """Return a stream's latest operation, if any."""
        latest = self.rank.last(self.lane(name))
        return latest[0] if latest else None

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
        """Run a collective after all compute so far, without waiting for it yet, whatever the library."""
        call = Call(group, collective.kind, collective)
        place = self.rank.post(call, name, collective.kind, None, self.rank.last())
        self._aside.add(place)
        return place

    def wait(self, place: int | None, stream: str = STREAM) -> int | None:
        """Have a stream wait for an operation; return the stream's latest place then."""
        waited = self.rank.blocks and place not in self._aside
        if not waited and place != self.last(stream):
            self.rank.wait(place, self.lane(stream))
        return self.last(stream)
