"""How links serve messages: the one file that holds the ``fifo`` rule.

A message is a stream of bytes. At its first link all of it is there at once; at each further link it arrives
as it left the one before, the link's latency later. A link, one direction of a cable, carries at most its
bandwidth, serves messages in the order in which their heads arrive, and never idles while data wait: a
message is carried as fast as its bytes arrive, with the bandwidth that earlier messages leave. So a message
fed by a slow link uses only its own rate of a fast one, and the rest carries others at the same time. A
message is delivered when its last byte has passed the last link. It pays every latency once and the narrowest
link once: cut-through, not store-and-forward. Switches queue at their outputs: waiting for a busy link does
not hold up the link before it. Where all links are equally fast a link is busy with one message after
another.

That is a network of whole messages, the textbook's. A topology with a ``segment`` and a ``window`` (see
`ringside.topologies.graph`) has a transport such as TCP above its links. A message then crosses it in
segments, and between one rank and another at most a window of bytes is under way: the next segment sets out
when an earlier one has arrived, which the sender learns at no cost. Messages that share a port so take turns
segment by segment, and the queue at a port is at most a window for each pair of ranks, whatever their volume.
A segment is a packet: it keeps each link busy at that link's rate.

Events of one instant happen in a fixed order: deliveries before arrivals of heads, and of two of a kind the
one with the smaller key, which is (source rank, connection, place in the connection's order). Between the
two, in the same order, messages queue with their ranks' other data in segments. Events caused in that instant
join those that still wait there.
"""

from bisect import insort
from collections import deque
from collections.abc import Iterable
from heapq import heappop, heappush
from math import inf
from operator import attrgetter

from ringside.sim.clock import AT_MOST_S, SIMULTANEOUS, TICKS, Clock, seconds, since, ticks
from ringside.sim.network.load import Crowding, load_of
from ringside.sim.network.message import Message, Rates
from ringside.topologies import Routes, Topology
from ringside.topologies.graph import Hop

_by_key = attrgetter("key")

_Instant = tuple[list[Message], list[Message], list[Message]]
"""Messages delivered at one moment, messages whose heads arrive, and messages to be cut into segments."""

_ROUNDING = 1e-12
"""Rates that differ by no more than this share are one rate."""


class _Segment(Message):
    __slots__ = ("last", "stream", "whole")

    last: bool
    stream: "_Stream"
    whole: Message


class _Way(tuple[int, ...]):
    """The numbers of a route's links, and their use by its job's routes."""

    crowding: Crowding


class _Stream:
    """The segments from one rank to another: those that wait, and the window left for more."""

    __slots__ = ("room", "waiting")

    def __init__(self, window: float) -> None:
        self.room = window
        self.waiting: deque[_Segment] = deque()


class _Link:
    """One direction of a cable, and the bandwidth that its messages leave.

    Nothing is left before ``free``, all of it from then on; where ``partly`` is set it gives the remaining
    rate over time instead, and nothing is left before. Moments count from the ``origin`` of its last message.
    """

    __slots__ = ("bandwidth", "free", "latency", "origin", "partly")

    def __init__(self, bandwidth: float, latency: float) -> None:
        self.bandwidth = bandwidth
        self.latency = latency
        self.free = 0.0
        self.partly: Rates | None = None
        self.origin = 0

    @property
    def idle(self) -> int:
        """The tick from which on all of its bandwidth is left."""
        return self.origin + ticks(self.free if self.partly is None else self.partly[-1][0])

    def _count_from(self, origin: int) -> None:
        self.free = since(self.origin, self.free, origin)
        if self.partly is not None:
            self.partly = [(since(self.origin, moment, origin), rate) for moment, rate in self.partly]
        self.origin = origin

    def transmit(self, message: Message) -> float:
        """Carry a message whose head arrives as fast as it comes; return when its first byte leaves.

        Afterwards its rate and its tail are those with which it leaves.
        """
        if self.origin != message.origin:
            self._count_from(message.origin)
        at = message.at
        if self.partly is not None and self.partly[-1][0] <= at:
            self.free, self.partly = self.partly[-1][0], None
        if self.partly is not None or message.rates is not None:
            return self._share(message)
        if message.rate >= self.bandwidth or not message.nbytes:
            start = at if at > self.free else self.free
            self.free = end = start + message.nbytes / self.bandwidth
            if end > message.tail:
                message.tail = end
            message.rate = self.bandwidth
            return start
        if self.free <= at:
            self.partly = [(at, self.bandwidth - message.rate), (message.tail, self.bandwidth)]
            return at
        return self._share(message)

    def _share(self, message: Message) -> float:
        time = message.at
        left = self.partly or [(self.free, self.bandwidth)]
        if not message.nbytes:
            message.tail = max(time, left[0][0], message.tail)
            return max(time, left[0][0])
        rates = message.rates or [(time, message.rate), (message.tail, 0.0)]
        if message.rate == inf or rates[-1][0] <= time:
            leaving, rest = _pass([(time, 0.0)], message.nbytes, left, time)
        else:
            leaving, rest = _pass(rates, 0.0, left, time)
        self.free, self.partly = (rest[0][0], None) if len(rest) == 1 else (0.0, rest)
        if not leaving:  # earlier than moments can resolve
            message.rate, message.rates = inf, None
            message.tail = max(rest[0][0], message.tail)
            return rest[0][0]
        message.rate, message.rates = leaving[0][1], leaving if len(leaving) > 2 else None
        message.tail = max(leaving[-1][0], message.tail)
        return leaving[0][0]


def _pass(rates: Rates, waiting: float, left: Rates, time: float) -> tuple[Rates, Rates]:
    """Pass bytes that arrive at ``rates``, ``waiting`` of them there at ``time``, through a link.

    ``left`` is the rate that others leave of the link, nothing before its first moment. Return the rates at
    which the bytes leave, 0 in the end, and the rate that is left of the link then.
    """
    leaving: Rates = []
    rest: Rates = []
    came, freed = 0, -1
    while freed + 1 < len(left) and left[freed + 1][0] <= time:
        freed += 1
    while True:
        coming = rates[came][1]
        room = left[freed][1] if freed >= 0 else 0.0
        if not waiting and came == len(rates) - 1:
            break
        until = min(
            rates[came + 1][0] if came + 1 < len(rates) else inf,
            left[freed + 1][0] if freed + 1 < len(left) else inf,
        )
        if waiting:
            passing = room
            emptied = time + waiting / (room - coming) if room > coming else inf
        else:
            passing = coming if coming <= room * (1 + _ROUNDING) else room
            emptied = inf
        _then(leaving, time, passing)
        _then(rest, time, room - passing if room - passing > room * _ROUNDING else 0.0)
        if emptied <= until:
            until, waiting = emptied, 0.0
        else:
            waiting = max(waiting + (coming - passing) * (until - time), 0.0)
        time = until
        while came + 1 < len(rates) and rates[came + 1][0] <= time:
            came += 1
        while freed + 1 < len(left) and left[freed + 1][0] <= time:
            freed += 1
    _then(leaving, time, 0.0)
    _then(rest, time, room)
    for moment, room in left[freed + 1 :]:
        _then(rest, moment, room)
    return leaving, rest


def _then(rates: Rates, time: float, rate: float) -> None:
    """Set the rate from ``time`` on; skip a beginning without any."""
    if rates and rates[-1][0] == time:
        rates.pop()
    if rate != (rates[-1][1] if rates else 0.0):
        rates.append((time, rate))


class FifoNetwork:
    """The links of one topology during one simulation, under the ``fifo`` rule."""

    def __init__(self, env: Clock, graph: Topology, routes: Routes | None = None) -> None:
        self._env = env
        self.routes = routes or Routes(graph)
        self.link_names = [f"{a} -> {b}" for a, b in graph.edges]
        self._number = {hop: number for number, hop in enumerate(graph.edges)}
        self._links = [_Link(data["bandwidth"], data["latency"]) for _, _, data in graph.edges(data=True)]
        self._load = load_of(self.link_names, [link.bandwidth for link in self._links])
        self._instants: dict[int, _Instant] = {}
        self._ticks: list[int] = []
        self._until = -1
        self._open: _Instant = ([], [], [])
        self._segment: int = graph.graph.get("segment", 0)
        self._window: float = graph.graph.get("window", inf)
        self._streams: dict[tuple[int, ...], _Stream] = {}
        self._crowding = self._new_crowding()
        self._of_job: dict[int, Crowding] = {}

    def over(self, route: Iterable[Hop], job: int = 0) -> tuple[int, ...]:
        """Return the numbers of a route's links, in order; messages of a job may use them from now on."""
        way = _Way(self._number[hop] for hop in route)
        if not self._segment:
            way.crowding = self._of_job.get(job) or self._of_job.setdefault(job, self._new_crowding())
            way.crowding.add(way)
            self._crowding.add(way)
        return way

    def _new_crowding(self) -> Crowding:
        return Crowding([(link.bandwidth, link.latency) for link in self._links])

    def _crowds(self, way: tuple[int, ...]) -> bool:
        assert isinstance(way, _Way)
        return way.crowding.crowds(way)

    def send(self, message: Message, time: float) -> None:
        """Put the message, or its pieces that fit, on the first of its links at ``time``."""
        if self._segment:
            message.at = time
            self._instant(message)[2].append(message)
        elif message.pieces > 1 and self._crowds(message.links):
            self._send_segments(message, time, -(-message.nbytes // message.pieces))
        else:
            self._arrive(message, time)

    def deliver(self, message: Message, time: float) -> None:
        """Call ``message.delivered`` at ``time``, in its order among that instant's deliveries."""
        message.at = time
        self._instant(message)[0].append(message)

    def backlog_s(self, hop: Hop) -> float:
        """Return the seconds that a link still needs for the data that have arrived."""
        return max(seconds(self._links[self._number[hop]].idle - self._env.tick), 0.0)

    def _arrive(self, message: Message, time: float) -> None:
        message.at = time
        self._instant(message)[1].append(message)

    def _instant(self, message: Message) -> _Instant:
        """Return the instant of a message's next event, which is one SimPy event."""
        tick = message.origin + int(message.at * TICKS)
        if tick <= self._until:
            return self._open
        if tick in self._instants:
            return self._instants[tick]
        instant = self._instants[tick] = ([], [], [])
        heappush(self._ticks, tick)
        self._env.at_last(tick, self._happen)
        return instant

    def _happen(self) -> None:
        now = self._env.tick
        while self._ticks and self._ticks[0] <= now:
            self._play_instant()

    def _play_instant(self) -> None:
        """Play the first events, and all that are simultaneous with them."""
        first = heappop(self._ticks)
        deliveries, arrivals, sent = self._instants.pop(first)
        self._until = first
        if not (self._segment or self._crowding.alike):
            self._until += ticks(min((deliveries or arrivals)[0].at * SIMULTANEOUS, AT_MOST_S))
        while self._ticks and self._ticks[0] <= self._until:
            also = self._instants.pop(heappop(self._ticks))
            deliveries.extend(also[0])
            arrivals.extend(also[1])
            sent.extend(also[2])
        delivered_too, arrived_too, _ = self._open = ([], [], sent)
        deliveries.sort(key=_by_key)
        arrivals.sort(key=_by_key)
        delivered = arrived = 0
        while True:
            while delivered < len(deliveries):
                message = deliveries[delivered]
                delivered += 1
                message.delivered(message, message.at)
                if delivered_too:
                    _join(deliveries, delivered, delivered_too)
            if sent:
                self._cut_up(sent)
            if arrived_too:
                _join(arrivals, arrived, arrived_too)
            if arrived == len(arrivals):
                break
            while arrived < len(arrivals) and not (delivered_too or arrived_too):
                self._take_link(arrivals[arrived])
                arrived += 1
            if delivered_too:
                _join(deliveries, delivered, delivered_too)
        self._until = -1

    def _cut_up(self, sent: list[Message]) -> None:
        for message in sorted(sent, key=_by_key):
            self._send_segments(message, message.at, self._segment)
        sent.clear()

    def _take_link(self, message: Message) -> None:
        """Give a link to a message whose head has arrived, and send the head on."""
        number = message.links[message.hop]
        link = self._links[number]
        start = message.at if self._crowding.is_ample(number) else link.transmit(message)
        if message.spans is not None:
            message.spans.append((start, message.tail))
        if self._load is not None:
            end = since(message.origin, message.tail, 0)
            self._load.take(number, message.nbytes, start - message.at, end)
        latency = link.latency
        message.tail += latency
        if self._segment:
            message.rate = inf
        elif message.rates is not None:
            message.rates = [(moment + latency, rate) for moment, rate in message.rates]
        message.hop += 1
        if message.hop == len(message.links):
            message.at = message.tail
            self._instant(message)[0].append(message)
        else:
            message.at = start + latency
            self._instant(message)[1].append(message)

    def _send_segments(self, message: Message, time: float, size: int) -> None:
        """Put a message's segments, of ``size`` bytes, behind its ranks' earlier data."""
        stream = self._streams.get(message.links)
        if stream is None:
            stream = self._streams[message.links] = _Stream(self._window)
        for begin in range(0, max(message.nbytes, 1), max(size, 1)):
            nbytes = min(size, message.nbytes - begin)
            segment = _Segment(message.links, nbytes, message.key, self._arrived)
            segment.origin = message.origin
            segment.last = begin + nbytes == message.nbytes
            segment.stream = stream
            segment.whole = message
            segment.spans = None if message.spans is None else []
            stream.waiting.append(segment)
        self._fill(stream, message.origin, time)

    def _fill(self, stream: _Stream, origin: int, time: float) -> None:
        """Send what fits into the window at ``time`` after an origin."""
        while stream.waiting and stream.waiting[0].nbytes <= stream.room:
            segment = stream.waiting.popleft()
            stream.room -= segment.nbytes
            self._arrive(segment, since(origin, time, segment.origin))

    def _arrived(self, segment: _Segment, time: float) -> None:
        whole = segment.whole
        segment.stream.room += segment.nbytes
        self._fill(segment.stream, segment.origin, time)
        if segment.spans is not None:
            begun = whole.spans or segment.spans
            whole.spans = [(start, end) for (start, _), (_, end) in zip(begun, segment.spans, strict=True)]
        if segment.last:
            whole.tail = time
            whole.delivered(whole, time)


def _join(waiting: list[Message], begin: int, more: list[Message]) -> None:
    """Insert the events that an instant caused among those that still wait, from place ``begin`` on."""
    if len(more) == 1:
        insort(waiting, more[0], lo=begin, key=_by_key)
    else:
        waiting[begin:] = sorted(waiting[begin:] + more, key=_by_key)
    more.clear()
