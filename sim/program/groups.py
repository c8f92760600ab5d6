"""How the ranks of a job run their collectives: in known times, or transfer by transfer; one program so."""

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, Protocol

import simpy

from ringside.sim.clock import Clock
from ringside.sim.collective import Collective
from ringside.sim.effort import consider
from ringside.sim.engine.bounds import lower_bounds
from ringside.sim.engine.events import Execution
from ringside.sim.libraries.find import LIBRARIES
from ringside.sim.libraries.library import Library
from ringside.sim.libraries.rules import NCCL, RENDEZVOUS
from ringside.sim.libraries.scheduled import Scheduled
from ringside.sim.network.find import make_network
from ringside.sim.network.message import check_network
from ringside.sim.parameters import preset_of
from ringside.sim.program.operations import Group, Program
from ringside.sim.program.simulate import Meeting, Parcel, Signal, Simulation, Transport, run_all
from ringside.sim.program.stretch import PacedWork, Units
from ringside.sim.program.timeline import ProgramTimeline, timeline
from ringside.sim.program.transfers import later
from ringside.sim.schedule import Schedule
from ringside.topologies import Routes, Topology, ranks
from ringside.topologies.placement import machines_of, stretches

MAX_RANKS = 2**22
"""Maximum ranks of a training, since a step lists each: eight on each machine of the largest topology."""

Runner = Callable[[Collective], Generator[simpy.Event, Any, None]]
"""A SimPy process that lasts as long as one collective."""


class CostModel(Protocol):
    """Seconds that one collective takes alone: a tuner's estimate, a closed form, a measured curve."""

    def __call__(self, collective: Collective, /) -> float:
        """Return the seconds of this collective."""
        ...


class ProcessGroup(Protocol):
    """The ranks that share gradients; up to ``workers`` of their collectives run at once, in order."""

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        ...

    @property
    def workers(self) -> int:
        """Number of collectives that run at once."""
        ...

    def bound(self, collective: Collective) -> float:
        """Return a lower bound of this collective's seconds, whatever runs beside it."""
        ...

    def runner(self, env: Clock) -> Runner:
        """Return the function that runs collectives in one simulation; overlapping ones share one network."""
        ...


@dataclass(frozen=True, slots=True)
class TimedGroup:
    """Collectives with a known time and no transfers: ``time(collective)`` seconds each.

    With more than one worker, overlapping collectives do not slow each other down, so ``time`` should then be
    of collectives that share their links. With a ``crowding``, the share of its pace that a collective loses
    while a rank computes, they do slow each other down.
    """

    ranks: int
    time: CostModel
    workers: int = NCCL.workers
    crowding: float = 0.0

    def __post_init__(self) -> None:
        _check(self.ranks, self.workers)

    def bound(self, collective: Collective) -> float:
        """Return the time itself."""
        return self.time(collective)

    def runner(self, env: Clock) -> Runner:
        """Return a wait of the collective's time."""

        def run(collective: Collective) -> Generator[simpy.Event, Any, None]:
            yield env.timeout(self.time(collective))

        return run


@dataclass(frozen=True, slots=True)
class SimulatedGroup:
    """Collectives whose every transfer is simulated, on a topology with one network for all of them.

    ``algorithm`` ``auto`` is the library's own choice, with ``ideal`` the ring, which also replaces
    a named algorithm that cannot do the collective (a broadcast of buffers by halving and doubling, say).
    ``gamma`` (s/byte) and ``launch_s`` are `ringside.sim.parameters.Parameters`'; latencies and bandwidths
    are the graph's own.
    """

    graph: Topology
    ranks: int
    library: str = "ideal"
    algorithm: str = "auto"
    gamma: float = 0.0
    launch_s: float = 0.0
    workers: int = NCCL.workers
    network: str = "fifo"
    routes: Routes = field(init=False, repr=False, compare=False)
    placed: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "routes", Routes(self.graph))
        _check(self.ranks, self.workers)
        check_network(self.network)
        able = [name for name, entry in LIBRARIES.items() if entry.overlaps]
        if self.library not in able:
            raise ValueError(f"{self.library!r} is not simulated beside others; write {' or '.join(able)}")
        if self.ranks > len(ranks(self.graph)):
            raise ValueError(
                f"{self.ranks} ranks, but {self.graph.graph['name']} has {len(ranks(self.graph))}; "
                f"write fewer ranks or a larger cluster"
            )
        object.__setattr__(self, "placed", stretches(machines_of(self.graph, self.ranks)))

    def schedule(self, collective: Collective) -> Schedule:
        """Return the library's schedule of the collective."""
        plan: Schedule = LIBRARIES[self.library].module.beside(collective, self.algorithm, self.placed)
        return plan

    def bound(self, collective: Collective) -> float:
        """Return the busiest link's time for the collective's bytes, plus the launch."""
        plan = self.schedule(collective)
        consider(plan, self.graph)
        return self.launch_s + lower_bounds(plan, self.graph, self.routes).traffic

    def runner(self, env: Clock) -> Runner:
        """Return the SimPy engine on one network."""
        network = make_network(self.network, env, self.graph, self.routes)

        def run(collective: Collective) -> Generator[simpy.Event, Any, None]:
            if self.launch_s:
                yield env.timeout(self.launch_s)
            plan = self.schedule(collective)
            consider(plan, self.graph)
            execution = Execution(env, network, plan, self.gamma)
            execution.start()
            yield execution.done
            # moments of one instant may differ slightly
            if execution.end > env.tick:
                yield env.at(execution.end)

        return run


def time_alone(group: ProcessGroup) -> CostModel:
    """Return the time of each collective in the group when it runs alone."""

    @lru_cache(maxsize=4096)
    def time(collective: Collective, /) -> float:
        env = Clock()
        env.run(env.process(group.runner(env)(collective)))
        return env.now

    return time


def process_group(library: Library) -> ProcessGroup:
    """Return a library's group; concurrent collectives, as Gloo's, share one network.

    Sequential ones take their times alone.
    """
    if isinstance(library, Scheduled) and library.workers > 1:
        announced_s = RENDEZVOUS * preset_of(library.graph).alpha
        return SimulatedGroup(
            library.graph, library.ranks, library=library.name, launch_s=announced_s, workers=library.workers,
            network=library.network,
        )  # fmt: skip
    return TimedGroup(library.ranks, library_time(library))


def library_time(library: Library) -> CostModel:
    """Return the time of each collective by the library's own choice, launch included."""

    @lru_cache(maxsize=4096)
    def time(collective: Collective, /) -> float:
        return library.time(collective, library.choose(collective)).time_s

    return time


def _check(ranks: int, workers: int) -> None:
    if not 1 <= ranks <= MAX_RANKS:
        raise ValueError(f"a training on {ranks} ranks; write 1 to {MAX_RANKS}")
    if workers < 1:
        raise ValueError(f"{workers} workers; write 1 as NCCL has, 2 as Gloo has, or more")


ALONE = TimedGroup(1, lambda _: 0.0)
"""A single rank, which shares its gradients with no other."""


class GivenTimes:
    """Collectives that begin with their last member, and end for each member after a given time.

    ``seconds`` has the times by rank and place of the member's operation. Each message takes ``message_s``
    from the moment both sides have posted it, independent of others.
    """

    def __init__(self, env: Clock, seconds: Mapping[tuple[int, int], float], message_s: float = 0.0) -> None:
        self._env = env
        self._seconds = seconds
        self._message_s = message_s

    def arrive(self, meeting: Meeting, rank: int) -> None:
        """Begin with the last member."""
        if not meeting.missing:
            for member in list(meeting.present.items()):
                later(self._env, self._seconds[member], partial(meeting.leave, meeting, member[0]))

    def announce(self, group: Group, dst: int, src: int) -> Signal:
        """Do nothing: the given time includes it."""
        return Signal()

    def send(self, parcel: Parcel) -> None:
        """Begin with the later side."""
        later(self._env, self._message_s, parcel.deliver)


def simulate_given(
    program: Program,
    seconds: Mapping[tuple[int, int], float],
    roles: Sequence[int] | None = None,
    *,
    message_s: float = 0.0,
) -> ProgramTimeline:
    """Simulate the program, with collective times from ``seconds`` by rank and place.

    Each message takes ``message_s``.
    """
    env = Clock()
    simulation = Simulation(env, program, GivenTimes(env, seconds, message_s), roles=roles)
    run_all(env, [simulation])
    return timeline(simulation)


def play_in_group(
    program: Program,
    group: ProcessGroup,
    *,
    roles: Sequence[int] | None = None,
    contention: float = 0.0,
    late: Mapping[int, float] | None = None,
) -> Simulation:
    """Play a program of collectives of one group; the arguments are those of `Simulation`."""
    env = Clock()
    transport: Transport
    if isinstance(group, TimedGroup) and group.crowding:
        transport = crowded = Crowded(env, group.time, group.crowding)
    else:
        transport, crowded = AtOnce(env, group.runner(env)), None
    simulation = Simulation(env, program, transport, roles=roles, contention=contention, late=late)
    if crowded:
        crowded.watch(simulation.units)
    run_all(env, [simulation])
    return simulation


class Crowded:
    """Collectives of known times that share capacity, and are slower while a rank computes.

    ``crowding`` is the share of its pace that a collective then loses. There are no messages.
    """

    def __init__(self, env: Clock, time: Callable[[Collective], float], crowding: float) -> None:
        self._env = env
        self._time = time
        self._crowding = crowding
        self._units: Sequence[Units] = ()
        self._works: list[PacedWork] = []

    def watch(self, units: Sequence[Units]) -> None:
        """Set the ranks whose compute slows collectives."""
        self._units = units
        for one in units:
            one.watchers.append(self._go_on)

    def arrive(self, meeting: Meeting, rank: int) -> None:
        """Begin with the last member."""
        if meeting.missing:
            return

        def ended() -> None:
            self._works.remove(work)
            self._go_on()
            for member in list(meeting.present):
                meeting.leave(meeting, member)

        work = PacedWork(self._env, self._time(meeting.call.collective), ended)
        self._works.append(work)
        self._go_on()

    def announce(self, group: Group, dst: int, src: int) -> Signal:
        """Raise an error: there are no messages."""
        raise NotImplementedError

    def send(self, parcel: Parcel) -> None:
        """Raise an error: there are no messages."""
        raise NotImplementedError

    def _go_on(self) -> None:
        computing = any(one.busy for one in self._units)
        for work in list(self._works):
            work.go_on((1 - self._crowding if computing else 1.0) / len(self._works))


class AtOnce:
    """Collectives that begin when their last member arrives and end on all at once; no messages."""

    def __init__(self, env: Clock, runner: Runner) -> None:
        self._env = env
        self._runner = runner

    def arrive(self, meeting: Meeting, rank: int) -> None:
        """Begin with the last member."""
        if not meeting.missing:
            self._env.process(self._run(meeting))

    def announce(self, group: Group, dst: int, src: int) -> Signal:
        """Raise an error: there are no messages."""
        raise NotImplementedError

    def send(self, parcel: Parcel) -> None:
        """Raise an error: there are no messages."""
        raise NotImplementedError

    def _run(self, meeting: Meeting) -> Generator[simpy.Event, Any, None]:
        yield from self._runner(meeting.call.collective)
        for rank in list(meeting.present):
            meeting.leave(meeting, rank)
