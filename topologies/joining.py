"""Several machines of one kind become a cluster: switches join their network ports."""

from collections.abc import Mapping

import networkx as nx

from ringside.topologies.graph import Node, Topology, add_cable, ranks


def joined(
    machine: Topology, nodes: int, ports: Mapping[Node, float], latency: float, *, rails: bool = True
) -> Topology:
    """``nodes`` copies of a machine; with ``rails`` one switch joins the same port of all of them.

    ``ports`` are the machine's network cards with their bytes/s. Without ``rails`` one switch that
    is never the bottleneck joins every port, as a non-blocking fat tree does. The cables to a switch
    carry half of ``latency`` each, so that a message from machine to machine pays it once. Copies
    are called ``node0/...`` and so on; rank r of node n becomes rank ``n * gpus + r``.
    """
    graph = copies(machine, nodes)
    top = max(data["tier"] for _, data in machine.nodes(data=True)) + 1
    for index, (port, bandwidth) in enumerate(ports.items() if nodes > 1 else ()):
        switch = f"rail{index}" if rails else "network"
        graph.add_node(switch, kind="switch", tier=top)
        for node in range(nodes):
            card = f"node{node}/{port}"
            add_cable(graph, card, switch, kind="ib", bandwidth=bandwidth, latency=latency / 2)
    return graph


def copies(machine: Topology, nodes: int) -> Topology:
    """``nodes`` copies of a machine in one graph, joined by nothing yet."""
    graph: Topology = nx.DiGraph(**machine.graph | {"nodes": nodes})
    gpus = len(ranks(machine))
    for node in range(nodes):
        for name, data in machine.nodes(data=True):
            moved = {"rank": data["rank"] + node * gpus} if "rank" in data else {}
            graph.add_node(f"node{node}/{name}", **(data | moved))
        graph.add_edges_from(
            (f"node{node}/{a}", f"node{node}/{b}", dict(d)) for a, b, d in machine.edges(data=True)
        )
    return graph
