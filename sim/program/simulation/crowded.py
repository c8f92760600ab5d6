"""Collectives that use the cores that ranks compute on, as Gloo's do: each slows the other."""

from collections.abc import Callable, Sequence

from ringside.sim.clock import Clock
from ringside.sim.collective import Collective
from ringside.sim.program.operations import Group
from ringside.sim.program.simulation.carry import Meeting, Parcel, Signal
from ringside.sim.program.simulation.stretch import Units, Work


class Crowded:
    """Collectives of known times that share capacity, and are slower while a rank computes.

    ``crowding`` is the share of its pace that a collective then loses. There are no messages.
    """

    def __init__(self, env: Clock, time: Callable[[Collective], float], crowding: float) -> None:
        self._env = env
        self._time = time
        self._crowding = crowding
        self._units: Sequence[Units] = ()
        self._works: list[Work] = []

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

        work = Work(self._env, self._time(meeting.call.collective), ended)
        self._works.append(work)
        self._go_on()

    def announce(self, group: Group, dst: int, src: int) -> Signal:
        """Refuse: there are no messages."""
        raise NotImplementedError

    def send(self, parcel: Parcel) -> None:
        """Refuse: there are no messages."""
        raise NotImplementedError

    def _go_on(self) -> None:
        computing = any(one.busy for one in self._units)
        for work in list(self._works):
            work.go_on((1 - self._crowding if computing else 1.0) / len(self._works))
