"""From one imported machine to a cluster: the network, and the latencies, which no file contains."""

from collections.abc import Mapping

from ringside.topologies.chassis import joined
from ringside.topologies.graph import Node, Topology, TopologyError


def clustered(
    machine: Topology,
    nodes: int,
    ports: Mapping[Node, float],
    *,
    nvlink_latency: float,
    pcie_latency: float,
    network_latency: float,
) -> Topology:
    """Join ``nodes`` copies of an imported machine, with the given latencies per hop.

    With NVLink or xGMI they are joined by rails, one switch for the same card of all machines. Without it no
    GPU reaches another's card, so one switch joins all cards. The total latency of a message from machine to
    machine is ``network_latency``.
    """
    if nodes > 1 and not ports:
        raise TopologyError(f"{machine.graph['name']}: no network card, so {nodes} machines cannot be joined")
    kinds = {node: data["kind"] for node, data in machine.nodes(data=True)}
    direct = ("nvlink", "xgmi")
    nvlinked = any(link["kind"] in direct for *_, link in machine.edges(data=True))
    for a, b, link in machine.edges(data=True):
        if link["kind"] in direct:
            link["latency"] = nvlink_latency / (2 if "nvswitch" in (kinds[a], kinds[b]) else 1)
        elif link["kind"] == "pcie" and not nvlinked and "gpu" in (kinds[a], kinds[b]):
            link["latency"] = pcie_latency / 2
    outside = network_latency if nvlinked else max(0.0, network_latency - pcie_latency)
    return joined(machine, nodes, ports, outside, rails=nvlinked)
