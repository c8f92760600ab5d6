"""The fifo rule a second time, as plainly as it can be said: all transfers at once, one heap, no SimPy.

It shares nothing with the engine but its input, so that an agreement of both means something.
"""

import heapq
from collections import defaultdict, deque
from dataclasses import dataclass, field

from sim.schedule import Schedule
from topologies import Routes, Topology

DELIVERED, ARRIVED = 0, 1


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
    tail: float = 0.0
    complete: float = -1.0


@dataclass
class Link:
    bandwidth: float
    latency: float
    free: float = 0.0


def transfers_of(schedule: Schedule) -> list[Transfer]:
    """Every transfer, in program order, waiting for all earlier steps' deliveries of its chunks."""
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
        self.events: list[tuple[float, int, tuple[int, int, int, int], int, Transfer]] = []
        self.adder_free: dict[int, float] = defaultdict(float)
        self.credits: dict[tuple[int, int], int] = defaultdict(lambda: schedule.credits)
        self.waiting: dict[tuple[int, int], deque[Transfer]] = defaultdict(deque)
        links = {(a, b): Link(data["bandwidth"], data["latency"]) for a, b, data in graph.edges(data=True)}
        routes = Routes(graph)
        self.paths = {
            (t.src, t.dst): [links[hop] for hop in routes.route(t.src, t.dst)] for t in self.transfers
        }

    def run(self) -> float:
        for transfer in self.transfers:
            self.waiting[transfer.key[:2]].append(transfer)
        for connection in self.waiting:
            self.advance(connection, 0.0)
        while self.events:
            time, what, _, hop, transfer = heapq.heappop(self.events)
            if what == ARRIVED:
                self.arrive(transfer, hop, time)
            elif hop == 0:
                self.received(transfer, time)
            else:
                self.added(transfer, time)
        assert all(t.complete >= 0 for t in self.transfers), "the schedule never ends"
        return max((t.complete for t in self.transfers), default=0.0)

    def advance(self, connection: tuple[int, int], time: float) -> None:
        queue = self.waiting[connection]
        while queue and not queue[0].missing and self.credits[connection]:
            self.credits[connection] -= 1
            transfer = queue.popleft()
            heapq.heappush(self.events, (time, ARRIVED, transfer.key, 0, transfer))

    def arrive(self, transfer: Transfer, hop: int, time: float) -> None:
        path = self.paths[transfer.src, transfer.dst]
        link = path[hop]
        start = max(time, link.free)
        link.free = start + transfer.nbytes / link.bandwidth
        left = max(link.free, transfer.tail)
        transfer.tail = left + link.latency
        if hop + 1 < len(path):
            heapq.heappush(self.events, (start + link.latency, ARRIVED, transfer.key, hop + 1, transfer))
        else:
            heapq.heappush(self.events, (transfer.tail, DELIVERED, transfer.key, 0, transfer))

    def received(self, transfer: Transfer, time: float) -> None:
        connection = transfer.key[:2]
        self.credits[connection] += 1
        self.advance(connection, time)
        if transfer.reduce and self.gamma:
            start = max(time, self.adder_free[transfer.dst])
            done = self.adder_free[transfer.dst] = start + self.gamma * transfer.nbytes
            heapq.heappush(self.events, (done, DELIVERED, transfer.key, 1, transfer))
        else:
            self.added(transfer, time)

    def added(self, transfer: Transfer, time: float) -> None:
        transfer.complete = time
        for waiter in transfer.waiters:
            waiter.missing -= 1
            self.advance(waiter.key[:2], time)


def simulate(schedule: Schedule, graph: Topology, gamma: float = 0.0) -> float:
    """Seconds from the start to the last completion."""
    return Simulation(schedule, graph, gamma).run()
