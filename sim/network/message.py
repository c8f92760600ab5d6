"""The interface between the engine and a network: a message, and how a network serves it."""

from collections.abc import Callable, Iterable
from math import inf
from typing import Any, Protocol

from ringside.sim.clock import since
from ringside.topologies import Routes
from ringside.topologies.graph import Hop
from ringside.topologies.names import one_of

Rates = list[tuple[float, float]]
"""A rate over time: each from its moment (s) until the next one's, in bytes/s; the last one for good."""

PIECES = 16
"""Minimum pieces of a connection's transfer over a crowded link."""


NETWORKS = ("fifo", "fair")


def check_network(name: str) -> None:
    """Refuse an unknown network."""
    if name not in NETWORKS:
        raise ValueError(f"unknown network {name!r}; write {one_of(NETWORKS, name)}")


class Message:
    """Bytes on their way over ``links``; ``delivered(message, time)`` is called when the tail has arrived.

    All its moments are in seconds since its ``origin``: see `ringside.sim.clock`.
    """

    __slots__ = (
        "at",
        "delivered",
        "hop",
        "key",
        "links",
        "nbytes",
        "origin",
        "pieces",
        "rate",
        "rates",
        "spans",
        "tail",
    )

    def __init__(
        self, links: tuple[int, ...], nbytes: int, key: int, delivered: Callable[[Any, float], None]
    ) -> None:
        self.links = links
        self.nbytes = nbytes
        self.key = key
        self.delivered = delivered
        self.at = 0.0
        """When its next event happens: its head arrives, or it is delivered."""
        self.origin = 0
        """The tick from which its moments count: the start of its collective or message."""
        self.hop = 0
        self.pieces = PIECES
        """Number of pieces where its route is crowded."""
        self.rate = inf
        """Bytes/s at which it arrives at its next link; all at once at the first."""
        self.rates: Rates | None = None
        """Its rate over time, where that changes between head and tail."""
        self.tail = 0.0
        self.spans: list[tuple[float, float]] | None = None
        """When the message was on each of its links; set a list to have it filled."""

    def count_from(self, origin: int) -> None:
        """Count from another origin, once it has been delivered."""
        self.tail = since(self.origin, self.tail, origin)
        if self.spans is not None:
            self.spans = [
                (since(self.origin, begin, origin), since(self.origin, end, origin))
                for begin, end in self.spans
            ]
        self.origin = origin


class Network(Protocol):
    """The links of one topology during one simulation."""

    routes: Routes
    link_names: list[str]

    def over(self, route: Iterable[Hop], job: int = 0) -> tuple[int, ...]:
        """Return the numbers of a route's links, in order; the connection's messages use this tuple.

        Connections of one ``job`` belong together.
        """
        ...

    def send(self, message: Message, time: float) -> None:
        """Put a message on its way now, at its own ``time``."""
        ...

    def deliver(self, message: Message, time: float) -> None:
        """Call ``message.delivered`` at ``time``, in its order among that instant's deliveries."""
        ...

    def backlog_s(self, hop: Hop) -> float:
        """Return the seconds that data arriving at a link now would wait there."""
        ...
