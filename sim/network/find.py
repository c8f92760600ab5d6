"""From a word to a network: how links serve messages."""

from collections.abc import Callable

import simpy

from sim.network.fair import FairNetwork
from sim.network.fifo import FifoNetwork
from sim.network.message import Network
from topologies import Routes, Topology

Make = Callable[[simpy.Environment, Topology, Routes | None], Network]

NETWORKS: dict[str, Make] = {"fifo": FifoNetwork, "fair": FairNetwork}


def check_network(name: str) -> None:
    """Refuse what is no network."""
    if name not in NETWORKS:
        raise ValueError(f"{name!r} is no known network; write one of {', '.join(NETWORKS)}")


def make_network(name: str, env: simpy.Environment, graph: Topology, routes: Routes | None = None) -> Network:
    """The links of a topology in one simulation, under the rule of that name."""
    check_network(name)
    return NETWORKS[name](env, graph, routes)
