"""Common parts of engines: the outcome of a simulation, and the links that a message crosses."""

from dataclasses import dataclass

from ringside.sim.engine.timeline import Timeline
from ringside.sim.plan import Plan
from ringside.sim.schedule import Schedule
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
