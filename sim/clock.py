"""Simulated time: exact, so that nothing depends on when it happens.

A float tells a moment of an hour to 4.5e-13 s and one of a month to 4.7e-10, so that the same sums come out
otherwise at another time. A moment is therefore a number of ticks, whole and without end. What belongs
together, a collective or a message, reckons in seconds since its *origin*, the tick at which it began: the
same floats, whenever that is.
"""

from collections.abc import Callable
from typing import Any

import simpy

TICKS = 2.0**120
"""Ticks in a second: from 1e-20 s on a float's every digit is whole ticks."""

GRAIN = 1 << 60
"""Ticks, 1e-18 s, to which a program is told when something ends, so that who does alike remains so."""

SIMULTANEOUS = 1e-8
"""Where links differ, moments apart by no more than this share of the time since their origin are one."""

AT_MOST_S = 1e-9
"""They are not if they differ by more than that."""

LONG_S = 1.0
"""What has lasted longer reckons from a later origin as soon as nothing of it is under way."""


def ticks(seconds: float) -> int:
    """A time in ticks."""
    return int(seconds * TICKS)


def seconds(ticks: int) -> float:
    """A time in seconds."""
    return ticks / TICKS


def since(origin: int, time: float, other: int) -> float:
    """The moment ``time`` seconds after one origin, in seconds after another."""
    return time if origin == other else seconds(origin - other + ticks(time))


class Clock(simpy.Environment):
    """SimPy's environment, where time is exact. To wait, and to read the clock, is still in seconds."""

    @property
    def tick(self) -> int:
        """What moment it is."""
        return self._now  # type: ignore[return-value]

    @property
    def now(self) -> float:
        """What moment it is in seconds, as well as a float can say it."""
        return self._now / TICKS

    def timeout(self, delay: float = 0, value: Any = None) -> simpy.Timeout:
        """What happens so many seconds from now."""
        return simpy.Timeout(self, ticks(delay), value)

    def at(self, tick: int) -> simpy.Timeout:
        """What happens at a moment, or now if that is over."""
        return simpy.Timeout(self, tick - self._now if tick > self._now else 0)

    def at_last(self, tick: int, do: Callable[[], None], turn: int = 0) -> None:
        """Do something at a moment, or now, after all else of that moment but what has a later ``turn``.

        So a network sees all that is sent at a moment at once, in whatever order ranks and jobs come to it.
        """
        event = self.event()
        event.callbacks = [lambda _: do()]
        event._ok, event._value = True, None
        self.schedule(
            event, simpy.events.EventPriority(2 + turn), tick - self._now if tick > self._now else 0
        )
