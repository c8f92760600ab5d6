"""Routes that follow from how a topology was built, computed on demand, one step per hop.

If the graph was edited so that a route's links no longer exist, a search finds the route instead
(`ringside.topologies.routing`).
"""

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from math import inf

import networkx as nx
import numpy as np

from ringside.topologies.fabrics.fabric import Fabric, Floats, Ints, carried
from ringside.topologies.graph import Hop, Node, Topology, ranks
from ringside.topologies.routing import Routes


class Structure(ABC):
    """Routes from one rank's node to another's."""

    fabric: Fabric

    @abstractmethod
    def way(self, a: Node, b: Node) -> list[Node] | None:
        """Return the nodes from end to end, both included; ``None`` if the structure has no route."""

    @abstractmethod
    def ports(self, src: Sequence[Node], dst: Sequence[Node]) -> tuple[Ints, Ints]:
        """Return the ports by which messages leave and arrive, -1 for messages within a machine.

        Both are tables of shape (sources, destinations).
        """

    @abstractmethod
    def plugged(self, port: int) -> Node:
        """Return the node that is plugged into a port."""

    def carried(self, hosts: Sequence[Node], sent: Iterable[tuple[Ints, Ints, Floats]]) -> dict[Hop, float]:
        """Sum the bytes on each cable of a switch; sources and destinations are indices of ``hosts``."""
        out, into = self.ports(hosts, hosts)
        count, traffic = self.fabric.ports, defaultdict[Hop, float](float)
        leaving, arriving = np.zeros(count), np.zeros(count)

        def between() -> Iterator[tuple[Ints, Ints, Floats]]:
            for src, dst, nbytes in sent:
                a, b = out[src, dst], into[src, dst]
                away = a >= 0
                a, b, moved = a[away], b[away], nbytes[away]
                leaving[:] += np.bincount(a, moved, count)
                arriving[:] += np.bincount(b, moved, count)
                yield a, b, moved

        traffic.update(carried(self.fabric, between()))
        for port in np.flatnonzero(leaving + arriving).tolist():
            ends = self.plugged(port), self.fabric.above(port)
            traffic[ends] += float(leaving[port])
            traffic[ends[::-1]] += float(arriving[port])
        return traffic


class Hosts(Structure):
    """Ranks that are plugged straight into a fabric, by port."""

    def __init__(self, fabric: Fabric, hosts: Sequence[Node]) -> None:
        self.fabric = fabric
        self._hosts = list(hosts)
        self._port = {node: port for port, node in enumerate(hosts)}

    def way(self, a: Node, b: Node) -> list[Node] | None:
        """Route through the fabric."""
        if a not in self._port or b not in self._port:
            return None
        way = self.fabric.way(self._port[a], self._port[b])
        return None if way is None else [a, *way, b]

    def ports(self, src: Sequence[Node], dst: Sequence[Node]) -> tuple[Ints, Ints]:
        """Return the ranks' own ports."""
        a, b = (np.array([self._port[node] for node in nodes], dtype=np.int64) for nodes in (src, dst))
        out, into = (table.copy() for table in np.broadcast_arrays(a[:, None], b))
        out[a[:, None] == b] = -1
        return out, into

    def plugged(self, port: int) -> Node:
        """Return the rank's node."""
        return self._hosts[port]


class Machines(Structure):
    """Identical machines whose cards are plugged into a fabric, machine after machine.

    A message enters by the card nearest to its receiver. On a fabric with rails it leaves by the card with
    that number if NVLinks lead to the GPU beside it, as NCCL's PXN does; otherwise by the card nearest to its
    sender.
    """

    def __init__(self, machine: Topology, cards: Sequence[Node], fabric: Fabric, nodes: int) -> None:
        self.fabric, self.cards = fabric, tuple(cards)
        self._machine = machine
        self._gpus = ranks(machine)
        self._inside = Routes(machine)
        self._onto: dict[tuple[Node, Node], list[Node]] = {}
        self._place = {
            f"node{node}/{gpu}": (node, number)
            for node in range(nodes)
            for number, gpu in enumerate(self._gpus)
        }

    def way(self, a: Node, b: Node) -> list[Node] | None:
        """Route within the machine, or over a card of either machine."""
        if a not in self._place or b not in self._place:
            return None
        (here, src), (there, dst) = self._place[a], self._place[b]
        if here == there:
            return _named(here, self._between(src, dst))
        into = self._card[dst]
        for out, start in self._exits(src, dst):
            way = self.between_cards(here, out, there, into)
            if way is not None:
                back = self._to_card(self._gpus[dst], self.cards[into], back=True)
                return [*_named(here, start), *way[1:-1], *_named(there, back)]
        return None

    def ports(self, src: Sequence[Node], dst: Sequence[Node]) -> tuple[Ints, Ints]:
        """Return the ports of the cards that `way` uses; on unjoined rails, those of the receiver's rail."""
        gpus, cards = range(len(self._gpus)), len(self.cards)
        joined = self.fabric.way(0, cards - 1) is not None
        exits = [[self._exits(a, b) for b in gpus] for a in gpus]
        table = np.array([[ways[0 if joined else -1][0] for ways in row] for row in exits], dtype=np.int64)
        card = np.array(self._card, dtype=np.int64)
        here, a = np.array([self._place[node] for node in src], dtype=np.int64).reshape(-1, 2).T
        there, b = np.array([self._place[node] for node in dst], dtype=np.int64).reshape(-1, 2).T
        out = here[:, None] * cards + table[a[:, None], b]
        out[here[:, None] == there] = -1
        return out, np.broadcast_to(there * cards + card[b], out.shape)

    def plugged(self, port: int) -> Node:
        """Return the card."""
        node, card = divmod(port, len(self.cards))
        return f"node{node}/{self.cards[card]}"

    def between_cards(self, here: int, out: int, there: int, into: int) -> list[Node] | None:
        """Route from a card of one machine to a card of another, by their numbers."""
        cards = len(self.cards)
        way = self.fabric.way(here * cards + out, there * cards + into)
        ends = f"node{here}/{self.cards[out]}", f"node{there}/{self.cards[into]}"
        return None if way is None else [ends[0], *way, ends[1]]

    def _exits(self, src: int, dst: int) -> list[tuple[int, list[Node]]]:
        """Return the cards to try, each with the path to it: the receiver's rail, then the sender's own."""
        into, own, gpu = self._card[dst], self._card[src], self._gpus[src]
        ways = [(own, self._to_card(gpu, self.cards[own]))]
        if not self.fabric.rails or own == into:
            return ways
        peer = self._peers.get(into)
        if peer is not None and peer != src:
            over = self._between(src, peer)
            if all(self._machine.edges[hop]["kind"] in ("nvlink", "xgmi") for hop in pairwise(over)):
                onto = self._to_card(self._gpus[peer], self.cards[into])
                return [(into, over + onto[1:]), *ways]
        return [*ways, (into, self._to_card(gpu, self.cards[into]))]

    @cached_property
    def _card(self) -> list[int]:
        """Return each GPU's nearest card; GPUs equally near to several cards use them in turn."""
        nearest: list[int] = []
        taken: dict[tuple[int, ...], int] = {}
        for gpu in self._gpus:
            far = nx.single_source_shortest_path_length(self._alone(gpu), gpu)
            hops = [far.get(card, inf) for card in self.cards]
            near = tuple(number for number, count in enumerate(hops) if count == min(hops))
            turn = taken.get(near, 0)
            taken[near] = turn + 1
            nearest.append(near[turn % len(near)])
        return nearest

    @cached_property
    def _peers(self) -> dict[int, int]:
        """Return for each card the first GPU to which it is nearest."""
        return {card: gpu for gpu, card in reversed(list(enumerate(self._card)))}

    def _between(self, src: int, dst: int) -> list[Node]:
        if src == dst:
            return [self._gpus[src]]
        route = self._inside.route(src, dst)
        return [route[0][0], *(b for _, b in route)]

    def _to_card(self, gpu: Node, card: Node, *, back: bool = False) -> list[Node]:
        """Return the path from a GPU to a card of its machine, or back, avoiding other GPUs."""
        ends = (card, gpu) if back else (gpu, card)
        if ends not in self._onto:
            alone = self._alone(gpu)
            ways = nx.all_shortest_paths(alone, *ends) if nx.has_path(alone, *ends) else [[]]
            self._onto[ends] = min(ways) or nx.shortest_path(self._machine, *ends)
        return self._onto[ends]

    def _alone(self, gpu: Node) -> Topology:
        """Return the machine without its other GPUs."""
        others = {*self._gpus} - {gpu}
        return self._machine.subgraph([node for node in self._machine if node not in others])


def _named(node: int, way: list[Node]) -> list[Node]:
    return [f"node{node}/{place}" for place in way]
