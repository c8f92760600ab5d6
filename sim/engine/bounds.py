"""Lower bounds on a schedule's time for every engine: its links' loads, and its depth."""

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from itertools import chain, groupby
from math import log2
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ringside.sim.collective import KINDS
from ringside.sim.engine.wiring import route
from ringside.sim.parameters import Parameters
from ringside.sim.schedule import Schedule, Step
from ringside.sim.streams import TransferStreams
from ringside.topologies import Routes, Topology
from ringside.topologies.graph import Hop

Ways = Callable[[int, int, int], tuple[Hop, ...]]

MAX_TRACKED = 2**20
"""Maximum number of chunks, over all ranks, that are followed one by one; beyond it every k-th."""


class ScheduleBounds(NamedTuple):
    """Lower bounds on a schedule's time, in seconds.

    ``traffic`` is the busiest link's time for its bytes: on a star 2S(n-1)/(nB) for a ring, 3S/B for a tree,
    2S/B for a double binary tree. ``latency`` is the time of empty messages along the longest chain of
    transfers in which each sends on the data of the one before.
    """

    traffic: float
    latency: float


def lower_bounds(schedule: Schedule, graph: Topology, routes: Routes | None = None) -> ScheduleBounds:
    """Return both bounds of any schedule, by rule or a walk along the steps; ``routes`` are the graph's."""
    routes = routes or Routes(graph)
    ways = partial(route, schedule, routes)
    latencies = _Latencies(graph, ways)
    streams = schedule.steps
    if isinstance(streams, TransferStreams) and (streams.is_line or streams.is_ring):
        latency = np.zeros(len(streams.src))
        latency[streams.order] = [latencies[connection] for connection in streams.connections()]
        return ScheduleBounds(
            _busiest(streams.traffic(schedule.chunks), graph, ways), streams.longest(latency)
        )
    moved: Counter[tuple[int, int, int]] = Counter()
    chains = _Chains(schedule)
    for _, steps in groupby(schedule.steps(), key=_ends):  # a ring's steps are all equal
        first = next(steps)
        used = list(zip(first.src.tolist(), first.dst.tolist(), first.channel.tolist(), strict=True))
        latency = np.array([latencies[connection] for connection in used])
        carried = np.zeros(len(first), dtype=np.int64)
        for step in chain((first,), steps):
            carried += schedule.nbytes(step)
            chains.take(step, latency)
        for connection, nbytes in zip(used, carried.tolist(), strict=True):
            moved[connection] += nbytes
    return ScheduleBounds(_busiest(moved, graph, ways), chains.longest)


def closed_bounds(schedule: Schedule, parameters: Parameters) -> ScheduleBounds:
    """Return the bounds on the textbook network by closed form: nothing walks through a billion transfers."""
    ranks, collective = schedule.ranks, schedule.collective
    if ranks == 1:
        return ScheduleBounds(0.0, 0.0)
    way = schedule.algorithm, collective.kind
    share = _SHARES.get(way, KINDS[collective.kind].busbw_factor)(ranks)
    hops = _HOPS[schedule.algorithm](ranks) * (2 if way in _THERE_AND_BACK else 1)
    return ScheduleBounds(share * collective.nbytes * parameters.beta, hops * parameters.alpha)


def _others(ranks: int) -> float:
    return ranks - 1


_HOPS: dict[str, Callable[[int], float]] = {
    "ring": _others,
    "direct": lambda ranks: 1,
    "pairwise": lambda ranks: 1,
    "neighbor_exchange": lambda ranks: ranks / 2,
    "halving_doubling": log2,
    "recursive_doubling": log2,
    "recursive_halving": log2,
    "bruck": log2,
    "binomial": log2,
}
"""Messages of the longest chain in which each sends on the data of the one before."""

_THERE_AND_BACK = {
    ("ring", "all_reduce"),
    ("direct", "all_reduce"),
    ("binomial", "all_reduce"),
    ("halving_doubling", "all_reduce"),
    ("halving_doubling", "reduce"),
}
"""Algorithms with twice the number of hops."""

_SHARES: dict[tuple[str, str], Callable[[int], float]] = {
    ("direct", "broadcast"): _others,
    ("direct", "reduce"): _others,
    ("binomial", "all_reduce"): log2,
    ("binomial", "broadcast"): log2,
    ("binomial", "reduce"): log2,
    ("recursive_doubling", "all_reduce"): log2,
    ("halving_doubling", "reduce"): KINDS["all_reduce"].busbw_factor,
    ("bruck", "all_to_all"): lambda ranks: log2(ranks) / 2,
}
"""The busiest port's load over the size, where it exceeds the minimum."""


def busy(schedule: Schedule, graph: Topology, routes: Routes | None = None) -> dict[Hop, float]:
    """Return the seconds that each link needs for the schedule's bytes."""
    streams = schedule.steps
    moved: Counter[tuple[int, int, int]] = Counter()
    if isinstance(streams, TransferStreams) and (streams.is_line or streams.is_ring):
        moved.update(streams.traffic(schedule.chunks))
    else:
        for step in streams():
            columns = (step.src, step.dst, step.channel, schedule.nbytes(step))
            for src, dst, channel, nbytes in zip(*(column.tolist() for column in columns), strict=True):
                moved[src, dst, channel] += nbytes
    return _busy(moved, graph, partial(route, schedule, routes or Routes(graph)))


def _busy(moved: Mapping[tuple[int, int, int], int], graph: Topology, ways: Ways) -> dict[Hop, float]:
    """Return each link's time for the bytes that each connection moves."""
    by_size: dict[int, list[tuple[Hop, ...]]] = {}
    for connection, nbytes in moved.items():
        by_size.setdefault(nbytes, []).append(ways(*connection))
    load: Counter[Hop] = Counter()
    for nbytes, taken in by_size.items():
        for hop, times in Counter(chain.from_iterable(taken)).items():
            load[hop] += nbytes * times
    return {hop: nbytes / graph.edges[hop]["bandwidth"] for hop, nbytes in load.items()}


def _busiest(moved: Mapping[tuple[int, int, int], int], graph: Topology, ways: Ways) -> float:
    """Return the busiest link's time for the bytes that each connection moves."""
    return max(_busy(moved, graph, ways).values(), default=0.0)


class _Latencies(dict[tuple[int, int, int], float]):
    """The latency of each connection's route, looked up on demand."""

    def __init__(self, graph: Topology, ways: Ways) -> None:
        self._ways = ways
        self._latency: Mapping[Hop, float] = {
            (a, b): link["latency"] for a, b, link in graph.edges(data=True)
        }

    def __missing__(self, connection: tuple[int, int, int]) -> float:
        self[connection] = total = sum(map(self._latency.__getitem__, self._ways(*connection)))
        return total


class _Chains:
    """Arrival times of chunks at each end if messages are empty, and the latest of them."""

    def __init__(self, schedule: Schedule) -> None:
        chunks = len(schedule.chunks)
        self._stride = max(1, -(-chunks * schedule.ends // MAX_TRACKED))
        self._width = -(-chunks // self._stride)
        self._ready: NDArray[np.float64] = np.zeros(schedule.ends * self._width)
        self.longest = 0.0

    def take(self, step: Step, latency: NDArray[np.float64]) -> None:
        """Make a step's transfers follow those that brought their chunks to their sources."""
        first = -(-step.chunk // self._stride)
        spans = -(-(step.chunk + step.span) // self._stride) - first
        begins = np.cumsum(spans) - spans
        within = np.arange(spans.sum()) - np.repeat(begins, spans)
        sent = np.repeat(step.src * self._width + first, spans) + within
        brought = np.repeat(step.dst * self._width + first, spans) + within
        begin = np.zeros(len(step))
        if len(sent):
            begin[spans > 0] = np.maximum.reduceat(self._ready[sent], begins[spans > 0])
        end = begin + latency
        np.maximum.at(self._ready, brought, np.repeat(end, spans))
        self.longest = float(end.max(initial=self.longest))


def _ends(step: Step) -> tuple[bytes, bytes, bytes]:
    return step.src.tobytes(), step.dst.tobytes(), step.channel.tobytes()
