"""The hosts, bridges and cables that a topology needs, planned before the kernel is touched."""

from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network

import networkx as nx

from ringside.topologies.graph import Node, Topology, TopologyError, check, ranks
from ringside.topologies.units import format_rate

SUBNET = IPv4Network("10.77.0.0/16")
"""The addresses of all hosts. No route leaves the network, so they clash with nothing outside."""

SLOWEST, FASTEST = 125e3, 1.25e9
"""Bytes/s, 1 Mb/s and 10 Gb/s. Below, one 64 KiB packet blocks a port for half a second; above, the processor
is the bottleneck."""

MAX_HOSTS = 256
"""Every host keeps an entry for every other, all on one machine."""


@dataclass(frozen=True, slots=True)
class Port:
    """One end of a cable: its node, and the rate in bytes/s at which that node sends."""

    node: Node
    interface: str
    rate: float


@dataclass(frozen=True, slots=True)
class NetworkPlan:
    """A network to build: hosts by rank, bridge names by switch, and cables as pairs of ports."""

    hosts: tuple[Node, ...]
    bridges: dict[Node, str]
    cables: tuple[tuple[Port, Port], ...]


def plan(graph: Topology) -> NetworkPlan:
    """Return the network that emulates ``graph``: a tree of gpu nodes, as hosts, and of switches.

    Raise `TopologyError` with every reason why the graph cannot be emulated.
    """
    check(graph)
    complaints = [*_node_complaints(graph), *_link_complaints(graph), *_shape_complaints(graph)]
    if complaints:
        name = graph.graph.get("name", "topology")
        raise TopologyError("\n".join(f"{name}: {complaint}" for complaint in complaints))
    cables = tuple(
        (
            Port(a, _interface(graph, a, index, "a"), graph.edges[a, b]["bandwidth"]),
            Port(b, _interface(graph, b, index, "b"), graph.edges[b, a]["bandwidth"]),
        )
        for index, (a, b) in enumerate(graph.to_undirected(as_view=True).edges)
    )
    switches = [node for node, data in graph.nodes(data=True) if data["kind"] == "switch"]
    return NetworkPlan(tuple(ranks(graph)), {node: f"bridge{i}" for i, node in enumerate(switches)}, cables)


def address(rank: int) -> str:
    """Return the IPv4 address of a rank's host."""
    return str(SUBNET[rank + 1])


def hardware_address(rank: int) -> str:
    """Return the MAC address of a rank's host: locally administered, ending in the IP address."""
    return ":".join(f"{byte:02x}" for byte in (0x02, 0, *IPv4Address(address(rank)).packed))


def _interface(graph: Topology, node: Node, cable: int, end: str) -> str:
    return "eth0" if graph.nodes[node]["kind"] == "gpu" else f"port{cable}{end}"


def _node_complaints(graph: Topology) -> Iterator[str]:
    hosts = len(ranks(graph))
    if hosts > MAX_HOSTS:
        yield f"{hosts} ranks; one machine emulates up to {MAX_HOSTS}"
    for node, data in graph.nodes(data=True):
        if data["kind"] not in ("gpu", "switch"):
            yield (
                f"node {node!r} is of kind {data['kind']!r}; an emulated network has hosts ('gpu') "
                "and bridges ('switch')"
            )
        elif data["kind"] == "gpu" and graph.out_degree(node) > 1:
            yield f"gpu {node!r} has {graph.out_degree(node)} cables; an emulated host has one port"


def _link_complaints(graph: Topology) -> Iterator[str]:
    for a, b, data in graph.edges(data=True):
        if not graph.has_edge(b, a):
            yield f"link {a!r} -> {b!r} has no reverse link; an emulated cable is full duplex"
        if not SLOWEST <= data["bandwidth"] <= FASTEST:
            yield (
                f"link {a!r} -> {b!r} has {format_rate(data['bandwidth'], digits=3)}; an emulated one has "
                f"{format_rate(SLOWEST)} to {format_rate(FASTEST)}; write for example bandwidth=100Mb/s"
            )


def _shape_complaints(graph: Topology) -> Iterator[str]:
    if not nx.is_forest(graph.to_undirected(as_view=True)):
        yield "its switches form a loop; bridges need a tree: leave one path between two ranks"
