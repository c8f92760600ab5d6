"""The streams of a rank beside the one that computes, as lanes of its list."""

from ringside.sim.collective import Collective
from ringside.sim.program import Call, Compute, Group
from ringside.sim.training.rank import STREAM, RankList


class Streams:
    """Copies and collectives on streams; a rank whose library blocks has but one, and waits for each.

    A copy takes the bytes that it reads and writes, over ``memory_bandwidth`` (bytes/s).
    """

    def __init__(self, rank: RankList, memory_bandwidth: float) -> None:
        self.rank = rank
        self._memory_bandwidth = memory_bandwidth
        self._aside: set[int] = set()
        """Calls that nobody has waited for, whatever the library."""

    def lane(self, name: str) -> str:
        """The lane of the stream of that name."""
        return STREAM if self.rank.blocks else name

    def last(self, name: str = STREAM) -> int | None:
        """What a stream has come to, if anything."""
        found = self.rank.last(self.lane(name))
        return found[0] if found else None

    def copy(self, nbytes: float, name: str, stream: str = STREAM, after: tuple[int, ...] = ()) -> int:
        """Read and write so many bytes in all; return the place."""
        action = Compute(nbytes / self._memory_bandwidth)
        return self.rank.post(action, name, "copy", self.lane(stream), after)

    def call(
        self, group: Group, collective: Collective, name: str, stream: str, after: tuple[int, ...]
    ) -> int:
        """A collective on a stream; return its place."""
        lane = None if self.rank.blocks else stream
        place = self.rank.call(group, collective, name, lane=lane, after=after)
        assert place is not None, "who is alone asks for none"
        return place

    def call_aside(self, group: Group, collective: Collective, name: str) -> int:
        """A collective after what is computed so far, for which nobody waits yet, whatever the library."""
        call = Call(group, collective.kind, collective)
        place = self.rank.post(call, name, collective.kind, None, self.rank.last())
        self._aside.add(place)
        return place

    def wait(self, place: int | None, stream: str = STREAM) -> int | None:
        """Have a stream wait for an operation; return what it has come to then."""
        waited = self.rank.blocks and place not in self._aside
        if not waited and place != self.last(stream):
            self.rank.wait(place, self.lane(stream))
        return self.last(stream)
