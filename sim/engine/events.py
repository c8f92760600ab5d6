"""The SimPy engine: a schedule's transfers played over a network's links.

A transfer is put on the network as soon as its chunks are complete at its source, every earlier transfer of
its connection has been put there, and its connection has a credit left. Steps are taken from the schedule
only when connections run dry, so that memory holds the transfers under way and those that wait, not the whole
schedule.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence

import simpy

from ringside.sim import effort
from ringside.sim.clock import LONG_S, TICKS, Clock, seconds, ticks
from ringside.sim.effort import uncollected
from ringside.sim.engine.gates import Gate, Incoming
from ringside.sim.engine.timeline import LinkSpan, Timeline, TransferSpan
from ringside.sim.engine.wiring import SimulatedCollective, check_ranks, route
from ringside.sim.network.find import make_network
from ringside.sim.network.message import PIECES, Message, Network
from ringside.sim.schedule import Schedule, ScheduleError, Step
from ringside.topologies import Routes, Topology

_LONG = ticks(LONG_S)


class _Connection:
    """An ordered pair of ranks within one channel, and its waiting transfers."""

    __slots__ = (
        "before",
        "clear",
        "credits",
        "dst",
        "held",
        "keys",
        "links",
        "pieces",
        "queue",
        "src",
        "to_arrive",
        "to_come",
    )

    def __init__(
        self, ends: tuple[int, int], keys: int, links: tuple[int, ...], credits: int, to_come: int
    ) -> None:
        self.src, self.dst = ends
        self.keys = keys
        """Above the keys of all its transfers, which end there in program order."""
        self.links = links
        self.credits = credits
        self.queue: deque[_Transfer] = deque()
        self.pieces = -(-PIECES // to_come)
        self.to_come = to_come
        self.to_arrive = to_come
        self.clear = 0
        """The tick at which its latest obstacle ended."""
        self.held = 0
        """Connections that must finish before it, and its own ends that have yet to arrive."""
        self.before: list[_Connection] = []


class _Transfer(Message):
    __slots__ = ("brings", "connection", "missing", "place", "queued", "ready", "step")

    connection: _Connection
    step: Step
    place: int
    missing: int
    """Shut gates before it."""
    ready: int
    """The tick at which the last of them opened."""
    brings: list[Gate]
    queued: int


class Execution:
    """One collective in progress on a network; ``done`` happens when its last transfer is complete.

    Its moments are ticks (see `ringside.sim.clock`), ``end`` too. Its messages' origin is its start; after
    `LONG_S` that moves to a moment with nothing under way. ``gamma`` is a rank's seconds to add one received
    byte to its own; a rank adds one chunk at a time. ``traced`` keeps every transfer for `timeline`.
    ``routes`` locate the schedule's ranks, and ``hosts`` are their ranks of the network, by default its first
    ones; ``job`` is the number of their job. With ``left`` ranks arrive one by one, by `may_send` and
    `may_receive`, and ``left`` is called for each rank at the moment when it has sent and received all.
    """

    def __init__(
        self,
        env: Clock,
        network: Network,
        schedule: Schedule,
        gamma: float = 0.0,
        *,
        traced: bool = False,
        routes: Routes | None = None,
        hosts: Sequence[int] = (),
        job: int = 0,
        left: Callable[[int, int], None] | None = None,
    ) -> None:
        self.done: simpy.Event = env.event()
        self.end = 0
        self.num_transfers = 0
        self._begin = self._origin = 0
        self._under_way = 0
        self._env = env
        self._network = network
        self._schedule = schedule
        self._gamma = gamma
        self._steps: Iterator[Step] = schedule.steps()
        counts = schedule.connections()
        self._to_finish = sum(counts.values())
        ends = dict(enumerate(hosts))
        self._connections = {
            pair: _Connection(
                pair[:2],
                (ends.get(pair[0], pair[0]) << 64) + (number + 1) * self._to_finish,
                network.over(route(schedule, routes or network.routes, *pair), job),
                schedule.credits,
                counts[pair],
            )
            for number, pair in enumerate(counts)
        }
        of_pair: dict[tuple[int, int], list[_Connection]] = {}
        for (src, dst, _), connection in self._connections.items():
            of_pair.setdefault((src, dst), []).append(connection)
        for late, early in schedule.after.items():
            for connection in of_pair.get(late, ()):
                connection.held = len(of_pair.get(early, ()))
                for earlier in of_pair.get(early, ()):
                    earlier.before.append(connection)
        self._left = left
        self._of_rank: list[list[_Connection]] = [[] for _ in range(schedule.ends if left else 0)]
        self._to_move = [0] * len(self._of_rank)
        """Transfers that each rank has yet to send or receive."""
        for connection in self._connections.values() if left else ():
            connection.held += 2
            for rank in (connection.src, connection.dst):
                self._of_rank[rank].append(connection)
                self._to_move[rank] += connection.to_come
        self._incoming = [Incoming() for _ in range(schedule.ends)]
        self._reducer_free = [0] * schedule.ends
        self._traced: list[_Transfer] | None = [] if traced else None

    def start(self) -> None:
        """Begin now, on every rank."""
        self._begin = self._origin = self.end = self._env.tick
        if not self._to_finish:
            self.done.succeed()
        for connection in self._connections.values():
            self._refill(connection)
        for connection in self._connections.values():
            self._advance(connection, self._begin)

    @property
    def time_s(self) -> float:
        """The duration, in seconds."""
        return seconds(self.end - self._begin)

    def may_send(self, rank: int) -> None:
        """Allow an arrived rank to send from now on."""
        if not self._to_move[rank] and self._left:
            self._left(rank, self._env.tick)
        self._come(connection for connection in self._of_rank[rank] if connection.src == rank)

    def may_receive(self, rank: int) -> None:
        """Notify the senders to a rank that it has arrived."""
        self._come(connection for connection in self._of_rank[rank] if connection.dst == rank)

    def _come(self, connections: Iterator[_Connection]) -> None:
        now = self._env.tick
        if not self._under_way:
            self._go_on(now)
        for connection in connections:
            connection.held -= 1
            self._advance(connection, now)

    def _go_on(self, tick: int) -> None:
        """Move the origin after a long time, when nothing is under way."""
        if tick - self._origin >= _LONG:
            self._origin = tick

    def timeline(self, name: str) -> Timeline:
        """Return the timeline of a finished execution."""
        traced = self._traced or []
        for transfer in traced:
            transfer.count_from(self._begin)
        links = [
            LinkSpan(start, end, link, number)
            for number, transfer in enumerate(traced)
            for link, (start, end) in zip(transfer.links, transfer.spans or (), strict=True)
        ]
        return Timeline(
            name,
            self._schedule.ranks,
            self._network.link_names,
            [_span(transfer) for transfer in traced],
            sorted(links),
            len(self._schedule.switches),
        )

    def _advance(self, connection: _Connection, tick: int) -> None:
        """Put the connection's permitted transfers on the network, after an event at ``tick``."""
        if tick > connection.clear:
            connection.clear = tick
        queue = connection.queue
        while queue and connection.credits and not queue[0].missing and not connection.held:
            transfer = queue.popleft()
            connection.credits -= 1
            tick = connection.clear if connection.clear >= transfer.ready else transfer.ready
            if self._traced is not None:
                transfer.queued = tick
                transfer.spans = []
                self._traced.append(transfer)
            self._under_way += 1
            transfer.origin = self._origin
            self._network.send(transfer, (tick - self._origin) / TICKS)
            if not queue and connection.to_come:
                self._refill(connection)

    def _refill(self, connection: _Connection) -> None:
        """Take steps from the schedule until the connection knows its next transfer."""
        while not connection.queue:
            self._take(next(self._steps))

    def _take(self, step: Step) -> None:
        """Queue a step's transfers, each waiting for the data that its source has yet to receive."""
        columns = (step.src, step.dst, step.channel, step.chunk, step.span, self._schedule.nbytes(step))
        received, incoming = self._received, self._incoming
        taken = []
        for place, (src, dst, channel, chunk, span, nbytes) in enumerate(
            zip(*(column.tolist() for column in columns), strict=True)
        ):
            connection = self._connections[src, dst, channel]
            # fewer remaining transfers mean a later place in program order
            key = connection.keys - connection.to_come
            transfer = _Transfer(connection.links, nbytes, key, received)
            transfer.pieces = connection.pieces
            transfer.connection = connection
            transfer.step = step
            transfer.place = place
            transfer.missing = 0
            transfer.ready = 0
            for _, _, gate in incoming[src].over(chunk, chunk + span):
                gate.closed = True
                gate.waiting.append(transfer)
                transfer.missing += 1
            connection.queue.append(transfer)
            connection.to_come -= 1
            taken.append((transfer, dst, chunk, chunk + span))
        for transfer, dst, first, stop in taken:
            transfer.brings = incoming[dst].shut(first, stop)
            for gate in transfer.brings:
                gate.missing += 1

    def _received(self, transfer: _Transfer, time: float) -> None:
        connection = transfer.connection
        tick = transfer.origin + int(time * TICKS)
        if self._under_way == 1:
            self._go_on(tick)
        connection.credits += 1
        connection.to_arrive -= 1
        if not connection.to_arrive:
            for later in connection.before:
                later.held -= 1
                self._advance(later, tick)
        if self._gamma and transfer.step.reduce[transfer.place]:
            rank = int(transfer.step.dst[transfer.place])
            gamma = self._gamma if rank < self._schedule.ranks else 0.0
            begin = seconds(max(tick, self._reducer_free[rank]) - self._origin)
            end = begin + transfer.nbytes * gamma
            self._reducer_free[rank] = self._origin + ticks(end)
            transfer.count_from(self._origin)
            transfer.delivered = self._complete
            self._network.deliver(transfer, end)
        else:
            self._complete(transfer, time)
        if connection.queue:
            self._advance(connection, tick)
        elif tick > connection.clear:
            connection.clear = tick

    def _complete(self, transfer: _Transfer, time: float) -> None:
        """Mark the chunks ready at the receiver and release the transfers that wait for them."""
        self._under_way -= 1
        tick = transfer.origin + int(time * TICKS)
        if tick > self.end:
            self.end = tick
        for gate in transfer.brings:
            gate.missing -= 1
            if tick > gate.ready:
                gate.ready = tick
            if not gate.missing:
                self._open(gate)
        if self._left:
            for rank in (transfer.connection.src, transfer.connection.dst):
                self._to_move[rank] -= 1
                if not self._to_move[rank]:
                    self._left(rank, tick)
        self.num_transfers += 1
        if not self.num_transfers % effort.EVERY:
            effort.show(self.num_transfers, self._to_finish)
        if self.num_transfers == self._to_finish:
            self.done.succeed()

    def _open(self, gate: Gate) -> None:
        """Release a gate's transfers, and the gates that waited only for it."""
        opened = [gate]
        while opened:
            gate = opened.pop()
            tick = gate.ready
            gate.incoming.open(gate)
            for transfer in gate.waiting:
                transfer.missing -= 1
                if tick > transfer.ready:
                    transfer.ready = tick
                if not transfer.missing:
                    self._advance(transfer.connection, tick)
            for behind in gate.behind:
                behind.missing -= 1
                behind.ready = max(behind.ready, tick)
                if not behind.missing:
                    opened.append(behind)


def simulate(
    schedule: Schedule,
    graph: Topology,
    gamma: float = 0.0,
    *,
    traced: bool = False,
    routes: Routes | None = None,
    network: str = "fifo",
) -> SimulatedCollective:
    """Play one schedule alone on a topology and return its time in seconds.

    ``routes`` are the topology's, where already known; ``network`` is how links serve messages.
    """
    check_ranks(schedule, graph)
    effort.consider(schedule, graph)
    env = Clock()
    links = make_network(network, env, graph, routes)
    execution = Execution(env, links, schedule, gamma, traced=traced)
    with uncollected():
        execution.start()
        env.run()
    if not execution.done.triggered:
        raise ScheduleError(f"{schedule.algorithm} {schedule.collective.kind}: transfers wait for each other")
    name = f"{schedule.algorithm} {schedule.collective.kind}"
    timeline = execution.timeline(name) if traced else None
    return SimulatedCollective(execution.time_s, execution.num_transfers, timeline)


def _span(transfer: _Transfer) -> TransferSpan:
    step, place = transfer.step, transfer.place
    queued = seconds(transfer.queued - transfer.origin)
    (sent, left), *_ = transfer.spans or [(queued, queued)]
    return TransferSpan(
        queued=queued,
        sent=sent,
        left=left,
        delivered=transfer.tail,
        src=int(step.src[place]),
        dst=int(step.dst[place]),
        channel=int(step.channel[place]),
        chunk=int(step.chunk[place]),
        span=int(step.span[place]),
        nbytes=transfer.nbytes,
        reduce=bool(step.reduce[place]),
    )
