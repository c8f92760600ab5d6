"""Jobs on a cluster, simulated together.

A collective takes its library's own time if times are measured or estimated, as NCCL's, or if one rank
represents many. Concurrent ones slow each other by the share of time that each needs of a GPU's links, a
machine's NICs or a link. Collectives of libraries with schedules, and their messages, go transfer by transfer
on one network that all jobs share. A collective that can meet no other traffic on its links takes the
library's own time too, if all members arrive at once.
"""

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import count, pairwise

from ringside.sim.clock import Clock
from ringside.sim.libraries.scheduled import Scheduled
from ringside.sim.network.find import make_network
from ringside.sim.network.message import Network
from ringside.sim.program.libraries import Libraries
from ringside.sim.program.operations import Call, Group, Program, Recv, Send, Together
from ringside.sim.program.simulate import Meeting, Parcel, Signal, Simulation, Transport, run_all
from ringside.sim.program.stretch import Fluids
from ringside.sim.program.timeline import ProgramTimeline, timeline
from ringside.sim.program.transfers import Transfers, time_of

FOLDED = "one rank per role is simulated; contention between groups of one role is not modelled"
"""What folding assumes."""

MOST_HOSTS = 1_000_000
"""Ranks of a cluster that jobs are placed on."""


@dataclass(frozen=True, slots=True)
class PlacedProgram:
    """A program on some of a cluster's ranks: entry r of ``hosts`` carries its rank r.

    ``roles`` names for each rank the one played for it; without ``roles`` all are played.
    """

    program: Program
    hosts: tuple[int, ...]
    roles: tuple[int, ...] | None = None

    @property
    def played(self) -> frozenset[int]:
        """The ranks that are played."""
        return frozenset(range(self.program.ranks) if self.roles is None else self.roles)

    @property
    def is_folded(self) -> bool:
        """Whether some played rank represents others."""
        return len(self.played) < self.program.ranks

    def __post_init__(self) -> None:
        if len(self.hosts) != self.program.ranks:
            raise ValueError(
                f"{self.program.name} has {self.program.ranks} ranks, but is placed on "
                f"{len(self.hosts)}; write one rank of the cluster for each"
            )
        roles = range(self.program.ranks) if self.roles is None else self.roles
        if len(roles) != self.program.ranks or any(not 0 <= r < len(roles) or roles[r] != r for r in roles):
            raise ValueError(f"{self.program.name}: write for each rank its representative, or itself")


def simulate(
    jobs: Sequence[PlacedProgram], libraries: Libraries, contention: float = 0.0
) -> list[ProgramTimeline]:
    """Simulate jobs that start together on one cluster; their programs must have been proved.

    ``contention`` is the share of a rank's compute that a collective uses while it is under way.
    """
    return list(map(timeline, play(jobs, libraries, contention)))


def play(
    jobs: Sequence[PlacedProgram],
    libraries: Libraries,
    contention: float = 0.0,
    late: Mapping[int, float] | None = None,
) -> list[Simulation]:
    """Run `simulate` with every operation's moments; ``late`` has ranks' delays in seconds."""
    env = Clock()
    world = World(env, libraries)
    alone = are_alone([job.program for job in jobs if not job.is_folded])
    simulations = [
        Simulation(
            env, job.program, world.transport(job.hosts, played=job.played, alone=alone),
            roles=job.roles, contention=contention, late=late,
        )
        for job in jobs
    ]  # fmt: skip
    for job, simulation in zip(jobs, simulations, strict=True):
        simulation.assumes = (FOLDED,) if job.is_folded else ()
    run_all(env, simulations)
    return simulations


def placed(placements: Sequence[str], counts: Sequence[int]) -> list[tuple[int, ...]]:
    """Return the cluster ranks that carry each of several jobs, given their numbers of ranks.

    ``packed`` gives each job the next ranks, ``interleaved`` gives ranks to the jobs in turn; otherwise each
    job has a list such as ``0-3,8``, in the order of its ranks.
    """
    if list(placements) == ["packed"]:
        firsts = [sum(counts[:number]) for number in range(len(counts))]
        return [tuple(range(first, first + ranks)) for first, ranks in zip(firsts, counts, strict=True)]
    if list(placements) == ["interleaved"]:
        turns = sorted((turn, job) for job, ranks in enumerate(counts) for turn in range(ranks))
        owners = [job for _, job in turns]
        return [tuple(host for host, job in enumerate(owners) if job == own) for own in range(len(counts))]
    if len(placements) != len(counts):
        raise ValueError(
            f"{len(placements)} placements of {len(counts)} jobs; write packed, interleaved, or "
            "--placement 0-3,8 once for each job; even applies to one job"
        )
    host_lists = [_ranks(text) for text in placements]
    for hosts, ranks in zip(host_lists, counts, strict=True):
        if len(hosts) != ranks:
            raise ValueError(f"a job of {ranks} ranks placed on {len(hosts)}; write {ranks}")
    every = sorted(host for hosts in host_lists for host in hosts)
    twice = next((one for one, other in pairwise(every) if one == other), None)
    if twice is not None:
        raise ValueError(f"rank {twice} of the cluster is used twice; write each rank once")
    return host_lists


def _ranks(text: str) -> tuple[int, ...]:
    """Parse the ranks ``0-3,8``."""
    numbers: list[int] = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        if not (first.isdecimal() and (last.isdecimal() or not dash) and len(part) < 20):
            raise ValueError(
                f"{text!r} is not a placement; write packed, interleaved, or ranks such as 0-3,8"
            )
        stop = int(last if dash else first)
        if not int(first) <= stop < MOST_HOSTS:
            raise ValueError(f"{part!r} is not a range of ranks; write the first and the last, such as 0-3")
        numbers += range(int(first), stop + 1)
    return tuple(numbers)


class World:
    """Shared state of all jobs of one simulation."""

    def __init__(self, env: Clock, libraries: Libraries) -> None:
        self._env = env
        self._libraries = libraries
        self._network: Network | None = None
        self._fluids = Fluids(env)
        self._jobs = count()

    def transport(self, hosts: Sequence[int], *, played: Collection[int], alone: bool) -> Transport:
        """Return the transport of a job on these ranks of the cluster; only ``played`` are simulated."""
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
    """Return whether traffic never meets on a link: one group, one call at a time, no messages."""
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
