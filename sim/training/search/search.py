"""The fastest of many layouts: promising ones by their bounds are simulated, the others named.

A layout is left out if it is invalid, if its ranks need too much memory, or if its bound is above the times
of the best simulated ones. So the result is the fastest of all, with simulated times.
"""

from bisect import insort
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import NamedTuple

from ringside.sim.program.libraries import Libraries
from ringside.sim.training.job import ParallelJob
from ringside.sim.training.memory.room import FITS, Room
from ringside.sim.training.parallel import play_parallel
from ringside.sim.training.search.bounds import Bounds
from ringside.sim.training.step import ParallelStep

IMPOSSIBLE = "invalid"
SLOWER = "slower"
"""Reasons to leave out a layout, besides memory."""

NOISE = 1e-9
"""The share by which rounding may raise a bound above a time."""


class LayoutCandidate(NamedTuple):
    """A layout and its unique name; ``job`` makes its job, and raises ValueError if it is invalid."""

    name: str
    job: Callable[[], ParallelJob]


class Found(NamedTuple):
    """A layout that was simulated and fits."""

    name: str
    job: ParallelJob
    step_s: float
    peak_nbytes: int


class Pruned(NamedTuple):
    """A layout that was left out: the kind of reason, and the reason in words.

    ``step_s`` and ``nbytes`` are lower bounds of its step and of its ranks' memory, if they were
    computed.
    """

    name: str
    kind: str
    reason: str
    step_s: float | None = None
    nbytes: int | None = None


@dataclass(slots=True)
class Searched:
    """The result so far: ``ranked`` with the fastest first; ``best`` is its whole step.

    ``left`` names the remaining layouts, in search order, if the search was stopped.
    """

    ranked: list[Found] = field(default_factory=list)
    pruned: list[Pruned] = field(default_factory=list)
    best: ParallelStep | None = None
    left: tuple[str, ...] = ()


class BoundedLayout(NamedTuple):
    """A layout during the search: its bound, whether that includes its pipeline's walk, and its number."""

    step_s: float
    walked: bool
    number: int


def search(
    candidates: Iterable[LayoutCandidate],
    libraries: Libraries,
    room: Callable[[ParallelJob], Room],
    *,
    top: int = 5,
    tell: Callable[[str], None] = lambda _: None,
) -> Searched:
    """Return the ``top`` fastest layouts that fit into the ``room`` that a job has.

    ``tell`` receives progress messages. Control-C ends the search with the result so far.
    """
    searched = Searched()
    _Search(searched, libraries, room, top, tell).run(candidates)
    return searched


class _Search:
    def __init__(
        self,
        searched: Searched,
        libraries: Libraries,
        room: Callable[[ParallelJob], Room],
        top: int,
        tell: Callable[[str], None],
    ) -> None:
        self._searched = searched
        self._libraries = libraries
        self._room = room
        self._top = top
        self._tell = tell
        self._bounds = Bounds(libraries)
        self._jobs: dict[int, tuple[str, ParallelJob]] = {}
        self._agenda: list[BoundedLayout] = []

    def run(self, candidates: Iterable[LayoutCandidate]) -> None:
        unbounded = deque(enumerate(candidates))
        try:
            while unbounded:
                number, candidate = unbounded[0]
                self._consider(number, candidate)
                unbounded.popleft()
                self._tell(f"{number + 1} layouts bounded")
            while self._agenda:
                self._next()
        except KeyboardInterrupt:
            waiting = [self._jobs[one.number][0] for one in sorted(self._agenda)]
            self._searched.left = tuple(dict.fromkeys([*waiting, *(one.name for _, one in unbounded)]))

    def _consider(self, number: int, candidate: LayoutCandidate) -> None:
        """Leave out a layout, or add it to the agenda with its first bound."""
        try:
            job = candidate.job()
            nbytes = self._bounds.nbytes(job)
        except ValueError as error:
            self._leave_out(candidate.name, IMPOSSIBLE, str(error))
            return
        room = self._room(job)
        if room.verdict(nbytes) != FITS:
            self._too_large(candidate.name, room, nbytes, "at least ")
            return
        self._jobs[number] = candidate.name, job
        heappush(self._agenda, BoundedLayout(self._bounds.step_s(job, walks=False), False, number))

    def _next(self) -> None:
        """Process the most promising layout: leave it out, compute its better bound, or simulate it."""
        one = heappop(self._agenda)
        name, job = self._jobs[one.number]
        slowest = self._slowest_s
        if one.step_s > slowest * (1 + NOISE):
            self._leave_out(name, SLOWER, f"takes at least {one.step_s:.6g} s", step_s=one.step_s)
            del self._jobs[one.number]
        elif not one.walked:
            heappush(self._agenda, BoundedLayout(max(one.step_s, self._bounds.step_s(job)), True, one.number))
        else:
            try:
                self._simulate(name, job)
            except KeyboardInterrupt:
                heappush(self._agenda, one)
                raise
            del self._jobs[one.number]

    @property
    def _slowest_s(self) -> float:
        """Return the maximum time of a layout among the best."""
        best = self._searched.ranked
        return best[-1].step_s if len(best) == self._top else float("inf")

    def _simulate(self, name: str, job: ParallelJob) -> None:
        searched = self._searched
        self._tell(f"{len(self._agenda)} layouts left, simulating {name}")
        try:
            played = play_parallel(job, self._libraries)
        except ValueError as error:
            self._leave_out(name, IMPOSSIBLE, str(error))
            return
        nbytes = max(one.peak.nbytes for one in played.memory)
        room = self._room(job)
        if room.verdict(nbytes) != FITS:
            self._too_large(name, room, nbytes, "")
            return
        one = Found(name, job, played.step_s, nbytes)
        if not searched.ranked or one.step_s < searched.ranked[0].step_s:
            searched.best = played.step()
        insort(searched.ranked, one, key=lambda candidate: candidate.step_s)
        for slow in searched.ranked[self._top :]:
            self._leave_out(slow.name, SLOWER, f"takes {slow.step_s:.6g} s", step_s=slow.step_s)
        del searched.ranked[self._top :]

    def _too_large(self, name: str, room: Room, nbytes: int, word: str) -> None:
        reason = f"holds {word}{nbytes / 2**30:.2f} GiB of {room.usable / 2**30:.2f}"
        self._leave_out(name, room.verdict(nbytes), reason, nbytes=nbytes)

    def _leave_out(
        self, name: str, kind: str, reason: str, *, step_s: float | None = None, nbytes: int | None = None
    ) -> None:
        self._searched.pruned.append(Pruned(name, kind, reason, step_s, nbytes))
