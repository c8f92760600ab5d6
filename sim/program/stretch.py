"""Work that takes longer while others want the same: a rank's units, or links."""

from collections.abc import Callable, Hashable, Mapping
from math import inf

import simpy


class Work:
    """So many seconds of work, done at a pace that may change on the way; ``done`` is called at its end."""

    __slots__ = ("_done", "_env", "_left", "_since", "_turn", "pace", "until")

    def __init__(self, env: simpy.Environment, seconds: float, done: Callable[[], None]) -> None:
        self._env = env
        self._left = seconds
        self._done = done
        self._turn = 0
        """How often its end has been foretold: only the last word counts."""
        self._since = env.now
        self.pace = 0.0
        self.until = inf
        """When it ends if nothing changes."""

    def go_on(self, pace: float) -> None:
        """Go on at this pace; what ends at this moment does."""
        now = self._env.now
        if self.until <= now:
            return
        self._left -= (now - self._since) * self.pace
        self._since, self.pace = now, pace
        self._turn += 1
        turn = self._turn
        if self._left > 0:
            self.until = now + self._left / pace
            event = self._env.timeout(self._left / pace)
            event.callbacks.append(lambda _: self._end(turn))
        else:
            self.until = now
            self._end(turn)

    def _end(self, turn: int) -> None:
        if turn == self._turn:
            self._done()


class Units:
    """One rank's compute units, of which collectives that are under way take the share ``contention``.

    NCCL takes about one SM for each channel, so the share is channels / SMs.
    """

    def __init__(self, env: simpy.Environment, contention: float) -> None:
        self._env = env
        self._contention = contention
        self._active = 0
        self._works: list[Work] = []

    def work(self, seconds: float, done: Callable[[], None]) -> None:
        """Call ``done`` when so many seconds of work are done, later where collectives are under way."""

        def ended() -> None:
            self._works.remove(work)
            done()

        work = Work(self._env, seconds, ended)
        self._works.append(work)
        work.go_on(self._pace)

    def take(self, by: int) -> None:
        """So many more collectives are under way from now on."""
        self._active += by
        for work in list(self._works):
            work.go_on(self._pace)

    @property
    def _pace(self) -> float:
        return 1 - self._contention if self._active else 1.0


class Fluids:
    """Work of which each keeps parts of something busy, links above all, for a share of its time alone.

    All paces rise together, to 1 at the most, until some part is busy all the time; those that use it keep
    theirs, and the others rise on: max-min fairness.
    """

    def __init__(self, env: simpy.Environment) -> None:
        self._env = env
        self._works: dict[Work, Mapping[Hashable, float]] = {}

    def start(self, seconds: float, shares: Mapping[Hashable, float], done: Callable[[], None]) -> None:
        """Call ``done`` after so many seconds, later where others want the same."""

        def ended() -> None:
            del self._works[work]
            self._share()
            done()

        work = Work(self._env, seconds, ended)
        self._works[work] = shares
        self._share()

    def _share(self) -> None:
        for work, pace in zip(list(self._works), paces(list(self._works.values())), strict=True):
            if pace != work.pace:
                work.go_on(pace)


def paces(shares: list[Mapping[Hashable, float]]) -> list[float]:
    """The max-min fair paces, at most 1, of works that keep parts busy for these shares of their time."""
    found = [1.0] * len(shares)
    rising = set(range(len(shares)))
    wanted: dict[Hashable, dict[int, float]] = {}
    for number, own in enumerate(shares):
        for part, share in own.items():
            if share > 0:
                wanted.setdefault(part, {})[number] = share
    full = {part: by for part, by in wanted.items() if sum(by.values()) > 1}
    while rising and full:
        levels = {
            part: (1 - sum(found[one] * by[one] for one in by if one not in rising)) / risen
            for part, by in full.items()
            if (risen := sum(by[one] for one in by if one in rising))
        }
        part = min(levels, key=levels.__getitem__, default=None)
        if part is None or levels[part] >= 1:
            break
        for one in full.pop(part):
            if one in rising:
                found[one] = levels[part]
                rising.remove(one)
    return found
