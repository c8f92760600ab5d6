"""How long a schedule takes at the least, whatever the engine: what its links must carry, how deep it is."""

from math import ceil, log2

from sim.collective import KINDS
from sim.parameters import Parameters
from sim.schedule import Schedule
from topologies import Routes, Topology


def traffic_bound(schedule: Schedule, graph: Topology) -> float:
    """Seconds that the busiest link needs for the bytes which the schedule sends over it.

    On a star this is 2S(n-1)/(nB) for a ring, 3S/B for a tree, 2S/B for a double binary tree.
    """
    routes = Routes(graph)
    load: dict[tuple[str, str], int] = {}
    for (src, dst), nbytes in schedule.traffic().items():
        for hop in routes.route(src, dst):
            load[hop] = load.get(hop, 0) + nbytes
    return max((nbytes / graph.edges[hop]["bandwidth"] for hop, nbytes in load.items()), default=0.0)


def latency_bound(schedule: Schedule, graph: Topology) -> float:
    """Seconds that an empty message would take along the schedule's longest chain of hops.

    Counted are a ring's n-1 or 2(n-1) hops and, for whatever else reduces or spreads data, the
    ceil(log2 n) hops without which one rank cannot reach all, all at the quickest route's latency.
    """
    ranks = schedule.ranks
    if ranks == 1:
        return 0.0
    routes = Routes(graph)
    quickest: float = min(
        sum(graph.edges[hop]["latency"] for hop in routes.route(src, dst))
        for src, dst, _ in schedule.connections()
    )
    return _hops(schedule) * quickest


def closed_bounds(schedule: Schedule, parameters: Parameters) -> dict[str, float]:
    """The bounds on the textbook network, by formula: no walk through a billion transfers."""
    ranks, nbytes = schedule.ranks, schedule.collective.nbytes
    busbw_factor = KINDS[schedule.collective.kind].busbw_factor(ranks)
    return {
        "traffic": busbw_factor * nbytes * parameters.beta if ranks > 1 else 0.0,
        "latency": _hops(schedule) * parameters.alpha if ranks > 1 else 0.0,
    }


def _hops(schedule: Schedule) -> int:
    """Messages that must follow one another."""
    ranks, kind = schedule.ranks, schedule.collective.kind
    twice = 2 if kind == "all_reduce" else 1
    if schedule.algorithm == "ring":
        return twice * (ranks - 1)
    if schedule.algorithm == "direct":
        return twice
    return twice * ceil(log2(ranks))
