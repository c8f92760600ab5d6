"""Networks by name: how links serve messages."""

from ringside.sim.clock import Clock
from ringside.sim.network.fair import FairNetwork
from ringside.sim.network.fifo import FifoNetwork
from ringside.sim.network.message import Network, check_network
from ringside.topologies import Routes, Topology


def make_network(name: str, env: Clock, graph: Topology, routes: Routes | None = None) -> Network:
    """Return the links of a topology in one simulation, under the rule of that name."""
    check_network(name)
    return FairNetwork(env, graph, routes) if name == "fair" else FifoNetwork(env, graph, routes)
