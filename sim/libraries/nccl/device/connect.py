"""Which rank sends to which: NCCL's rings and trees over all nodes (src/graph/connect.cc, v2.30.7).

Inside a node a search channel orders the GPUs. A dump or a log says how; otherwise this rule does,
which is NCCL's own outcome on a two-node DGX H100. Behind a switch GPUs are interchangeable, so the
rule changes no time there; on a mesh NCCL's orders follow the links, which the rule does not know.

- Channel c begins at the GPU beside NIC c: first = c * (gpus / channels).
- Rings: from an even first GPU around the node, downwards, to the GPU above it, which shares its
  switch; from an odd one the same backwards. Where the ring was found to leave by another rail
  (cross_nic 2), ring 2j runs from the first GPU of channel 2j to that of 2j + 1, and ring 2j + 1 back.
- Trees: a chain from the first GPU, upwards from an even and downwards from an odd one.
"""

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from sim.algorithms.double_binary_tree import trees as node_trees
from sim.libraries.nccl.communicator import Communicator
from sim.libraries.nccl.graph.graph import Graph, Graphs, SearchChannel

Ints = NDArray[np.int64]

_CHILD_GPUS = {"tree": (0, 0), "balanced_tree": (1, 0), "split_tree": (1, 1)}
"""Places in a node's chain that talk to its first and second child node; place 0 talks to the parent."""


@dataclass(frozen=True, eq=False, slots=True)
class Tree:
    """One channel's tree over all ranks.

    ``parent[r]`` is -1 at the root; ``slot[r]`` is the place of r among its parent's children: 0
    inside the node, 1 and 2 for the first and second child node.
    """

    parent: Ints
    slot: Ints

    def children(self, rank: int) -> list[int]:
        """The ranks below ``rank``, the one inside the node first."""
        found = np.flatnonzero(self.parent == rank)
        return [int(child) for child in found[np.argsort(self.slot[found], kind="stable")]]


def rings(comm: Communicator) -> list[Ints]:
    """For every channel the ranks in the order in which data pass them, from node 0 on."""
    order = ordered(comm).ring.order
    alternate = comm.graphs.ring.cross_nic == 2 and len(order) % 2 == 0
    nodes = np.arange(comm.nodes)[:, None]
    found = []
    for channel in range(len(order)):
        lists = np.tile(order[channel].gpus, (comm.nodes, 1))
        if alternate:
            lists[1::2] = order[channel ^ 1].gpus
        found.append((lists + nodes * comm.gpus).ravel())
    return [found[channel % len(found)] for channel in range(comm.channels)]


def trees(comm: Communicator) -> list[Tree]:
    """The tree of every channel: all search channels over the first tree of nodes, then over the second."""
    graph = ordered(comm).tree
    both = [
        _over_ranks(comm, graph, np.array(channel.gpus), parent, place)
        for parent, place in zip(node_trees(comm.nodes), _places(comm.nodes), strict=True)
        for channel in graph.order
    ]
    return [both[channel % len(both)] for channel in range(comm.channels)]


@cache
def ordered(comm: Communicator) -> Graphs:
    """The communicator's graphs, with the rule's orders where a graph has none."""
    return Graphs(
        ring=_filled(comm.graphs.ring, comm),
        tree=_filled(comm.graphs.tree, comm),
        nvls=comm.graphs.nvls and _filled(comm.graphs.nvls, comm),
        collnet_direct=comm.graphs.collnet_direct and _filled(comm.graphs.collnet_direct, comm),
        collnet_chain=comm.graphs.collnet_chain and _filled(comm.graphs.collnet_chain, comm),
    )


def _filled(graph: Graph, comm: Communicator) -> Graph:
    if graph.order:
        return graph
    match graph.pattern:
        case "ring":
            orders = _ring_orders(graph, comm.gpus)
        case "nvls" | "collnet_direct":
            orders = [[head % comm.gpus] for head in range(graph.channels)]
        case _:
            orders = _chain_orders(graph, comm.gpus)
    channels = (SearchChannel(tuple(gpus), _nics(graph, comm, gpus)) for gpus in orders)
    return replace(graph, order=tuple(channels))


def _nics(graph: Graph, comm: Communicator, gpus: list[int]) -> tuple[int, ...]:
    """The NICs by which a channel enters and leaves its node."""
    if comm.nodes == 1:
        return ()
    last = gpus[-1] if graph.pattern == "ring" and graph.cross_nic == 2 else gpus[0]
    return tuple(gpu * comm.system.nics // comm.system.gpus for gpu in (gpus[0], last))


def _ring_orders(graph: Graph, gpus: int) -> list[list[int]]:
    firsts = _firsts(graph, gpus)
    orders = []
    for channel, first in enumerate(firsts):
        back = channel % 2 if graph.cross_nic == 2 else first % 2
        if graph.cross_nic == 2 and graph.channels % 2 == 0:
            ends = firsts[channel - back], firsts[channel - back + 1]
        else:
            ends = first - back, (first - back + 1) % gpus
        walk = _walk(*ends, gpus)
        orders.append(walk[::-1] if back else walk)
    return orders


def _chain_orders(graph: Graph, gpus: int) -> list[list[int]]:
    return [
        [(first + (place if first % 2 == 0 else -place)) % gpus for place in range(gpus)]
        for first in _firsts(graph, gpus)
    ]


def _firsts(graph: Graph, gpus: int) -> list[int]:
    """The GPU at which each search channel begins."""
    if graph.same_channels:
        return [0] * graph.channels
    return [channel * max(1, gpus // graph.channels) % gpus for channel in range(graph.channels)]


def _walk(first: int, last: int, gpus: int) -> list[int]:
    """Once around the node: up from ``first`` to before ``last``, then down to ``last``."""
    up = [(first + place) % gpus for place in range((last - first) % gpus)]
    return up + [(first - 1 - place) % gpus for place in range(gpus - len(up))]


def _places(nodes: int) -> tuple[Ints, Ints]:
    """Where each node stands in the first tree, and in the second, which is the first shifted or mirrored."""
    node = np.arange(nodes)
    return node, (node - 1) % nodes if nodes % 2 else nodes - 1 - node


def _over_ranks(comm: Communicator, graph: Graph, chain: Ints, parents: Ints, places: Ints) -> Tree:
    """A tree of nodes as a tree of ranks, by the chain of GPUs that every node has."""
    talks = np.minimum(_CHILD_GPUS[graph.pattern], comm.gpus - 1)
    parent = np.empty((comm.nodes, comm.gpus), dtype=np.int64)
    slot = np.zeros((comm.nodes, comm.gpus), dtype=np.int64)
    starts = np.arange(comm.nodes) * comm.gpus
    parent[:, chain[1:]] = starts[:, None] + chain[:-1]
    second = (places > places[parents]).astype(np.int64)
    parent[:, chain[0]] = np.where(parents < 0, -1, parents * comm.gpus + chain[talks[second]])
    slot[:, chain[0]] = np.where(parents < 0, 0, 1 + second)
    return Tree(parent.ravel(), slot.ravel())
