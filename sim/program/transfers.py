"""Collectives that have schedules, and messages: transfer by transfer on one shared network.

A member of a collective takes part from its own arrival to its own last transfer. Its sends may leave once it
has arrived; its receives once the sender is notified of that, which with Gloo takes the time that Gloo's
collectives need to begin. Likewise a message leaves when the sender has posted it and is notified of the
receive. With Gloo that notice takes one latency, and queues behind earlier messages from the same rank to the
same one in the same group: they share one socket (gloo/transport/tcp/pair.cc). Where connections have a
``window`` their segments stand in the host's port, and notices of receives and arrivals queue behind them.
"""

from collections.abc import Callable
from functools import partial

from ringside.sim.clock import GRAIN, Clock, ticks
from ringside.sim.effort import consider
from ringside.sim.engine.events import Execution
from ringside.sim.engine.timeline import Timeline
from ringside.sim.libraries.library import ROUNDING, Library
from ringside.sim.libraries.scheduled import Scheduled
from ringside.sim.network.message import Message, Network
from ringside.sim.program.operations import BARRIERS, Call, Group
from ringside.sim.program.simulate import Meeting, Parcel, Signal
from ringside.topologies import Routes, Topology, ranks
from ringside.topologies.graph import Hop

EVEN = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
"""Collectives in which every rank does the same, so that all end together, or nearly so."""


class Transfers:
    """The network of one simulation. ``hosts`` are the cluster's ranks that carry each rank of the job.

    ``library_of`` is the library bound to a group's ranks. A collective that is ``alone``, so that nothing
    else can use its links, takes the library's own time if all members arrive at once. If receives are
    ``announced`` the sender is notified of them later.
    """

    def __init__(
        self,
        env: Clock,
        network: Network,
        graph: Topology,
        hosts: tuple[int, ...],
        library_of: Callable[[Group], Scheduled],
        *,
        job: int = 0,
        alone: bool,
        announced: bool,
    ) -> None:
        self.env = env
        self.network = network
        self.graph = graph
        self.hosts = hosts
        self.library_of = library_of
        self.job = job
        self.alone = alone
        self._announced = announced
        self._ahead: dict[Call, list[float]] = {}
        self._parts: dict[Meeting, _Parts] = {}
        self._nodes = ranks(graph)
        self._links: dict[tuple[int, int], tuple[int, ...]] = {}
        self._sockets: dict[tuple[Group, int, int], list[Signal]] = {}

    def arrive(self, meeting: Meeting, rank: int) -> None:
        """Add an arrived rank to a collective."""
        parts = self._parts.get(meeting)
        if parts is None:
            parts = self._parts[meeting] = _Parts(self, meeting)
        parts.come(rank)
        if not meeting.missing:
            del self._parts[meeting]

    def announce(self, group: Group, dst: int, src: int) -> Signal:
        """Notify the sender of a receive, behind what its rank is sending to it."""
        word = Signal()
        under_way = self._sockets.get((group, dst, src), ())
        if not self._announced:
            word.happen()
        elif under_way:
            under_way[-1].then(word.happen)
        else:
            seconds = self._latency(self.hosts[dst], self.hosts[src])

            # messages sent at this moment reach the port at its end
            def leave() -> None:
                later(self.env, seconds + self.port_s(dst), word.happen)

            self.env.at_last(self.env.tick, leave, turn=1)
        return word

    def send(self, parcel: Parcel) -> None:
        """Put a message on the network as soon as its sender is notified of the receive."""
        src, dst = self.hosts[parcel.src], self.hosts[parcel.dst]
        if (src, dst) not in self._links:
            self._links[src, dst] = self.network.over(self.network.routes.route(src, dst), self.job)
        links, key = self._links[src, dst], src << 64 | parcel.key
        socket = self._sockets.setdefault((parcel.group, parcel.src, parcel.dst), [])
        passed = Signal()

        def arrived() -> None:
            socket.remove(passed)
            passed.happen()
            parcel.deliver()

        def delivered(message: Message, time: float) -> None:
            at(self.env, message.origin + ticks(time), arrived)

        def leave() -> None:
            socket.append(passed)
            message = Message(links, parcel.nbytes, key, delivered)
            message.origin = self.env.tick
            self.network.send(message, 0.0)

        parcel.word.then(leave)

    def port_s(self, rank: int) -> float:
        """Return the seconds for which a rank's sends occupy its host's ports, ahead of a notice."""
        if "window" not in self.graph.graph:
            return 0.0
        ports = self.graph.out_edges(self._nodes[self.hosts[rank]])
        return max((self.network.backlog_s(port) for port in ports), default=0.0)

    def ahead(self, library: Scheduled, call: Call) -> list[float]:
        """Return the seconds before the end at which each member is done, where the library simulates it."""
        if call not in self._ahead:
            collective, ahead = call.collective, [0.0] * len(call.group.ranks)
            candidate = library.choose(collective)
            if library.time(collective, candidate).engine == "simpy":
                ahead = _ahead(library.time(collective, candidate, "simpy", traced=True).timeline)
            self._ahead[call] = ahead
        return self._ahead[call]

    def _latency(self, src: int, dst: int) -> float:
        hops = self.network.routes.route(src, dst)
        latencies: list[float] = [self.graph.edges[hop]["latency"] for hop in hops]
        return sum(latencies)


class _Parts:
    """The members' parts in one collective."""

    def __init__(self, owner: Transfers, meeting: Meeting) -> None:
        self._owner = owner
        self._meeting = meeting
        self._library = owner.library_of(meeting.call.group)
        self._place = {rank: place for place, rank in enumerate(meeting.call.group.ranks)}
        self._came: list[int] = []
        self._execution: Execution | None = None
        call = meeting.call
        self._barrier = call.name in BARRIERS and self._library.barrier_s() is not None
        if not self._barrier and owner.alone and call.collective.kind in EVEN:
            later(owner.env, 0.0, self._begin)
        elif not self._barrier:
            self._play()

    def come(self, rank: int) -> None:
        """Handle a rank's arrival."""
        self._came.append(rank)
        if self._execution is not None:
            self._open(self._execution, rank)
        elif self._barrier and not self._meeting.missing:
            later(self._owner.env, time_of(self._library, self._meeting.call), self._end)

    def _begin(self) -> None:
        """Begin, once all that arrive at the moment of the first have arrived."""
        if self._meeting.missing:
            self._play()
        else:
            owner, call = self._owner, self._meeting.call
            seconds = time_of(self._library, call)
            for place, ahead in enumerate(owner.ahead(self._library, call)):
                later(owner.env, seconds - ahead, partial(self._leave, place))

    def _end(self) -> None:
        for place in range(len(self._place)):
            self._leave(place)

    def _leave(self, place: int) -> None:
        self._meeting.leave(self._meeting, self._meeting.call.group.ranks[place])

    def _play(self) -> None:
        owner, call = self._owner, self._meeting.call
        plan = self._library.schedule(call.collective, self._library.choose(call.collective))
        consider(plan, owner.graph)
        hosts = tuple(owner.hosts[rank] for rank in call.group.ranks)
        self._execution = Execution(
            owner.env, owner.network, plan, routes=_RoutesOf(owner.network.routes, hosts), hosts=hosts,
            job=owner.job, left=self._left,
        )  # fmt: skip
        self._execution.start()
        for rank in self._came:
            self._open(self._execution, rank)

    def _open(self, execution: Execution, rank: int) -> None:
        place = self._place[rank]
        collective = self._meeting.call.collective
        announced = self._library.launch_s(collective) + self._owner.port_s(rank)
        execution.may_send(place)
        later(self._owner.env, announced, lambda: execution.may_receive(place))

    def _left(self, place: int, tick: int) -> None:
        at(self._owner.env, tick, partial(self._leave, place))


class _RoutesOf(Routes):
    """The routes between some of a cluster's ranks, by their places among these."""

    def __init__(self, routes: Routes, hosts: tuple[int, ...]) -> None:
        self._whole = routes
        self._hosts = hosts

    def route(self, src: int, dst: int) -> tuple[Hop, ...]:
        """Return the links between two ranks."""
        return self._whole.route(self._hosts[src], self._hosts[dst])

    def to_switch(self, rank: int, joined: tuple[int, ...]) -> tuple[Hop, ...]:
        """Return the links up to the switch that joins some ranks."""
        return self._whole.to_switch(self._hosts[rank], tuple(self._hosts[one] for one in joined))

    def from_switch(self, joined: tuple[int, ...], rank: int) -> tuple[Hop, ...]:
        """Return the links down from the switch."""
        return self._whole.from_switch(tuple(self._hosts[one] for one in joined), self._hosts[rank])


def time_of(library: Library, call: Call) -> float:
    """Return the seconds of a collective alone, by the library's own choice, or of its barrier."""
    if call.name in BARRIERS and (seconds := library.barrier_s()) is not None:
        return seconds
    return library.time(call.collective, library.choose(call.collective)).time_s


def _ahead(timeline: Timeline | None) -> list[float]:
    assert timeline is not None
    ends = [0.0] * timeline.ranks
    for one in timeline.transfers:
        for rank in (one.src, one.dst):
            ends[rank] = max(ends[rank], one.delivered)
    last = max(ends)
    return [last - end if end < last * (1 - ROUNDING) else 0.0 for end in ends]


def later(env: Clock, seconds: float, do: Callable[[], None]) -> None:
    """Run an action after ``seconds``."""
    env.timeout(seconds).callbacks.append(lambda _: do())


def at(env: Clock, tick: int, do: Callable[[], None]) -> None:
    """Run an action at a moment, rounded up to the next grain, or now if it is past."""
    env.at(-(-tick // GRAIN) * GRAIN).callbacks.append(lambda _: do())
