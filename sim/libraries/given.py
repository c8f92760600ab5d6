"""A library that knows one way for one collective: somebody's schedule, on as many ranks as it is of."""

from collections.abc import Callable, Sequence

from ringside.sim.collective import Collective
from ringside.sim.libraries.library import Candidate
from ringside.sim.libraries.scheduled import Scheduled
from ringside.sim.schedule import Schedule
from ringside.topologies import Topology


class Given(Scheduled):
    """The schedule that ``build`` makes of a collective, by its file's name, and its ``caveat``, if any."""

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
        """The only one."""
        return [self._way]

    def choose(self, collective: Collective) -> Candidate:
        """The only one."""
        return self._way

    def schedule(self, collective: Collective, candidate: Candidate) -> Schedule:
        """As the file has it."""
        return self._build(collective)

    def _caveat(self, collective: Collective, candidate: Candidate) -> str:
        return self._caveat_of(collective)
