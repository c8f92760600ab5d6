"""A second, plain implementation of the fifo rule: all transfers at once, one heap, no SimPy.

It shares only its input with the engine, so that agreement is significant.
"""

import heapq
from collections import Counter, defaultdict, deque
from dataclasses import dataclass, field
from math import inf

from ringside.sim.schedule import Schedule
from ringside.topologies import Routes, Topology

DELIVERED, ARRIVED = 0, 1


Flow = tuple[float, float, float]
"""Bytes/s from one moment to another."""


@dataclass
class Transfer:
    src: int
    dst: int
    channel: int
    chunks: range
    nbytes: int
    reduce: bool
    key: tuple[int, int, int, int] = (0, 0, 0, 0)
    missing: int = 0
    waiters: "list[Transfer]" = field(default_factory=list)
    ready: float = 0.0
    pieces: int = 0
    complete: float = -1.0


@dataclass
class Piece:
    """A message, or a part of one, and how it comes to its next link; all at once where ``flows`` is None."""

    transfer: Transfer
    nbytes: int
    flows: list[Flow] | None = None
    tail: float = 0.0


@dataclass
class Link:
    """Who has carried what: ``used`` are the flows of all messages so far."""

    bandwidth: float
    latency: float
    free: float = 0.0
    used: list[Flow] = field(default_factory=list)

    def occupy(self, piece: Piece, at: float) -> float:
        """Serve one message after another, as on equally fast links."""
        start = max(at, self.free)
        self.free = start + piece.nbytes / self.bandwidth
        piece.tail = max(self.free, piece.tail) + self.latency
        return start

    def carry(self, piece: Piece, at: float) -> float:
        """Carry a message with the remaining bandwidth; return when its first byte leaves."""
        self.used = [flow for flow in self.used if flow[1] > at]
        # what counts as simultaneous may have been put before it although it begins a trifle later
        at = max(at, min((flow[0] for flow in self.used), default=at))
        coming = piece.flows or []
        waiting = float(piece.nbytes) if piece.flows is None else 0.0
        moments = sorted({at, *(t for flow in [*coming, *self.used] for t in flow[:2] if t > at)})
        through: list[Flow] = []
        for begin, end in zip(moments, [*moments[1:], inf], strict=True):
            room = self.bandwidth - sum(rate for a, b, rate in self.used if a <= begin < b)
            room = room if room > 1e-12 * self.bandwidth else 0.0
            rate = sum(rate for a, b, rate in coming if a <= begin < b)
            if waiting:
                empty = begin + waiting / (room - rate) if room > rate else inf
                through.append((begin, min(empty, end), room))
                waiting = 0.0 if empty <= end else waiting + (rate - room) * (end - begin)
                begin = min(empty, end)
            if begin < end < inf and rate:
                passed = rate if rate <= room * (1 + 1e-12) else room
                through.append((begin, end, passed))
                waiting = (rate - passed) * (end - begin)
            elif not waiting and end == inf:
                break
        through = [flow for flow in through if flow[1] > flow[0] and flow[2]]
        first_room = min((t for t in moments if self._room(t)), default=at)
        start = through[0][0] if through else first_room
        piece.tail = max(piece.tail, through[-1][1] if through else start)
        self.used += through
        piece.flows = [(a + self.latency, b + self.latency, rate) for a, b, rate in through]
        piece.tail += self.latency
        return start

    def _room(self, time: float) -> bool:
        busy = sum(rate for a, b, rate in self.used if a <= time < b)
        return self.bandwidth - busy > 1e-12 * self.bandwidth


def transfers_of(schedule: Schedule) -> list[Transfer]:
    """Return every transfer in program order, with its dependencies on earlier steps."""
    found: list[Transfer] = []
    writers: dict[tuple[int, int], list[Transfer]] = defaultdict(list)
    connections: dict[tuple[int, int, int], int] = {}
    for moved in schedule.steps():
        now = [
            Transfer(int(src), int(dst), int(channel), range(chunk, chunk + span), int(size), bool(reduce))
            for src, dst, channel, chunk, span, size, reduce in zip(
                moved.src,
                moved.dst,
                moved.channel,
                moved.chunk.tolist(),
                moved.span.tolist(),
                schedule.nbytes(moved),
                moved.reduce,
                strict=True,
            )
        ]
        for transfer in now:
            number = connections.setdefault((transfer.src, transfer.dst, transfer.channel), len(connections))
            transfer.key = (transfer.src, number, len(found))
            found.append(transfer)
            before = {id(w): w for c in transfer.chunks for w in writers[transfer.src, c]}
            transfer.missing = len(before)
            for writer in before.values():
                writer.waiters.append(transfer)
        for transfer in now:
            for chunk in transfer.chunks:
                writers[transfer.dst, chunk].append(transfer)
    return found


class Simulation:
    """One run; after `run` every transfer knows when its chunks were complete at the receiver."""

    def __init__(self, schedule: Schedule, graph: Topology, gamma: float = 0.0) -> None:
        self.transfers = transfers_of(schedule)
        self.gamma = gamma
        self.events: list[tuple[float, int, tuple[int, int, int, int], int, int, Piece]] = []
        self.number = 0
        self.adder_free: dict[int, float] = defaultdict(float)
        self.credits: dict[tuple[int, int], int] = defaultdict(lambda: schedule.credits)
        self.clear: dict[tuple[int, int], float] = defaultdict(float)
        self.waiting: dict[tuple[int, int], deque[Transfer]] = defaultdict(deque)
        links = {(a, b): Link(data["bandwidth"], data["latency"]) for a, b, data in graph.edges(data=True)}
        self.counts = Counter(transfer.key[:2] for transfer in self.transfers)
        self.after = schedule.after
        self.to_come = Counter((transfer.src, transfer.dst) for transfer in self.transfers)
        self.later: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
        """The connections that wait for all of a pair of ranks."""
        for connection, pair in {t.key[:2]: (t.src, t.dst) for t in self.transfers}.items():
            if pair in self.after:
                self.later[self.after[pair]].append(connection)
        routes = Routes(graph)
        self.paths = {
            (t.src, t.dst): [links[hop] for hop in routes.route(t.src, t.dst)] for t in self.transfers
        }
        used = {id(link): link for path in self.paths.values() for link in path}
        self.ample = {number for number, link in used.items() if self.is_ample(link)}
        there = [link for number, link in used.items() if number not in self.ample]
        there += [link for link in links.values() if link.latency]
        alike = len({(link.bandwidth, link.latency) for link in there}) <= 1
        self.simultaneous = 0.0 if alike else 1e-8
        self.carry = Link.occupy if alike else Link.carry
        self.cut = {pair for pair, path in self.paths.items() if any(map(self.crowded, path[1:-1]))}

    def crowded(self, link: Link) -> bool:
        """Return whether the ports on both sides of a link exceed its bandwidth."""
        over = [path for path in self.paths.values() if any(link is inner for inner in path[1:-1])]
        return all(
            1.01 * link.bandwidth < sum({id(path[end]): path[end].bandwidth for path in over}.values())
            for end in (0, -1)
        )

    def is_ample(self, link: Link) -> bool:
        """Return whether traffic never waits for a link: the ports on one side exceed no link from it to
        them.
        """
        return self.is_wide(link, 0) or self.is_wide(link, -1)

    def is_wide(self, link: Link, end: int) -> bool:
        if any(link is port for path in self.paths.values() for port in (path[0], path[-1])):
            return False
        ports: dict[int, float] = {}
        for path in self.paths.values():
            place = next((place for place, inner in enumerate(path) if inner is link), None)
            if place is not None:
                ports[id(path[end])] = path[end].bandwidth
                between = path[1:place] if end == 0 else path[place + 1 : -1]
                if not all(self.is_wide(other, end) for other in between):
                    return False
        return sum(ports.values()) <= link.bandwidth * (1 + 1e-8)

    def run(self) -> float:
        for transfer in self.transfers:
            self.waiting[transfer.key[:2]].append(transfer)
        for connection in self.waiting:
            self.advance(connection, 0.0)
        while self.events:
            first = self.events[0][0]
            until, now = first + min(first * self.simultaneous, 1e-9), []
            while now or (self.events and self.events[0][0] <= until):
                while self.events and self.events[0][0] <= until:
                    time, *event = heapq.heappop(self.events)
                    heapq.heappush(now, (*event[:4], time, event[4]))
                what, _, hop, _, time, piece = heapq.heappop(now)
                self.happen(time, what, hop, piece)
        assert all(t.complete >= 0 for t in self.transfers), "the schedule never ends"
        return max((t.complete for t in self.transfers), default=0.0)

    def happen(self, time: float, what: int, hop: int, piece: Piece) -> None:
        if what == ARRIVED:
            self.arrive(piece, hop, time)
        elif hop == 0:
            self.received(piece.transfer, time)
        else:
            self.added(piece.transfer, time)

    def post(self, time: float, what: int, piece: Piece, hop: int) -> None:
        self.number += 1
        heapq.heappush(self.events, (time, what, piece.transfer.key, hop, self.number, piece))

    def advance(self, connection: tuple[int, int], time: float) -> None:
        self.clear[connection] = max(self.clear[connection], time)
        queue = self.waiting[connection]
        early = self.after.get((queue[0].src, queue[0].dst)) if queue else None
        if early is not None and self.to_come[early]:
            return
        while queue and not queue[0].missing and self.credits[connection]:
            self.credits[connection] -= 1
            transfer = queue.popleft()
            start = max(self.clear[connection], transfer.ready)
            most = transfer.nbytes or 1
            if (transfer.src, transfer.dst) in self.cut:
                most = -(-most // -(-16 // self.counts[connection]))
            sizes = [min(most, transfer.nbytes - done) for done in range(0, transfer.nbytes, most)] or [0]
            transfer.pieces = len(sizes)
            for size in sizes:
                self.post(start, ARRIVED, Piece(transfer, size), 0)

    def arrive(self, piece: Piece, hop: int, time: float) -> None:
        path = self.paths[piece.transfer.src, piece.transfer.dst]
        if id(path[hop]) in self.ample:
            start, latency = time, path[hop].latency
            piece.tail += latency
            piece.flows = [(a + latency, b + latency, rate) for a, b, rate in piece.flows or []] or None
        else:
            start = self.carry(path[hop], piece, time)
        if hop + 1 < len(path):
            self.post(start + path[hop].latency, ARRIVED, piece, hop + 1)
        else:
            self.post(piece.tail, DELIVERED, piece, 0)

    def received(self, transfer: Transfer, time: float) -> None:
        transfer.pieces -= 1
        if transfer.pieces:
            return
        connection, pair = transfer.key[:2], (transfer.src, transfer.dst)
        self.to_come[pair] -= 1
        if not self.to_come[pair]:
            for later in self.later[pair]:
                self.advance(later, time)
        self.credits[connection] += 1
        self.advance(connection, time)
        if transfer.reduce and self.gamma:
            start = max(time, self.adder_free[transfer.dst])
            done = self.adder_free[transfer.dst] = start + self.gamma * transfer.nbytes
            self.post(done, DELIVERED, Piece(transfer, 0), 1)
        else:
            self.added(transfer, time)

    def added(self, transfer: Transfer, time: float) -> None:
        transfer.complete = time
        for waiter in transfer.waiters:
            waiter.missing -= 1
            waiter.ready = max(waiter.ready, time)
            self.advance(waiter.key[:2], time)


def simulate(schedule: Schedule, graph: Topology, gamma: float = 0.0) -> float:
    """Return the seconds from the start to the last completion."""
    return Simulation(schedule, graph, gamma).run()
