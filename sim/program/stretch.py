"""Work that takes longer while others use the same resource: a rank's units, or links."""

from collections.abc import Callable, Hashable, Mapping
from functools import partial
from math import inf

import simpy

from ringside.sim.clock import Clock


class PacedWork:
    """Work in seconds, at a pace that may change on the way; ``done`` is called at its end."""

    __slots__ = ("_done", "_env", "_left", "_since", "_turn", "pace", "until")

    def __init__(self, env: Clock, work_s: float, done: Callable[[], None]) -> None:
        self._env = env
        self._left = work_s
        self._done = done
        self._turn = 0
        """Number of scheduled ends; only the last one is valid."""
        self._since = env.tick
        self.pace = 0.0
        self.until: float = inf
        """The tick at which it ends if nothing changes."""

    def go_on(self, pace: float) -> None:
        """Continue at this pace; work that ends at this moment ends."""
        now = self._env.tick
        if self.until <= now:
            return
        self._left -= self._env.since(self._since) * self.pace
        self._since, self.pace = now, pace
        self._turn += 1
        turn = self._turn
        if self._left > 0:
            self.until = self._env.after(self._left / pace, partial(self._end, turn))
        else:
            self.until = now
            self._end(turn)

    def _end(self, turn: int, _: simpy.Event | None = None) -> None:
        if turn == self._turn:
            self._done()


class Units:
    """One rank's compute units; collectives under way use the share ``contention`` of them.

    NCCL uses about one SM per channel, so the share is channels / SMs. ``watchers`` are called when compute
    begins, and when the last of it has ended.
    """

    def __init__(self, env: Clock, contention: float) -> None:
        self._env = env
        self._contention = contention
        self._active = 0
        self._works: list[PacedWork] = []
        self.watchers: list[Callable[[], None]] = []

    @property
    def busy(self) -> bool:
        """Whether the rank computes."""
        return bool(self._works)

    @property
    def matters(self) -> bool:
        """Whether the rank's compute slows collectives, or is slowed by them."""
        return bool(self._contention or self.watchers)

    def work(self, work_s: float, done: Callable[[], None]) -> None:
        """Call ``done`` after ``work_s`` seconds of work, later where collectives are under way."""

        def ended() -> None:
            self._works.remove(work)
            self._tell(1 - len(self._works))
            done()

        work = PacedWork(self._env, work_s, ended)
        self._works.append(work)
        self._tell(len(self._works))
        work.go_on(self._pace)

    def take(self, by: int) -> None:
        """Add ``by`` to the number of collectives under way."""
        self._active += by
        for work in list(self._works):
            work.go_on(self._pace)

    def _tell(self, first: int) -> None:
        if first == 1:
            for watcher in self.watchers:
                watcher()

    @property
    def _pace(self) -> float:
        return 1 - self._contention if self._active else 1.0


class Fluids:
    """Work items that each keep resources busy, links above all, for a share of their time alone.

    All paces rise together, to at most 1, until some resource is always busy; its users keep their pace, and
    the others rise on: max-min fairness.
    """

    def __init__(self, env: Clock) -> None:
        self._env = env
        self._works: list[PacedWork] = []
        self._users: dict[Hashable, dict[PacedWork, float]] = {}
        """Users of each resource, with their shares."""
        self._crowded: dict[Hashable, dict[PacedWork, float]] = {}
        """Resources whose shares add up to more than 1."""

    def start(self, work_s: float, shares: Mapping[Hashable, float], done: Callable[[], None]) -> None:
        """Call ``done`` after ``work_s`` seconds, later where others use the same resources."""

        def ended() -> None:
            self._works.remove(work)
            for part in shares:
                del self._users[part][work]
                self._weigh(part)
            self._share()
            done()

        work = PacedWork(self._env, work_s, ended)
        self._works.append(work)
        for part, share in shares.items():
            self._users.setdefault(part, {})[work] = share
            self._weigh(part)
        self._share()

    def _weigh(self, part: Hashable) -> None:
        users = self._users[part]
        if len(users) > 1 and sum(users.values()) > 1:
            self._crowded[part] = users
        else:
            self._crowded.pop(part, None)

    def _share(self) -> None:
        pace_of = paces(list(self._crowded.values()))
        for work in list(self._works):
            pace = pace_of.get(work, 1.0)
            if pace != work.pace:
                work.go_on(pace)


def paces(crowded: list[dict[PacedWork, float]]) -> dict[PacedWork, float]:
    """Return max-min fair paces, at most 1, of work items whose shares of resources add up to more than 1.

    Items without an entry keep the pace 1.
    """
    pace_of: dict[PacedWork, float] = {}
    left = list(crowded)
    while left:
        levels = []
        for users in left:
            rising = sum(share for work, share in users.items() if work not in pace_of)
            taken = sum(pace_of[work] * share for work, share in users.items() if work in pace_of)
            levels.append((1 - taken) / rising if rising else 1.0)
        level = min(levels)
        if level >= 1:
            break
        full = left.pop(levels.index(level))
        pace_of.update(dict.fromkeys((work for work in full if work not in pace_of), level))
    return pace_of
