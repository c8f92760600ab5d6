"""A program whose collectives and messages take times that are given, such as those that were recorded."""

from collections.abc import Mapping, Sequence
from functools import partial

from ringside.sim.clock import Clock
from ringside.sim.engine.run import uncollected
from ringside.sim.program.carry import Meeting, Parcel, Signal
from ringside.sim.program.operations import Group, Program
from ringside.sim.program.simulate import Simulation
from ringside.sim.program.timeline import ProgramTimeline, timeline
from ringside.sim.program.transfers import later


class Given:
    """Collectives that begin with their last member, and end for each after a given time.

    ``seconds`` has the times by rank and place of the member's operation. Each message takes ``message_s``
    from when both sides have come to it, however many others are under way.
    """

    def __init__(self, env: Clock, seconds: Mapping[tuple[int, int], float], message_s: float = 0.0) -> None:
        self._env = env
        self._seconds = seconds
        self._message_s = message_s

    def arrive(self, meeting: Meeting, rank: int) -> None:
        """Begin with the last."""
        if not meeting.missing:
            for member in list(meeting.present.items()):
                later(self._env, self._seconds[member], partial(meeting.leave, meeting, member[0]))

    def announce(self, group: Group, dst: int, src: int) -> Signal:
        """The given time has that in it."""
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
    """The program, where each collective takes what ``seconds`` has for it, by rank and place.

    Messages take ``message_s`` each.
    """
    env = Clock()
    simulation = Simulation(env, program, Given(env, seconds, message_s), roles=roles)
    with uncollected():
        simulation.run()
        env.run()
    simulation.check_ended()
    return timeline(simulation)
