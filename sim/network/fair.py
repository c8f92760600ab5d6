"""How links serve messages that share them: the one file that holds the ``fair`` rule.

A message is a flow. It sets out, pays the latency of its whole route, and then crosses all links of the route
at one rate until its bytes are through. The flows of a moment share the links max-min fairly
(`ringside.sim.network.maxmin`), so none waits for another, and a change of one affects all that share with it
at once. This is the fluid model of simulators such as SimGrid, whose CM02 it is if all latencies are equal;
see docs/model.md.

A connection is one flow at a time, as a queue pair or a TCP connection is: its messages set out when they are
sent, so latencies overlap, and their bytes cross one after another. A message of no bytes arrives when its
latency is over and the one before it is through.

A topology's ``window`` bounds the bytes under way from one rank to another, and so their rate: it is a
further link of window / latency bytes/s that their flows share. Its ``segment`` has no effect in a fluid
model.

At one instant deliveries come first, the smaller key first, with their effects at that instant; then all
flows that begin or end do so together. Their order makes no difference. Moments that differ in their ninth
digit are one instant, in which each event keeps its own time: where a rank adds data from several others,
that digit does not decide which it adds first.
"""

from collections import deque
from collections.abc import Iterable
from heapq import heappop, heappush
from math import floor, inf

from ringside.sim.clock import AT_MOST_S, LONG_S, SIMULTANEOUS, Clock, seconds, since, ticks
from ringside.sim.network.load import load_of
from ringside.sim.network.maxmin import LinkSharing
from ringside.sim.network.message import Message
from ringside.topologies import Routes, Topology
from ringside.topologies.graph import Hop


class _Stream(tuple[int, ...]):
    """A connection's route, and its messages whose latency is over; the first one is on the links."""

    latency: float
    number: int
    """Among the streams of the links' `LinkSharing`."""
    since: float
    """When the first message came onto the links, in its own seconds."""
    waiting: deque[Message]


class FairNetwork:
    """The links of one topology during one simulation, under the ``fair`` rule.

    Flows on the links count in seconds since a common, recent origin: that of the message that found them
    idle, and from then on whole seconds later.
    """

    def __init__(self, env: Clock, graph: Topology, routes: Routes | None = None) -> None:
        self._env = env
        self.routes = routes or Routes(graph)
        self.link_names = [f"{a} -> {b}" for a, b in graph.edges]
        self._number = {hop: number for number, hop in enumerate(graph.edges)}
        self._latency = [link["latency"] for _, _, link in graph.edges(data=True)]
        bandwidths = [link["bandwidth"] for _, _, link in graph.edges(data=True)]
        self._sharing = LinkSharing(bandwidths)
        self._load = load_of(self.link_names, bandwidths)
        self._window: float = graph.graph.get("window", inf)
        self._windows: dict[tuple[int, ...], int] = {}
        self._streams: list[_Stream] = []
        self._starts: list[tuple[int, int, int, Message]] = []
        self._deliveries: list[tuple[int, int, int, Message]] = []
        self._count = 0
        self._origin = 0
        self._young = 0
        """The latest origin of flows put on the links: a share of the time since then counts as no time."""
        self._next = inf

    def over(self, route: Iterable[Hop], job: int = 0) -> tuple[int, ...]:
        """Return the numbers of a route's links, in order; the connection's messages use this tuple."""
        stream = _Stream(self._number[hop] for hop in route)
        stream.latency = sum(self._latency[link] for link in stream)
        links: tuple[int, ...] = stream
        if stream.latency and self._window < inf:
            if links not in self._windows:
                self._windows[links] = self._sharing.add_link(self._window / stream.latency)
            links = (*links, self._windows[links])
        stream.number = self._sharing.open(links)
        stream.waiting = deque()
        self._streams.append(stream)
        return stream

    def send(self, message: Message, time: float) -> None:
        """Put a message on its way now, at ``time``: its bytes may cross when its latency is over."""
        assert isinstance(message.links, _Stream)
        self._put(self._starts, message, time + message.links.latency)

    def deliver(self, message: Message, time: float) -> None:
        """Call ``message.delivered`` at ``time``, in its order among that instant's deliveries."""
        self._put(self._deliveries, message, time)

    def backlog_s(self, hop: Hop) -> float:
        """Return 0: messages never wait for a shared link."""
        return 0.0

    def _put(self, heap: list[tuple[int, int, int, Message]], message: Message, time: float) -> None:
        message.at = time
        self._count += 1
        tick = message.origin + ticks(time)
        heappush(heap, (tick, message.key, self._count, message))
        self._wake(tick)

    def _wake(self, tick: int) -> None:
        """Wake the network at this moment at the latest."""
        if tick < self._next:
            self._next = tick
            self._env.at_last(tick, lambda: self._happen(tick))

    def _time(self, tick: int) -> float:
        """Return seconds since the origin, which moves when they are many."""
        time = seconds(tick - self._origin)
        if time >= LONG_S:
            whole = float(floor(time))
            self._sharing.move_origin(whole)
            self._origin += ticks(whole)
            time -= whole
        return time

    def _happen(self, tick: int) -> None:
        if tick != self._next:  # an earlier event replaced this one
            return
        self._next = -inf
        time = self._time(tick)
        age = seconds(max(tick - self._young, 0))
        simultaneous = min(age * SIMULTANEOUS, AT_MOST_S)
        until = tick + ticks(simultaneous)
        if self._sharing.next_end <= time + simultaneous:
            for number in self._sharing.ending:
                through = self._streams[number]
                end = since(self._origin, self._sharing.end_of(number), through.waiting[0].origin)
                self._finish(through, end)
        due: list[tuple[int, int, Message]] = []
        while True:
            while self._deliveries and self._deliveries[0][0] <= until:
                heappush(due, heappop(self._deliveries)[1:])
            if due:
                message = heappop(due)[-1]
                message.delivered(message, message.at)
            elif self._starts and self._starts[0][0] <= until:
                message = heappop(self._starts)[-1]
                stream = message.links
                assert isinstance(stream, _Stream)
                stream.waiting.append(message)
                if len(stream.waiting) == 1:
                    self._carry(stream, message.at)
            else:
                break
        time = self._time(tick)
        self._sharing.settle(time, time - seconds(tick - self._young))
        self._next = inf
        for heap in (self._starts, self._deliveries):
            if heap:
                self._wake(heap[0][0])
        if self._sharing.next_end < inf:
            self._wake(self._origin + ticks(self._sharing.next_end))

    def _carry(self, stream: _Stream, time: float) -> None:
        """Put a stream's first message on its links; one without bytes is through at once."""
        message = stream.waiting[0]
        stream.since = time
        self._young = max(self._young, message.origin)
        if message.nbytes and stream:
            if self._sharing.is_idle:
                self._origin = message.origin
                self._time(self._env.tick)
            self._sharing.begin(stream.number, message.nbytes, since(message.origin, time, self._origin))
        else:
            self._finish(stream, time)

    def _finish(self, stream: _Stream, time: float) -> None:
        """Deliver the message that is through, and let the next one of its stream cross."""
        message = stream.waiting.popleft()
        message.tail = time
        if self._load is not None:
            for link in stream:
                self._load.take(link, message.nbytes, 0.0, since(message.origin, time, 0))
        if message.spans is not None:
            message.spans.extend((stream.since, time) for _ in stream)
        self._put(self._deliveries, message, time)
        if stream.waiting:
            self._carry(stream, since(message.origin, time, stream.waiting[0].origin))
        else:
            self._sharing.end(stream.number)
