"""The network that one channel of NCCL's rings and trees has to itself, as a topology.

NCCL's search reserves a bandwidth for every search channel on each link of each path. What runs over a
search channel shares it: two channels over a ring or inside a node; between nodes the flows up and
down both trees of the pair, through one NIC. Every connection is a wire of its own that carries its
fair share, less what the protocol spends on flags; one message takes the hop's latency. So channels
do not meet, and a collective takes as long as its slowest channel.

Latencies are the tuner's hardware latencies (src/graph/tuning.cc, v2.30.7), not its corrections.
"""

from dataclasses import dataclass

import networkx as nx
import numpy as np

from sim.algorithms.double_binary_tree import trees as node_trees
from sim.collective import Collective
from sim.libraries.nccl.communicator import Communicator
from sim.libraries.nccl.device.chunks import WIRE_EFFICIENCY
from sim.libraries.nccl.device.connect import rings, trees
from sim.libraries.nccl.device.schedules import carried_bytes
from sim.libraries.nccl.graph.graph import Graph, PathClass
from sim.libraries.nccl.tuning.latency import hop_us
from topologies import Topology


@dataclass(frozen=True, slots=True)
class Wire:
    """One connection: data bytes/s, and the seconds that a message's head takes."""

    bandwidth: float
    latency: float


@dataclass(frozen=True, slots=True)
class Channel:
    """One channel with the bytes of a block that it carries, and its wires inside nodes and between them.

    Where there is only one sort of wire, both are that.
    """

    number: int
    nbytes: int
    inside: Wire
    between: Wire


def channels(comm: Communicator, collective: Collective, algorithm: str, protocol: str) -> list[Channel]:
    """One channel of each kind that differs in time.

    Channels with equal bytes, equal wires and the same tree of the pair do the same on other GPUs.
    """
    carried = carried_bytes(comm, collective, algorithm, protocol)
    search = _graph(comm, algorithm).channels
    found: dict[tuple[int, int, int], Channel] = {}
    for number, nbytes in enumerate(carried):
        companions = range(number % search, len(carried), search)
        key = nbytes, tree_number(comm, number) if algorithm == "tree" else 0, len(companions)
        if key not in found:
            inside = _inside(comm, algorithm, protocol, companions)
            between = inside if comm.nodes == 1 else _between(comm, algorithm, protocol, companions)
            found[key] = Channel(number, nbytes, between if comm.gpus == 1 else inside, between)
    return list(found.values())


def wires(comm: Communicator, algorithm: str, channel: Channel) -> Topology:
    """One channel's wires as a topology, an edge for each of its connections."""
    name = f"{comm.nodes} x {comm.system.name}, {algorithm}, channel {channel.number}"
    graph: Topology = nx.DiGraph(name=name, nodes=comm.nodes)
    for rank in range(comm.ranks):
        graph.add_node(f"gpu{rank}", kind="gpu", rank=rank)
    kind_inside = "nvlink" if comm.system.nvlink else "pcie"
    for src, dst in _connections(comm, algorithm, channel.number):
        same = src // comm.gpus == dst // comm.gpus
        wire, kind = (channel.inside, kind_inside) if same else (channel.between, "ib")
        graph.add_edge(f"gpu{src}", f"gpu{dst}", kind=kind, bandwidth=wire.bandwidth, latency=wire.latency)
    return graph


def _inside(comm: Communicator, algorithm: str, protocol: str, companions: range) -> Wire:
    graph = _graph(comm, algorithm)
    link = "nvlink" if graph.type_intra is PathClass.NVL else "pci"
    rate = graph.bw_intra / len(companions) * WIRE_EFFICIENCY[protocol]
    return Wire(rate, hop_us(link, algorithm, protocol, comm) * 1e-6)


def _between(comm: Communicator, algorithm: str, protocol: str, companions: range) -> Wire:
    """With one GPU a node nothing hides the network, whose latency is then the trees'; as in the tuner."""
    graph = _graph(comm, algorithm)
    flows = _flows(comm, companions) if algorithm == "tree" else len(companions)
    exposed = "tree" if comm.gpus == 1 else algorithm
    device = graph.latency_inter_us * (2 if protocol == "simple" else 1)
    latency = (hop_us("net", exposed, protocol, comm) + device) * 1e-6
    return Wire(graph.bw_inter / flows * WIRE_EFFICIENCY[protocol], latency)


def tree_number(comm: Communicator, channel: int) -> int:
    """Which tree of the pair a channel has: all search channels take the first, then all the second."""
    return channel // comm.graphs.tree.channels % 2


def _graph(comm: Communicator, algorithm: str) -> Graph:
    return comm.graphs.tree if algorithm == "tree" else comm.graphs.ring


def _flows(comm: Communicator, companions: range) -> int:
    """Connections that leave the busiest node by one NIC: to the parent and the children of each tree."""
    flows = np.zeros(comm.nodes, dtype=np.int64)
    parents = node_trees(comm.nodes)
    for number in companions:
        parent = parents[tree_number(comm, number)]
        flows += (parent >= 0) + np.bincount(parent[parent >= 0], minlength=comm.nodes)
    return int(flows.max())


def _connections(comm: Communicator, algorithm: str, channel: int) -> list[tuple[int, int]]:
    if algorithm == "ring":
        ring = rings(comm)[channel]
        return list(zip(ring.tolist(), np.roll(ring, -1).tolist(), strict=True))
    parent = trees(comm)[channel].parent
    up = [(rank, int(above)) for rank, above in enumerate(parent) if above >= 0]
    return up + [(above, rank) for rank, above in up]
