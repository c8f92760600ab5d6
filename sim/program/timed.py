"""One program by itself, whose collectives take known times, or those of a group of ranks."""

from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from typing import Any

import simpy

from ringside.sim.clock import Clock
from ringside.sim.collective import Collective
from ringside.sim.program.groups import ProcessGroup, Runner, TimedGroup
from ringside.sim.program.operations import Group, Program
from ringside.sim.program.simulate import Simulation, run_all
from ringside.sim.program.stretch import PacedWork, Units
from ringside.sim.program.timeline import ProgramTimeline, timeline
from ringside.sim.program.transfers import later
from ringside.sim.program.transport import Meeting, Parcel, Signal, Transport


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
