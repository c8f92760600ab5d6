"""The SimPy engine: a schedule's transfers played over a network's links.

A transfer is put on the network as soon as the chunks that it carries are complete at its source,
every earlier transfer of its connection has been put there, and its connection has a credit left.
Steps are taken from the schedule only as connections run dry, so that memory holds what is on its
way and what waits for it, not the whole schedule.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import simpy

from sim import effort
from sim.network import FifoNetwork, Message
from sim.schedule import Schedule, ScheduleError, Step
from sim.timeline import LinkSpan, Timeline, TransferSpan
from topologies import Topology, ranks
from topologies.graph import name_of


class _Connection:
    """An ordered pair of ranks within one channel, and the transfers that wait to be put on it."""

    __slots__ = ("before", "credits", "held", "links", "number", "queue", "to_arrive", "to_come")

    def __init__(self, number: int, links: tuple[int, ...], credits: int, to_come: int) -> None:
        self.number = number
        self.links = links
        self.credits = credits
        self.queue: deque[_Transfer] = deque()
        self.to_come = to_come
        self.to_arrive = to_come
        self.held = 0
        """Connections that have to be done before it."""
        self.before: list[_Connection] = []


class _Transfer(Message):
    __slots__ = ("brings", "connection", "missing", "place", "queued", "step")

    connection: _Connection
    step: Step
    place: int
    missing: int
    """Gates that are shut before it."""
    brings: "list[_Gate]"
    queued: float


class _Gate:
    """Holds back what needs one chunk at one rank until ``missing`` transfers have brought it up to date.

    A gate that somebody waits for takes no further transfers: those get a gate of their own, which
    waits for this one.
    """

    __slots__ = ("key", "missing", "next", "waiting")

    def __init__(self, key: int) -> None:
        self.key = key
        self.missing = 0
        self.waiting: list[_Transfer] = []
        self.next: _Gate | None = None


class Execution:
    """One collective in progress on a network; ``done`` happens when its last transfer is complete.

    ``gamma`` is what a rank takes to add one received byte to its own, in seconds; a rank adds one
    chunk at a time. ``traced`` keeps every transfer for `timeline`.
    """

    def __init__(
        self,
        env: simpy.Environment,
        network: FifoNetwork,
        schedule: Schedule,
        gamma: float = 0.0,
        *,
        traced: bool = False,
    ) -> None:
        self.done: simpy.Event = env.event()
        self.finished = 0.0
        self.num_transfers = 0
        self._env = env
        self._network = network
        self._schedule = schedule
        self._gamma = gamma
        self._steps: Iterator[Step] = schedule.steps()
        counts = schedule.connections()
        self._connections = {
            pair: _Connection(number, network.route(*pair[:2]), schedule.credits, counts[pair])
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
        self._to_finish = sum(counts.values())
        self._gates: dict[int, _Gate] = {}
        self._reducer_free = [0.0] * schedule.ranks
        self._traced: list[_Transfer] | None = [] if traced else None

    def start(self) -> None:
        """Begin now, on every rank."""
        now = self._env.now
        if not self._to_finish:
            self.finished = now
            self.done.succeed()
        for connection in self._connections.values():
            self._refill(connection)
        for connection in self._connections.values():
            self._advance(connection, now)

    def timeline(self, name: str) -> Timeline:
        """What happened, once it is over."""
        traced = self._traced or []
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
        )

    def _advance(self, connection: _Connection, time: float) -> None:
        """Put on the network what the connection may send."""
        queue = connection.queue
        while queue and connection.credits and not queue[0].missing and not connection.held:
            transfer = queue.popleft()
            connection.credits -= 1
            if self._traced is not None:
                transfer.queued = time
                transfer.spans = []
                self._traced.append(transfer)
            self._network.send(transfer, time)
            if not queue and connection.to_come:
                self._refill(connection)

    def _refill(self, connection: _Connection) -> None:
        """Take steps from the schedule until the connection knows its next transfer."""
        while not connection.queue:
            self._take(next(self._steps))

    def _take(self, step: Step) -> None:
        """Queue a step's transfers, each waiting for what its source has yet to receive."""
        width = len(self._schedule.chunks)
        columns = (step.src, step.dst, step.channel, step.chunk, step.span, self._schedule.nbytes(step))
        taken = []
        for place, (src, dst, channel, chunk, span, nbytes) in enumerate(
            zip(*(column.tolist() for column in columns), strict=True)
        ):
            connection = self._connections[src, dst, channel]
            # the fewer are to come, the later in program order
            key = (
                src * len(self._connections) + connection.number + 1
            ) * self._to_finish - connection.to_come
            transfer = _Transfer(connection.links, nbytes, key, self._received)
            transfer.connection = connection
            transfer.step = step
            transfer.place = place
            transfer.missing = 0
            for source in range(src * width + chunk, src * width + chunk + span):
                gate = self._gates.get(source)
                if gate is not None:
                    gate.waiting.append(transfer)
                    transfer.missing += 1
            connection.queue.append(transfer)
            connection.to_come -= 1
            taken.append((transfer, range(dst * width + chunk, dst * width + chunk + span)))
        for transfer, targets in taken:
            transfer.brings = [self._open_gate(target) for target in targets]
            for gate in transfer.brings:
                gate.missing += 1

    def _open_gate(self, key: int) -> _Gate:
        """The gate that a further transfer to this chunk at this rank belongs to."""
        last = self._gates.get(key)
        if last is not None and not last.waiting:
            return last
        gate = self._gates[key] = _Gate(key)
        if last is not None:
            last.next = gate
            gate.missing = 1
        return gate

    def _received(self, transfer: _Transfer, time: float) -> None:
        connection = transfer.connection
        connection.credits += 1
        connection.to_arrive -= 1
        if not connection.to_arrive:
            for later in connection.before:
                later.held -= 1
                self._advance(later, time)
        if self._gamma and transfer.step.reduce[transfer.place]:
            rank = int(transfer.step.dst[transfer.place])
            begin = max(time, self._reducer_free[rank])
            self._reducer_free[rank] = end = begin + transfer.nbytes * self._gamma
            transfer.delivered = self._complete
            self._network.deliver(transfer, end)
        else:
            self._complete(transfer, time)
        self._advance(connection, time)

    def _complete(self, transfer: _Transfer, time: float) -> None:
        """The chunks are ready at the receiver: whoever waits for them may go."""
        for gate in transfer.brings:
            self._pass(gate, time)
        self.num_transfers += 1
        if not self.num_transfers % effort.EVERY:
            effort.show(self.num_transfers, self._to_finish)
        if self.num_transfers == self._to_finish:
            self.finished = time
            self.done.succeed()

    def _pass(self, gate: _Gate, time: float) -> None:
        """One less is missing at a gate; the last one opens it."""
        gate.missing -= 1
        if gate.missing:
            return
        if self._gates[gate.key] is gate:
            del self._gates[gate.key]
        for transfer in gate.waiting:
            transfer.missing -= 1
            if not transfer.missing:
                self._advance(transfer.connection, time)
        if gate.next is not None:
            self._pass(gate.next, time)


@dataclass(frozen=True)
class Run:
    """The outcome of one simulated collective."""

    time_s: float
    num_transfers: int
    timeline: Timeline | None


def simulate(schedule: Schedule, graph: Topology, gamma: float = 0.0, *, traced: bool = False) -> Run:
    """Play one schedule alone on a topology and say how long it takes, in seconds."""
    if schedule.ranks > len(ranks(graph)):
        raise ValueError(
            f"{schedule.ranks} ranks on {name_of(graph)} with {len(ranks(graph))}; "
            f"write at most that many ranks, or a larger cluster"
        )
    effort.consider(schedule, graph)
    env = simpy.Environment()
    network = FifoNetwork(env, graph)
    execution = Execution(env, network, schedule, gamma, traced=traced)
    execution.start()
    env.run()
    if not execution.done.triggered:
        raise ScheduleError(f"{schedule.algorithm} {schedule.collective.kind}: transfers wait for each other")
    name = f"{schedule.algorithm} {schedule.collective.kind}"
    timeline = execution.timeline(name) if traced else None
    return Run(execution.finished, execution.num_transfers, timeline)


def _span(transfer: _Transfer) -> TransferSpan:
    step, place = transfer.step, transfer.place
    (sent, left), *_ = transfer.spans or [(transfer.queued, transfer.queued)]
    return TransferSpan(
        queued=transfer.queued,
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
