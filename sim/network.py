"""What links do to messages: the one file that holds the ``fifo`` rule.

Each link, one direction of a cable, serves messages one after another in the order in which their
heads arrive. A message keeps a link busy for nbytes / bandwidth from the moment its head is there and
the link is free; the head moves on after the link's latency; the message is delivered when its tail
has passed the last link, and a tail never passes a link before it has left the one before. So a
message pays every latency once and the narrowest link once: cut-through, not store-and-forward.
Switches queue at their outputs: to wait for a busy link does not hold up the link before it.

That is a network of whole messages, the textbook's. A topology with a ``segment`` and a ``window``
(see `topologies.graph`) has a transport such as TCP above its links. A message then crosses it in
segments, each by the rule above, and between one rank and another at most a window of bytes is
under way: the next segment sets out when an earlier one has arrived, which the sender learns at no
cost. Messages that share a port so take turns segment by segment, and what waits for a port is a
window for each pair of ranks, however much these have to say to each other.

What happens at the same instant happens in a fixed order: first deliveries, then arrivals of heads,
each by the message's key, which is (source rank, connection, place in the connection's order).
"""

from collections import deque
from collections.abc import Callable
from operator import attrgetter
from typing import Any

import simpy

from topologies import Routes, Topology

_by_key = attrgetter("key")


class Message:
    """Bytes on their way over ``links``; ``delivered(message, time)`` is called when the tail has arrived."""

    __slots__ = ("delivered", "hop", "key", "links", "nbytes", "spans", "tail")

    def __init__(
        self, links: tuple[int, ...], nbytes: int, key: int, delivered: Callable[[Any, float], None]
    ) -> None:
        self.links = links
        self.nbytes = nbytes
        self.key = key
        self.delivered = delivered
        self.hop = 0
        self.tail = 0.0
        self.spans: list[tuple[float, float]] | None = None
        """When the message kept each of its links busy, if anybody asks: set a list to have it filled."""


class _Segment(Message):
    __slots__ = ("last", "stream", "whole")

    last: bool
    stream: "_Stream"
    whole: Message


class _Stream:
    """The segments from one rank to another: those that wait, and the room for more under way."""

    __slots__ = ("room", "waiting")

    def __init__(self, window: int) -> None:
        self.room = window
        self.waiting: deque[_Segment] = deque()


class FifoNetwork:
    """The links of one topology during one simulation, under the ``fifo`` rule."""

    def __init__(self, env: simpy.Environment, graph: Topology) -> None:
        self._env = env
        self._routes = Routes(graph)
        self.link_names = [f"{a} -> {b}" for a, b in graph.edges]
        self._number = {hop: number for number, hop in enumerate(graph.edges)}
        self._bandwidth: list[float] = [data["bandwidth"] for _, _, data in graph.edges(data=True)]
        self._latency: list[float] = [data["latency"] for _, _, data in graph.edges(data=True)]
        self._free = [0.0] * len(self.link_names)
        self._instants: dict[float, tuple[list[Message], list[Message]]] = {}
        self._segment: int = graph.graph.get("segment", 0)
        self._window: int = graph.graph.get("window", 0)
        self._streams: dict[tuple[int, ...], _Stream] = {}

    def route(self, src: int, dst: int) -> tuple[int, ...]:
        """The numbers of the links from rank to rank, in order."""
        return tuple(self._number[hop] for hop in self._routes.route(src, dst))

    def send(self, message: Message, time: float) -> None:
        """Let the message's head arrive at the first of its links now, at ``time``."""
        if self._segment:
            self._send_segments(message, time)
        else:
            self._instant(time)[1].append(message)

    def deliver(self, message: Message, time: float) -> None:
        """Have ``message.delivered`` called at ``time``, in its order among that instant's deliveries."""
        self._instant(time)[0].append(message)

    def _instant(self, time: float) -> tuple[list[Message], list[Message]]:
        """The deliveries and the arrivals of heads at one moment, which is one SimPy event."""
        instant = self._instants.get(time)
        if instant is None:
            instant = self._instants[time] = ([], [])
            event = self._env.timeout(max(time - self._env.now, 0.0), value=time)
            assert event.callbacks is not None
            event.callbacks.append(self._happen)
        return instant

    def _happen(self, event: simpy.Event) -> None:
        time: float = event.value  # type: ignore[assignment]
        deliveries, arrivals = self._instants[time]
        deliveries.sort(key=_by_key)
        for message in deliveries:
            message.delivered(message, time)
        # only now: what the deliveries set free arrives in this same instant
        del self._instants[time]
        arrivals.sort(key=_by_key)
        for message in arrivals:
            self._take_link(message, time)

    def _take_link(self, message: Message, time: float) -> None:
        """Give a link, and what its head then reaches at once, to a message whose head has arrived."""
        link = message.links[message.hop]
        start = max(time, self._free[link])
        self._free[link] = end = start + message.nbytes / self._bandwidth[link]
        latency = self._latency[link]
        message.tail = max(end, message.tail) + latency
        message.hop += 1
        if message.spans is not None:
            message.spans.append((start, end))
        if message.hop == len(message.links):
            self.deliver(message, message.tail)
        elif start + latency > time:
            self._instant(start + latency)[1].append(message)
        else:
            self._take_link(message, time)

    def _send_segments(self, message: Message, time: float) -> None:
        """Put a message's segments behind what its ranks have to send already."""
        stream = self._streams.get(message.links)
        if stream is None:
            stream = self._streams[message.links] = _Stream(self._window)
        for begin in range(0, max(message.nbytes, 1), self._segment):
            nbytes = min(self._segment, message.nbytes - begin)
            segment = _Segment(message.links, nbytes, message.key, self._arrived)
            segment.last = begin + nbytes == message.nbytes
            segment.stream = stream
            segment.whole = message
            segment.spans = None if message.spans is None else []
            stream.waiting.append(segment)
        self._fill(stream, time)

    def _fill(self, stream: _Stream, time: float) -> None:
        """Send what the window has room for."""
        while stream.waiting and stream.waiting[0].nbytes <= stream.room:
            segment = stream.waiting.popleft()
            stream.room -= segment.nbytes
            self._instant(time)[1].append(segment)

    def _arrived(self, segment: _Segment, time: float) -> None:
        whole = segment.whole
        segment.stream.room += segment.nbytes
        self._fill(segment.stream, time)
        if segment.spans is not None:
            begun = whole.spans or segment.spans
            whole.spans = [(start, end) for (start, _), (_, end) in zip(begun, segment.spans, strict=True)]
        if segment.last:
            whole.tail = time
            whole.delivered(whole, time)
