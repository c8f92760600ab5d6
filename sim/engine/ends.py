"""The links between a plan's ends: its ranks and its switches."""

from ringside.sim.plan import Plan
from ringside.topologies import Routes
from ringside.topologies.graph import Hop


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
