"""Compute that takes longer while collectives take some of the rank's units."""

from collections.abc import Callable

import simpy


class Units:
    """One rank's compute units, of which collectives that are under way take the share ``contention``.

    NCCL takes about one SM for each channel, so the share is channels / SMs.
    """

    __slots__ = ("_active", "_contention", "_env", "_works")

    def __init__(self, env: simpy.Environment, contention: float) -> None:
        self._env = env
        self._contention = contention
        self._active = 0
        self._works: list[_Work] = []

    def work(self, seconds: float, done: Callable[[], None]) -> None:
        """Call ``done`` when so many seconds of work are done, later where collectives are under way."""
        self._works.append(work := _Work(seconds, done))
        self._proceed(work)

    def take(self, by: int) -> None:
        """So many more collectives are under way from now on."""
        self._active += by
        now = self._env.now
        for work in [work for work in self._works if work.until > now]:
            work.left -= (now - work.since) * work.pace
            if work.left > 0:
                self._proceed(work)
            else:
                work.turn += 1
                self._end(work, work.turn)

    def _proceed(self, work: "_Work") -> None:
        now = self._env.now
        work.turn += 1
        work.since, work.pace = now, 1 - self._contention if self._active else 1.0
        work.until = now + work.left / work.pace
        turn = work.turn
        event = self._env.timeout(work.left / work.pace)
        event.callbacks.append(lambda _: self._end(work, turn))

    def _end(self, work: "_Work", turn: int) -> None:
        if turn == work.turn:
            self._works.remove(work)
            work.done()


class _Work:
    """What is ``left`` at ``since``, in seconds of work, done at ``pace`` and over at ``until``."""

    __slots__ = ("done", "left", "pace", "since", "turn", "until")

    def __init__(self, seconds: float, done: Callable[[], None]) -> None:
        self.left = seconds
        self.done = done
        self.turn = 0
        """How often its end has been foretold: only the last word counts."""
        self.since = self.until = 0.0
        self.pace = 1.0
