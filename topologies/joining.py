"""Join identical machines into a cluster by switches on their network ports."""

from collections.abc import Mapping

import networkx as nx

from ringside.topologies.graph import Node, Topology, add_cable, ranks


def joined(
    machine: Topology, nodes: int, ports: Mapping[Node, float], latency: float, *, rails: bool = True
) -> Topology:
    """Join ``nodes`` copies of a machine; with ``rails`` one switch joins the same port of all copies.

    ``ports`` are the machine's network cards with their bytes/s. Without ``rails`` one non-blocking
    switch joins all ports. The cables to a switch have half of ``latency`` each, so a message from
    machine to machine takes it once. Copies are named ``node0/...`` and so on; rank r of node n
    becomes rank ``n * gpus + r``.
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
    """Put ``nodes`` copies of a machine into one graph, without links between them."""
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
