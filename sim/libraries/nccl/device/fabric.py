"""Effects of a fabric between the machines on NCCL's rings and trees: shared links, and longer ways.

NCCL detects its cards but nothing beyond them. Each channel has its connections from card to card; a fabric's
link gives each connection that crosses it an equal share. The slowest connection limits a ring or a tree.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from ringside.sim.libraries.nccl.communicator import Communicator
from ringside.sim.libraries.nccl.device.connect import CHILD_GPUS, ordered, places
from ringside.sim.libraries.nccl.graph.graph import SearchChannel
from ringside.sim.trees import trees as node_trees
from ringside.topologies.fabrics.structure import Machines
from ringside.topologies.graph import Hop, TopologyError
from ringside.topologies.units import format_rate

Ends = tuple[int, int, int, int]
"""Two ends, each a machine and its card."""


class Shared(NamedTuple):
    """The fabric's share for the slowest connection of an algorithm's channels, in bytes/s, and its link.

    ``crossing`` connections share that ``link``. ``latency`` is the switches' addition to a connection, in
    seconds: round a ring on average, in a tree at most.
    """

    bandwidth: float
    latency: float
    link: Hop | None
    crossing: int

    @property
    def description(self) -> str:
        """A description of the narrowest link."""
        if self.link is None:
            return "no connection crosses a cable between its switches"
        link, share = " -> ".join(self.link), format_rate(self.bandwidth, 4)
        return f"connections that share {link}: {self.crossing}, {share} each"


NOTHING = Shared(float("inf"), 0.0, None, 0)


@lru_cache(maxsize=256)
def shared(comm: Communicator, algorithm: str, used: int) -> Shared:
    """Return the fabric's share with ``used`` channels in use."""
    graph = comm.network
    if graph is None or comm.nodes == 1:
        return NOTHING
    structure = graph.graph["structure"]
    crossing: dict[Hop, float] = defaultdict(float)
    latencies = []
    for ends, channels in connections(comm, algorithm, [1] * used).items():
        hops = list(pairwise(way(structure, ends)))
        for hop in hops:
            crossing[hop] += channels
        latencies.append(sum(graph.edges[hop]["latency"] for hop in hops))
    if not crossing:
        return NOTHING
    share, link = min((graph.edges[hop]["bandwidth"] / count, hop) for hop, count in crossing.items())
    latency = max(latencies) if algorithm == "tree" else sum(latencies) / len(latencies)
    return Shared(share, latency, link, round(crossing[link]))


def way(structure: Machines, ends: Ends) -> list[str]:
    """Return the links from card to card; where rails are not joined the sender takes the receiver's."""
    here, out, there, into = ends
    path = structure.between_cards(*ends) or structure.between_cards(here, into, there, into)
    if path is None:
        raise TopologyError(f"no route from card {out} of node {here} to card {into} of node {there}")
    return path[1:-1]


def connections(comm: Communicator, algorithm: str, weights: Sequence[float]) -> dict[Ends, float]:
    """Return the connections between nodes of a ring or tree, each with its channels' weights."""
    graphs = ordered(comm)
    search = graphs.tree if algorithm == "tree" else graphs.ring
    count, cards = len(search.order), len(comm.network.graph["structure"].cards) if comm.network else 1
    weighted: dict[Ends, float] = defaultdict(float)
    number = comm.machines or range(comm.nodes)
    kinds = 2 * count if algorithm == "tree" else count
    pair = zip(node_trees(comm.nodes), places(comm.nodes), strict=True)
    both = [(parent.tolist(), place.tolist()) for parent, place in pair]
    for kind in range(min(kinds, len(weights))):
        weight = sum(weights[kind::kinds])
        if algorithm == "tree":
            ends = _of_tree(comm, search.order[kind % count], cards, *both[kind // count % 2])
        else:
            turned = kind ^ 1 if search.cross_nic == 2 and count % 2 == 0 else kind
            ends = _of_ring(comm.nodes, search.order[kind], search.order[turned], kind, cards)
        for here, out, there, into in ends:
            weighted[number[here], out, number[there], into] += weight
    return weighted


def _of_ring(nodes: int, even: SearchChannel, odd: SearchChannel, number: int, cards: int) -> Iterator[Ends]:
    """Yield connections from the last GPU of every node to the first of the next."""
    for node in range(nodes):
        after = (node + 1) % nodes
        out, into = (odd if node % 2 else even), (odd if after % 2 else even)
        yield node, _card(out, -1, number, cards), after, _card(into, 0, number, cards)


def _of_tree(
    comm: Communicator, channel: SearchChannel, cards: int, parent: list[int], place: list[int]
) -> Iterator[Ends]:
    """Yield connections from every node to its parent, and back."""
    talks = np.minimum(CHILD_GPUS[comm.graphs.tree.pattern], comm.gpus - 1).tolist()
    below = _card(channel, 0, channel.gpus[0], cards)
    for node, above in enumerate(parent):
        if above >= 0:
            at = _card(channel, talks[place[node] > place[above]], channel.gpus[0], cards)
            yield node, below, above, at
            yield above, at, node, below


def _card(channel: SearchChannel, place: int, number: int, cards: int) -> int:
    """Return the card by which a place of a channel's chain leaves a node, else the channel's number."""
    return (channel.nics[0 if place == 0 else -1] if channel.nics else number) % cards
