"""Which rank sends to which: NCCL's rings and trees over all nodes (src/graph/connect.cc, v2.30.7).

Inside a node a search channel orders the GPUs (`ringside.sim.libraries.nccl.graph.search`, or a dump or a
log). Rings join the last GPU of a node to the first of the next. If the search found that they leave by
another rail (cross_nic 2), rings 2j and 2j + 1 change places on every second node, so that each edge between
nodes stays on one rail. In a tree a node is a chain of its GPUs; the search's pattern determines which of
them talk to other nodes.
"""

from dataclasses import dataclass, replace
from functools import cache
from itertools import cycle, islice

import numpy as np
from numpy.typing import NDArray

from ringside.sim.algorithms.trees.double_binary_tree import trees as node_trees
from ringside.sim.libraries.nccl.communicator import Communicator
from ringside.sim.libraries.nccl.graph.graph import Graph, Graphs, SearchChannel
from ringside.sim.libraries.nccl.graph.stored_graphs import graphs

Ints = NDArray[np.int64]

CHILD_GPUS = {"tree": (0, 0), "balanced_tree": (1, 0), "split_tree": (1, 1)}
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
        """Return the ranks below ``rank``, the one inside the node first."""
        children = np.flatnonzero(self.parent == rank)
        return [int(child) for child in children[np.argsort(self.slot[children], kind="stable")]]


def rings(comm: Communicator) -> list[Ints]:
    """Return every channel's ranks in data order, beginning with node 0."""
    order = ordered(comm).ring.order
    alternate = comm.graphs.ring.cross_nic == 2 and len(order) % 2 == 0
    nodes = np.arange(comm.nodes)[:, None]
    orders = []
    for channel in range(len(order)):
        lists = np.tile(order[channel].gpus, (comm.nodes, 1))
        if alternate:
            lists[1::2] = order[channel ^ 1].gpus
        orders.append((lists + nodes * comm.gpus).ravel())
    return [orders[channel % len(orders)] for channel in range(comm.channels)]


def trees(comm: Communicator) -> list[Tree]:
    """Return every channel's tree: all search channels over the first tree of nodes, then over the second."""
    graph = ordered(comm).tree
    both = [
        _over_ranks(comm, graph, np.array(channel.gpus), parent, place)
        for parent, place in zip(node_trees(comm.nodes), places(comm.nodes), strict=True)
        for channel in graph.order
    ]
    return [both[channel % len(both)] for channel in range(comm.channels)]


@cache
def ordered(comm: Communicator) -> Graphs:
    """Return the graphs, with the search's orders where a graph has none, as from some logs."""
    searched = graphs(comm.system, comm.nodes, comm.gpus, comm.settings.version)
    own = comm.graphs
    return Graphs(
        ring=_filled(own.ring, searched.ring, comm),
        tree=_filled(own.tree, searched.tree, comm),
        nvls=own.nvls and _filled(own.nvls, searched.nvls, comm),
        collnet_direct=own.collnet_direct and _filled(own.collnet_direct, searched.collnet_direct, comm),
        collnet_chain=own.collnet_chain and _filled(own.collnet_chain, searched.collnet_chain, comm),
    )


def _filled(graph: Graph, searched: Graph | None, comm: Communicator) -> Graph:
    """Return a graph with an order for every channel: its own, or the search's, repeated."""
    if graph.order:
        return graph
    order = searched.order if searched and searched.order else _heads(graph, comm)
    return replace(graph, order=tuple(islice(cycle(order), graph.channels)))


def _heads(graph: Graph, comm: Communicator) -> tuple[SearchChannel, ...]:
    """Return one GPU per channel, spread over the node, as for CollNet: the GPUs beside the cards."""
    return tuple(SearchChannel((head * comm.gpus // graph.channels,)) for head in range(graph.channels))


def places(nodes: int) -> tuple[Ints, Ints]:
    """Return each node's place in the first tree, and in the second, which is shifted or mirrored."""
    node = np.arange(nodes)
    return node, (node - 1) % nodes if nodes % 2 else nodes - 1 - node


def _over_ranks(comm: Communicator, graph: Graph, chain: Ints, parents: Ints, places: Ints) -> Tree:
    """Return a tree of nodes as a tree of ranks, by the chain of GPUs that every node has."""
    talks = np.minimum(CHILD_GPUS[graph.pattern], comm.gpus - 1)
    parent = np.empty((comm.nodes, comm.gpus), dtype=np.int64)
    slot = np.zeros((comm.nodes, comm.gpus), dtype=np.int64)
    starts = np.arange(comm.nodes) * comm.gpus
    parent[:, chain[1:]] = starts[:, None] + chain[:-1]
    second = (places > places[parents]).astype(np.int64)
    parent[:, chain[0]] = np.where(parents < 0, -1, parents * comm.gpus + chain[talks[second]])
    slot[:, chain[0]] = np.where(parents < 0, 0, 1 + second)
    return Tree(parent.ravel(), slot.ravel())
