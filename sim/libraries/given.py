"""A library with one schedule for one collective, from a user, on the schedule's own number of ranks."""

from collections.abc import Callable, Sequence

from ringside.sim.collective import Collective
from ringside.sim.libraries.library import Candidate
from ringside.sim.libraries.scheduled import Scheduled
from ringside.sim.schedule import Schedule
from ringside.topologies import Topology


class Given(Scheduled):
    """The schedule that ``build`` makes of a collective, named after its file, and its ``caveat``."""

    name = "file"

    def __init__(
        self,
        graph: Topology,
        count: int,
        way: str,
        build: Callable[[Collective], Schedule],
        network: str,
        caveat: Callable[[Collective], str],
    ) -> None:
        super().__init__(graph, count, network=network)
        self._way = Candidate(way)
        self._build = build
        self._caveat_of = caveat

    def candidates(self, collective: Collective) -> Sequence[Candidate]:
        """Return the only candidate."""
        return [self._way]

    def choose(self, collective: Collective) -> Candidate:
        """Return the only candidate."""
        return self._way

    def schedule(self, collective: Collective, candidate: Candidate) -> Schedule:
        """Return the file's schedule."""
        return self._build(collective)

    def _caveat(self, collective: Collective, candidate: Candidate) -> str:
        return self._caveat_of(collective)
