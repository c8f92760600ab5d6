"""The load of each link of a simulated network, and how long messages waited for it.

Simulations inside a ``with`` are counted, however deep:

with counted() as loads:     simulate(plan, graph) loads[0].busiest(10)
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from itertools import pairwise

CROWDED = 1.01
"""Multiple of its bandwidth above which possible traffic makes a link crowded."""

AMPLE = 1 + 1e-8
"""Multiple of its bandwidth up to which possible traffic leaves a link ample."""


class Crowding:
    """The use of links, which are numbered, by the routes in use: bandwidth and latency of each.

    ``others`` are those of links that no route uses.
    """

    def __init__(
        self, figures: Sequence[tuple[float, float]], others: Iterable[tuple[float, float]] = ()
    ) -> None:
        self._figures = figures
        bandwidths = [bandwidth for bandwidth, _ in figures]
        self._firsts, self._lasts = _Side(bandwidths), _Side(bandwidths)
        self._known = {figure for figure in (*figures, *others) if figure[1]}

    @property
    def alike(self) -> bool:
        """Whether all links are equal, except ample or unused ones without latency."""
        return len(self._known) <= 1

    def add(self, way: tuple[int, ...]) -> None:
        """Add a route in use: its links in order."""
        changed = [*way, *self._firsts.add(way), *self._lasts.add(way[::-1])]
        self._known.update(self._figures[link] for link in changed if not self.is_ample(link))

    def crowds(self, way: tuple[int, ...]) -> bool:
        """Return whether traffic on an inner link can exceed its bandwidth and that of the ports behind."""
        firsts, lasts = self._firsts.meets, self._lasts.meets
        return any(min(firsts[link], lasts[link]) > self._figures[link][0] * CROWDED for link in way[1:-1])

    def is_ample(self, link: int) -> bool:
        """Return whether traffic never waits for a link; ports are never ample."""
        return link in self._firsts.ample or link in self._lasts.ample


class _Side:
    """The ports at one end of the routes, and the links inside these as seen from there."""

    def __init__(self, bandwidths: Sequence[float]) -> None:
        self._bandwidths = bandwidths
        self.meets: dict[int, float] = {}
        """Bytes/s of all ports whose routes have a link inside."""
        self.ample: set[int] = set()
        self._ports: dict[int, set[int]] = {}
        self._beyond: dict[int, set[int]] = {}
        """The links that are next behind each one on some route."""
        self._ends: set[int] = set()
        """The ports at both ends."""

    def add(self, way: tuple[int, ...]) -> list[int]:
        """Add a route, from its port here to the one at its other end; return links no longer ample."""
        inside = way[1:-1]
        self._ends.update(way[:1], way[-1:])
        for link in inside:
            if link not in self._ports:
                self._ports[link], self._beyond[link], self.meets[link] = set(), set(), 0.0
                self.ample.add(link)
            if way[0] not in self._ports[link]:
                self._ports[link].add(way[0])
                self.meets[link] += self._bandwidths[way[0]]
        for link, beyond in pairwise(inside):
            self._beyond[link].add(beyond)
        narrow = [link for link in way if link in self._ports and not self._is_wide(link)]
        for link in narrow:  # which grows meanwhile
            self.ample.discard(link)
            narrow += [beyond for beyond in self._beyond[link] if beyond in self.ample]
        return narrow

    def _is_wide(self, link: int) -> bool:
        """Return whether a link is ample if those before it are."""
        return (
            link in self.ample
            and link not in self._ends
            and self.meets[link] <= self._bandwidths[link] * AMPLE
        )


@dataclass(frozen=True, slots=True)
class LinkLoad:
    """One direction of a cable over one collective.

    ``busy`` is the share of the time in which its bandwidth is in use; a message waits, in seconds, from its
    head's arrival until its first byte leaves. Pieces and segments count as messages.
    """

    link: str
    nbytes: int
    busy: float
    messages: int
    wait_mean_s: float
    wait_max_s: float


class Load:
    """The links of one network during one simulation, which lasts until ``time_s``."""

    def __init__(self, names: Sequence[str], bandwidths: Sequence[float]) -> None:
        self._names, self._bandwidths = names, bandwidths
        self._nbytes = [0] * len(names)
        self._messages = [0] * len(names)
        self._waited = [0.0] * len(names)
        self._longest = [0.0] * len(names)
        self.time_s = 0.0

    def take(self, link: int, nbytes: int, waited: float, tail: float) -> None:
        """Count a message whose tail has passed a link at ``tail``."""
        self._nbytes[link] += nbytes
        self._messages[link] += 1
        self._waited[link] += waited
        if waited > self._longest[link]:
            self._longest[link] = waited
        if tail > self.time_s:
            self.time_s = tail

    def links(self) -> list[LinkLoad]:
        """Return the links that carried messages, by falling load, then by falling waits."""
        loads = [
            LinkLoad(
                self._names[link], self._nbytes[link], self._busy(link), count,
                self._waited[link] / count, self._longest[link],
            )
            for link, count in enumerate(self._messages)
            if count
        ]  # fmt: skip
        return sorted(loads, key=lambda one: (-round(one.busy, 9), -round(one.wait_mean_s, 12), one.link))

    def _busy(self, link: int) -> float:
        return self._nbytes[link] / self._bandwidths[link] / self.time_s if self.time_s else 0.0


_counting: ContextVar[list[Load] | None] = ContextVar("counting", default=None)


@contextmanager
def counted() -> Iterator[list[Load]]:
    """Count the load of links in every simulation inside the block; one entry each, in order."""
    loads: list[Load] = []
    token = _counting.set(loads)
    try:
        yield loads
    finally:
        _counting.reset(token)


def load_of(names: Sequence[str], bandwidths: Sequence[float]) -> Load | None:
    """Return the counter for a new network, if counting is on."""
    loads = _counting.get()
    if loads is None:
        return None
    loads.append(Load(names, bandwidths))
    return loads[-1]
