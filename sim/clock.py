"""Simulated time: exact, so that nothing depends on when it happens.

A float resolves a moment after an hour to 4.5e-13 s and one after a month to 4.7e-10, so equal sums differ at
another time. A moment is therefore an unbounded whole number of ticks. A collective or a message computes in
seconds since its *origin*, the tick at which it began: the same floats at any time.
"""

from collections.abc import Callable
from typing import Any

import simpy

TICKS = 2.0**120
"""Ticks per second: every digit of a float from 1e-20 s on is whole ticks."""

GRAIN = 1 << 60
"""Ticks, 1e-18 s, to which a program's ends are rounded, so that equal ranks stay equal."""

SIMULTANEOUS = 1e-8
"""Where links differ, moments within this share of the time since their origin are one."""

AT_MOST_S = 1e-9
"""Moments that differ by more than this are never treated as one."""

LONG_S = 1.0
"""Age from which an idle activity moves its origin."""


def ticks(seconds: float) -> int:
    """Convert seconds to ticks."""
    return int(seconds * TICKS)


def seconds(ticks: int) -> float:
    """Convert ticks to seconds."""
    return ticks / TICKS


def since(origin: int, time: float, other: int) -> float:
    """Convert a moment in seconds after one origin to seconds after another."""
    return time if origin == other else seconds(origin - other + ticks(time))


class Clock(simpy.Environment):
    """SimPy's environment with exact time. Waits and the clock are still in seconds."""

    @property
    def tick(self) -> int:
        """The current tick."""
        return self._now  # type: ignore[return-value]

    @property
    def now(self) -> float:
        """The current time in seconds, rounded to a float."""
        return self._now / TICKS

    def timeout(self, delay: float = 0, value: Any = None) -> simpy.Timeout:
        """Return an event ``delay`` seconds from now."""
        return simpy.Timeout(self, ticks(delay), value)

    def since(self, tick: int) -> float:
        """Return the seconds since a tick."""
        return (self._now - tick) / TICKS

    def after(self, delay: float, do: Callable[[simpy.Event], None]) -> int:
        """Run an action ``delay`` seconds from now; return the tick at which it runs."""
        wait = ticks(delay)
        simpy.Timeout(self, wait).callbacks.append(do)
        return self._now + wait  # type: ignore[return-value]

    def at(self, tick: int) -> simpy.Timeout:
        """Return an event at a moment, or now if that is past."""
        return simpy.Timeout(self, tick - self._now if tick > self._now else 0)

    def at_last(self, tick: int, do: Callable[[], None], turn: int = 0) -> None:
        """Run an action at a moment, or now, after its other actions, in order of ``turn``.

        A network thus sees all sends of a moment at once, independent of the order of ranks and jobs.
        """
        event = self.event()
        event.callbacks = [lambda _: do()]
        event._ok, event._value = True, None
        self.schedule(
            event, simpy.events.EventPriority(2 + turn), tick - self._now if tick > self._now else 0
        )
