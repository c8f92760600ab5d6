"""Whether traffic can queue on the links inside the routes in use.

A route's first and last link are its ports; the others are inside it.

A link is *crowded* if both the ports that send over it and the ports that it leads to could give more than
`CROWDED` times its bandwidth.

A link is *ample* if nothing ever has to wait for it. Either the ports that send over it can give no more than
it carries, and all links between them and it are ample for that reason. Or the ports that it leads to can
take no more, and all links between it and them are ample for that reason: traffic would wait for these
instead. So messages pass it as fast as they arrive: a non-blocking network is equivalent to one switch.
"""

from collections.abc import Iterable, Sequence
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
