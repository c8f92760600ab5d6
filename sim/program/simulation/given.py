"""A program whose collectives and messages take given times, for example recorded ones."""

from collections.abc import Mapping, Sequence
from functools import partial

from ringside.sim.clock import Clock
from ringside.sim.engine.run import uncollected
from ringside.sim.program.operations import Group, Program
from ringside.sim.program.simulation.carry import Meeting, Parcel, Signal
from ringside.sim.program.simulation.simulate import Simulation
from ringside.sim.program.simulation.timeline import ProgramTimeline, timeline
from ringside.sim.program.simulation.transfers import later


class Given:
    """Collectives that begin with their last member, and end for each member after a given time.

    ``seconds`` has the times by rank and place of the member's operation. Each message takes ``message_s``
    from the moment both sides have posted it, however many others are under way.
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
    simulation = Simulation(env, program, Given(env, seconds, message_s), roles=roles)
    with uncollected():
        simulation.run()
        env.run()
    simulation.check_ended()
    return timeline(simulation)
