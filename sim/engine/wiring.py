"""A schedule's connections on a topology's links, as arrays: what the fast engine knows before it begins."""

from dataclasses import dataclass
from math import fsum, inf

import numpy as np
from numpy.typing import NDArray

from sim.engine.ends import route
from sim.network.fifo import CROWDED, SIMULTANEOUS
from sim.network.message import PIECES
from sim.schedule import Schedule
from sim.streams import Streams
from topologies import Routes, Topology
from topologies.graph import Hop

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Wiring:
    """Connections in order of first use, and the links that they use, numbered as they are met.

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
    """What ends an instant: so many times its first moment."""


def wire(schedule: Schedule, graph: Topology, routes: Routes) -> Wiring:
    """Find every connection's route."""
    counts = schedule.connections()
    src, dst, channel = (np.array(column, dtype=np.int64) for column in zip(*counts, strict=True))
    count = np.fromiter(counts.values(), dtype=np.int64)
    column = schedule.steps.order if isinstance(schedule.steps, Streams) else np.arange(len(count))
    place = np.empty(len(count), dtype=np.int64)
    place[np.argsort(src, kind="stable")] = np.arange(len(count))
    taken = _routes(schedule, routes, list(counts))
    numbers: dict[Hop, int] = {}
    ways = [tuple([numbers.setdefault(hop, len(numbers)) for hop in way]) for way in taken]
    links = [graph.adj[a][b] for a, b in numbers]
    figures = [(link["bandwidth"], link["latency"]) for link in links]
    bandwidth, latency = np.array(figures, dtype=np.float64).T
    segment = int(graph.graph.get("segment", 0))
    alike = len({(link["bandwidth"], link["latency"]) for _, _, link in graph.edges(data=True)}) <= 1
    pieces = -(-PIECES // count)
    cut = np.full(len(ways), segment > 0)
    if not segment:
        crowded = _crowded(ways, bandwidth)
        cut |= (pieces > 1) & np.array([not crowded.isdisjoint(way[1:-1]) for way in ways])
    known: dict[tuple[int, ...], int] = {}
    stream = [
        known.setdefault(way, len(known)) if is_cut else -1 for way, is_cut in zip(ways, cut, strict=True)
    ]
    return Wiring(
        src, dst, channel, count, column, place,
        start=np.cumsum([0, *map(len, ways)]),
        links=np.array([link for way in ways for link in way], dtype=np.int64),
        bandwidth=bandwidth, latency=latency,
        stream=np.array(stream, dtype=np.int64), pieces=pieces,
        segment=segment, window=float(graph.graph.get("window", inf)),
        within=1.0 if alike or segment else 1.0 + SIMULTANEOUS,
    )  # fmt: skip


def _routes(
    schedule: Schedule, routes: Routes, connections: list[tuple[int, int, int]]
) -> list[tuple[Hop, ...]]:
    if schedule.switches:
        return [route(schedule, routes, *connection) for connection in connections]
    # a hundred thousand connections: what all of a channel have in common is asked once
    on = {channel: routes.on(channel).route for channel in {channel for _, _, channel in connections}}
    return [on[channel](src, dst) for src, dst, channel in connections]


def needs(wiring: Wiring, streams: Streams) -> Ints:
    """What connections wait for, as in `sim.streams.Needs`: rows (who, whom, shift), by numbers here."""
    number = np.full(len(streams.src), -1)
    number[wiring.column] = np.arange(len(wiring.count))
    rows = np.stack([number[streams.needs.who], number[streams.needs.whom], streams.needs.shift], axis=1)
    found: Ints = rows[rows[:, 0] >= 0]
    return found


def _crowded(ways: list[tuple[int, ...]], bandwidth: Floats) -> set[int]:
    """The links on which more may meet than they carry: see `sim.network.fifo`."""
    ends: dict[int, tuple[set[int], set[int]]] = {}
    for way in dict.fromkeys(way for way in ways if len(way) > 2):
        for link in way[1:-1]:
            firsts, lasts = ends.setdefault(link, (set(), set()))
            firsts.add(way[0])
            lasts.add(way[-1])
    return {
        link
        for link, both in ends.items()
        if bandwidth[link] * CROWDED < min(fsum(bandwidth[list(some)]) for some in both)
    }
