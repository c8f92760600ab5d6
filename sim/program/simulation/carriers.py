"""The one place that decides between a library's own time and transfers on a network.

A collective takes its library's own time where times are measured or believed, as NCCL's, and where one rank
is played for many. Concurrent ones slow each other by the share of time that each needs of a GPU's links, a
machine's NICs or a link. Collectives of libraries with schedules, and their messages, go transfer by transfer
on one network that all jobs share. A collective that can meet no other traffic on its links takes the
library's own time too, if all members arrive at once.
"""

from collections.abc import Collection, Hashable, Sequence
from functools import partial
from itertools import count

from ringside.sim.clock import Clock
from ringside.sim.libraries.scheduled import Scheduled
from ringside.sim.network.find import make_network
from ringside.sim.network.message import Network
from ringside.sim.program.operations import Call, Group, Program, Recv, Send, Together
from ringside.sim.program.simulation.carry import Carrier, Meeting, Parcel, Signal
from ringside.sim.program.simulation.libraries import Libraries
from ringside.sim.program.simulation.stretch import Fluids
from ringside.sim.program.simulation.transfers import Transfers, time_of


class World:
    """What all jobs of one simulation share."""

    def __init__(self, env: Clock, libraries: Libraries) -> None:
        self._env = env
        self._libraries = libraries
        self._network: Network | None = None
        self._fluids = Fluids(env)
        self._jobs = count()

    def carrier(self, hosts: Sequence[int], *, played: Collection[int], alone: bool) -> Carrier:
        """Return the carrier of a job on these ranks of the cluster, of which ``played`` are simulated."""
        if self._libraries.is_priced or len(played) < len(hosts):
            return Priced(self._env, self._fluids, self._libraries, hosts, played)
        graph, whole = self._libraries.graph, self._libraries.whole
        assert isinstance(whole, Scheduled)
        if self._network is None:
            self._network = make_network(self._libraries.network, self._env, graph)

        def library_of(group: Group) -> Scheduled:
            library = self._libraries.of(tuple(hosts[rank] for rank in group.ranks))
            assert isinstance(library, Scheduled)
            return library

        return Transfers(
            self._env, self._network, graph, tuple(hosts), library_of, job=next(self._jobs),
            alone=alone, announced=whole.announces,
        )  # fmt: skip


class Priced:
    """Collectives and messages that take their library's time, longer where they share resources."""

    def __init__(
        self,
        env: Clock,
        fluids: Fluids,
        libraries: Libraries,
        hosts: Sequence[int],
        played: Collection[int],
    ) -> None:
        self._env = env
        self._fluids = fluids
        self._libraries = libraries
        self._hosts = hosts
        self._played = frozenset(hosts[rank] for rank in played)
        self._calls: dict[Call, tuple[float, dict[Hashable, float]]] = {}
        self._messages: dict[tuple[int, int, int], tuple[float, dict[Hashable, float]]] = {}

    def arrive(self, meeting: Meeting, rank: int) -> None:
        """Begin with the last member, and end on all at once."""
        if not meeting.missing:
            self._fluids.start(*self._price(meeting.call), partial(_end, meeting))

    def announce(self, group: Group, dst: int, src: int) -> Signal:
        """Do nothing: a library's own time includes it."""
        return Signal()

    def send(self, parcel: Parcel) -> None:
        """Begin with the later side."""
        key = self._hosts[parcel.src], self._hosts[parcel.dst], parcel.nbytes
        if key not in self._messages:
            self._messages[key] = self._libraries.message(*key)
        self._fluids.start(*self._messages[key], parcel.deliver)

    def _price(self, call: Call) -> tuple[float, dict[Hashable, float]]:
        if call not in self._calls:
            hosts = tuple(self._hosts[rank] for rank in call.group.ranks)
            seconds = time_of(self._libraries.of(hosts), call)
            self._calls[call] = seconds, self._libraries.shares(hosts, call.collective, seconds, self._played)
        return self._calls[call]


def _end(meeting: Meeting) -> None:
    for rank in list(meeting.present):
        meeting.leave(meeting, rank)


def are_alone(programs: Sequence[Program]) -> bool:
    """Check that nothing can meet on any link: one group, one call at a time, no messages."""
    groups: set[Group] = set()
    for program in programs:
        for operation in (one for rank in range(program.ranks) for one in program.operations(rank)):
            action = operation.action
            if isinstance(action, Send | Recv | Together):
                return False
            if isinstance(action, Call):
                groups.add(action.group)
                if len(groups) > 1 or not (operation.holds or action.group.workers == 1):
                    return False
    return True
