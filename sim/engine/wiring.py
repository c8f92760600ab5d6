"""A schedule's connections on a topology's links, as arrays: the input of the fast engine."""

from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import NDArray

from ringside.sim.clock import SIMULTANEOUS
from ringside.sim.engine.timeline import Timeline
from ringside.sim.network.load import Crowding
from ringside.sim.network.message import PIECES
from ringside.sim.plan import Plan
from ringside.sim.schedule import Schedule
from ringside.sim.streams import TransferStreams
from ringside.topologies import Routes, Topology, ranks
from ringside.topologies.graph import Hop, name_of


@dataclass(frozen=True)
class SimulatedCollective:
    """The outcome of one simulated collective."""

    time_s: float
    num_transfers: int
    timeline: Timeline | None = None
    engine: str = "simpy"


def check_ranks(schedule: Schedule, graph: Topology) -> None:
    """Refuse a schedule of more ranks than the topology has."""
    if schedule.ranks > len(ranks(graph)):
        raise ValueError(
            f"{schedule.ranks} ranks on {name_of(graph)} with {len(ranks(graph))}; "
            f"write at most that many ranks, or a larger cluster"
        )


def route(plan: Plan, routes: Routes, src: int, dst: int, channel: int) -> tuple[Hop, ...]:
    """Return the links from end to end on one channel, in the order in which a message crosses them.

    Raise `ringside.topologies.graph.TopologyError` where the topology has no such switch.
    """
    routes = routes.on(channel)
    if src >= plan.ranks:
        return routes.from_switch(plan.switches[src - plan.ranks], dst)
    if dst >= plan.ranks:
        return routes.to_switch(src, plan.switches[dst - plan.ranks])
    return routes.route(src, dst)


Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Wiring:
    """Connections in order of first use, and the links that they use, numbered in order of first use.

    Connection c has ``count[c]`` transfers and crosses ``links[start[c]:start[c + 1]]``; ``place[c]`` is its
    place among all by source, and by first use. ``column`` is its place in the schedule's streams.
    ``stream[c]`` is the number of its route if it is cut, into ``pieces[c]`` or into segments, else -1.
    """

    src: Ints
    dst: Ints
    channel: Ints
    count: Ints
    column: Ints
    place: Ints
    start: Ints
    links: Ints
    bandwidth: Floats
    latency: Floats
    stream: Ints
    pieces: Ints
    segment: int
    window: float
    within: float
    """Maximum share of the first moment that an instant lasts: see `ringside.sim.network.fifo`."""


def wire(schedule: Schedule, graph: Topology, routes: Routes) -> Wiring:
    """Find every connection's route."""
    counts = schedule.connections()
    src, dst, channel = (np.array(column, dtype=np.int64) for column in zip(*counts, strict=True))
    count = np.fromiter(counts.values(), dtype=np.int64)
    column = schedule.steps.order if isinstance(schedule.steps, TransferStreams) else np.arange(len(count))
    place = np.empty(len(count), dtype=np.int64)
    place[np.argsort(src, kind="stable")] = np.arange(len(count))
    segment = int(graph.graph.get("segment", 0))
    pieces = -(-PIECES // count)
    figures = {
        (link["bandwidth"], link["latency"]) for _, _, link in graph.edges(data=True) if link["latency"]
    }
    around = None if segment or schedule.switches else routes.star(set(channel.tolist()))
    if around:
        start, links, hops = _over_switch(src, dst, *around)
        bandwidth, latency = _figures(graph, hops)
        alike = len(figures.union(zip(bandwidth.tolist(), latency.tolist(), strict=True))) <= 1
        stream = np.full(len(count), -1)  # two links of its own affect no other connection
    else:
        numbers: dict[Hop, int] = {}
        taken = [route(schedule, routes, *connection) for connection in counts]
        ways = [tuple([numbers.setdefault(hop, len(numbers)) for hop in way]) for way in taken]
        start = np.cumsum([0, *map(len, ways)])
        links = np.array([link for way in ways for link in way], dtype=np.int64)
        bandwidth, latency = _figures(graph, list(numbers))
        crowding = Crowding(list(zip(bandwidth.tolist(), latency.tolist(), strict=True)), figures)
        for way in dict.fromkeys(ways) if not segment else ():
            crowding.add(way)
        alike = crowding.alike
        stream = _streams(ways, crowding, pieces, segment)
        bandwidth[[link for link in range(len(bandwidth)) if crowding.is_ample(link)]] = inf
    return Wiring(
        src, dst, channel, count, column, place,
        start=start, links=links, bandwidth=bandwidth, latency=latency, stream=stream, pieces=pieces,
        segment=segment, window=float(graph.graph.get("window", inf)),
        within=0.0 if alike or segment else SIMULTANEOUS,
    )  # fmt: skip


def _over_switch(src: Ints, dst: Ints, up: list[Hop], down: list[Hop]) -> tuple[Ints, Ints, list[Hop]]:
    """Return where each route starts, its links up and down, and all links in order of first use."""
    met = np.stack([src, len(up) + dst], axis=1).ravel()
    used, first = np.unique(met, return_index=True)
    order = used[np.argsort(first)]
    number = np.empty(len(up) + len(down), dtype=np.int64)
    number[order] = np.arange(len(order))
    both = [*up, *down]
    return 2 * np.arange(len(src) + 1), number[met], [both[link] for link in order.tolist()]


def _figures(graph: Topology, hops: list[Hop]) -> tuple[Floats, Floats]:
    """Return the links' bandwidths and latencies."""
    links = [graph.adj[a][b] for a, b in hops]
    figures = np.array([(link["bandwidth"], link["latency"]) for link in links], dtype=np.float64)
    return figures[:, 0], figures[:, 1]


def _streams(ways: list[tuple[int, ...]], crowding: Crowding, pieces: Ints, segment: int) -> Ints:
    """Return the number of each route that is cut, -1 for the others."""
    known: dict[tuple[int, ...], int] = {}
    numbers = [
        known.setdefault(way, len(known)) if segment or (most > 1 and crowding.crowds(way)) else -1
        for way, most in zip(ways, pieces.tolist(), strict=True)
    ]
    return np.array(numbers, dtype=np.int64)


def needs(wiring: Wiring, streams: TransferStreams) -> Ints:
    """Return the connections' dependencies as `ringside.sim.streams.Needs`: rows (who, whom, shift)."""
    number = np.full(len(streams.src), -1)
    number[wiring.column] = np.arange(len(wiring.count))
    rows = np.stack([number[streams.needs.who], number[streams.needs.whom], streams.needs.shift], axis=1)
    known: Ints = rows[rows[:, 0] >= 0]
    return known
