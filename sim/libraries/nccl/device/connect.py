"""Which rank sends to which: NCCL's rings and trees over all nodes (src/graph/connect.cc, v2.30.7).

Inside a node a search channel orders the GPUs (`ringside.sim.libraries.nccl.graph.search`, or a dump or a
log). Rings join the last GPU of a node to the first of the next. If the search found that they leave by
another rail (cross_nic 2), rings 2j and 2j + 1 change places on every second node, so that each edge between
nodes stays on one rail. In a tree a node is a chain of its GPUs; the search's pattern determines which of
them talk to other nodes.

NCCL's search reserves each channel's bandwidth round a ring, or down a tree; it does not count a tree's sends
upwards, and a graph may be wrong or only partly used. So every connection also has a fair share of each link
on its way while all channels move data at once: the link's bandwidth over the connections that cross it on
the busiest node. Channels that share links evenly take no less time than the busiest link needs for all their
bytes.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import cycle, islice, pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ringside.sim.libraries.nccl.communicator import Communicator
from ringside.sim.libraries.nccl.graph.graph import Graph, Graphs, Link, Nodes, SearchChannel
from ringside.sim.libraries.nccl.graph.paths import Paths, paths_of_system
from ringside.sim.libraries.nccl.graph.search import graphs
from ringside.sim.trees import trees as node_trees

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


def heads(comm: Communicator, algorithm: str) -> Ints:
    """Return the local ranks that are heads, in the order of their chunks."""
    graphs = ordered(comm)
    graph = graphs.collnet_direct if algorithm == "collnet_direct" else graphs.nvls
    return np.array([channel.gpus[0] for channel in graph.order] if graph else [], dtype=np.int64)


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


Links = tuple[Link, ...]
"""Links that one connection crosses on one node."""


class Crossing(NamedTuple):
    """Links that a channel's connection crosses on one node, and which local ranks, if there, it joins."""

    channel: int
    links: Links
    src: int = -1
    dst: int = -1


UNLIMITED = float("inf")


@lru_cache(maxsize=4096)
def shares(comm: Communicator, algorithm: str, used: int) -> tuple[float, float]:
    """Return the bytes/s of the worst connection inside a node, and between nodes, with ``used`` channels.

    Behind an NVSwitch the two directions of a tree are one connection of a GPU's port: `through_port`.
    """
    of_one, of_kinds = crossings(comm, algorithm, used)
    inside = [one.links for one in of_one]
    if through_port(comm, algorithm):
        ports: dict[int, set[Link]] = defaultdict(set)
        for one in of_one:
            ports[one.channel].update(one.links)
        inside = [tuple(links) for links in ports.values()]
    ends = [[one.links for one in node] for node in of_kinds]
    least_inside = least_between = UNLIMITED
    for node in ends or [[]]:
        crossing = Counter(link for links in [*inside, *node] for link in links)
        least_inside = min(least_inside, _least(inside, crossing))
        least_between = min(least_between, _least(node, crossing))
    return least_inside, least_between


def through_port(comm: Communicator, algorithm: str) -> bool:
    """Return whether GPUs send both up and down a tree through one port, that to the NVSwitch."""
    return algorithm == "tree" and comm.gpus > 2 and bool(paths_of(comm).nodes.of["nvs"])


def _least(connections: Iterable[Links], crossing: Counter[Link]) -> float:
    return min(
        (link.bandwidth / crossing[link] for links in connections for link in links), default=UNLIMITED
    )


@lru_cache(maxsize=256)
def crossings(comm: Communicator, algorithm: str, used: int) -> tuple[list[Crossing], list[list[Crossing]]]:
    """Return crossings of a ring's or tree's connections inside a node, and at each kind of node's ends."""
    return list(_inside(comm, algorithm, used)), list(_ends(comm, algorithm, used))


def _inside(comm: Communicator, algorithm: str, used: int) -> Iterator[Crossing]:
    """Yield the crossings between one node's GPUs."""
    paths = paths_of(comm)
    for number, channel in enumerate(_channels(comm, algorithm, used)):
        onwards = list(pairwise(channel.gpus))
        if algorithm == "ring" and comm.nodes == 1:
            onwards.append((channel.gpus[-1], channel.gpus[0]))
        for a, b in onwards:
            here, there = (_place(paths.nodes, "gpu", gpu) for gpu in (a, b))
            way, back = paths.gpus[here][there].links, paths.gpus[there][here].links
            yield Crossing(number, way, a, b)
            if algorithm == "tree":
                yield Crossing(number, back, b, a)


def _ends(comm: Communicator, algorithm: str, used: int) -> Iterator[list[Crossing]]:
    """Yield the ends of connections to other nodes, for every kind of node that differs."""
    paths = paths_of(comm)
    if comm.nodes == 1 or not paths.nodes.of["net"]:
        return
    channels = _channels(comm, algorithm, used)
    if algorithm == "ring":
        yield [
            one
            for number, channel in enumerate(channels)
            for one in (
                Crossing(number, _end(paths, channel, -1)[0], src=channel.gpus[-1]),
                Crossing(number, _end(paths, channel, 0)[1], dst=channel.gpus[0]),
            )
        ]
        return
    talks = np.minimum(CHILD_GPUS[comm.graphs.tree.pattern], comm.gpus - 1).tolist()
    for both in roles(comm.nodes):
        node = []
        for number, channel in enumerate(channels):
            parent, *children = both[number // comm.graphs.tree.channels % 2]
            talking = [0] * parent + [talk for talk, there in zip(talks, children, strict=True) if there]
            node += [Crossing(number, links) for place in talking for links in _end(paths, channel, place)]
        yield node


@cache
def roles(nodes: int) -> list[list[list[bool]]]:
    """Return all kinds of node: has a parent, a first child, a second, in either tree."""
    both = []
    for parent, place in zip(node_trees(nodes), places(nodes), strict=True):
        child = np.flatnonzero(parent >= 0)
        second = place[child] > place[parent[child]]
        table = np.zeros((nodes, 3), dtype=bool)
        table[:, 0] = parent >= 0
        table[parent[child[~second]], 1] = True
        table[parent[child[second]], 2] = True
        both.append(table)
    kinds: list[list[list[bool]]] = np.unique(np.stack(both, axis=1), axis=0).tolist()
    return kinds


def _end(paths: Paths, channel: SearchChannel, place: int) -> tuple[Links, Links]:
    """Return the way of a channel's GPU to its network port, and back."""
    gpu = _place(paths.nodes, "gpu", channel.gpus[place])
    port = channel.nics[0 if place == 0 else -1] if channel.nics else paths.ports[gpu][0]
    net = _place(paths.nodes, "net", port % len(paths.nodes.of["net"]))
    return paths.out[gpu][net].links, paths.back[net][gpu].links


def _channels(comm: Communicator, algorithm: str, used: int) -> list[SearchChannel]:
    graphs = ordered(comm)
    order = graphs.tree.order if algorithm == "tree" else graphs.ring.order
    return [order[channel % len(order)] for channel in range(used)]


def _place(nodes: Nodes, kind: str, number: int) -> int:
    """Return the index of a local rank's node, or of a port's number, among its kind."""
    numbers = [node.rank if kind == "gpu" else node.dev for node in nodes.of[kind]]
    return numbers.index(sorted(numbers)[number])


def paths_of(comm: Communicator) -> Paths:
    """Return the paths in one machine as it is cabled, with the GPUs of the ranks in use."""
    system = comm.system
    if system.cabling:
        system = replace(system, mesh=system.cabling)
    return paths_of_system(system, comm.gpus)
