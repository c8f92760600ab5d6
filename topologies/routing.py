"""Which links a message from one rank to another crosses.

Routes come from structure, not from search. Two ranks that share a cable, or each have one to the
same third rank, use those: a mesh of NVLinks. Otherwise both ends climb the tiers of switches until
they meet, as up/down routing does, or stand on two sides of one cable, as the sockets of a machine
do. Two ranks that meet nowhere (different rails of different machines) go through a peer of the
sender, behind its own switch or cable, that sits on the receiver's rail, as NCCL's PXN does; and
through a peer of the peer where a mesh gives it none. Only what is left, and any graph without
tiers, falls back on the path with fewest hops.
"""

from collections.abc import Iterator
from itertools import pairwise

import networkx as nx

from topologies.graph import Hop, Node, Topology, TopologyError, ranks


class Routes:
    """The routes of one topology, each found once.

    >>> from topologies import star
    >>> Routes(star(4)).route(0, 3)
    (('gpu0', 'switch'), ('switch', 'gpu3'))
    """

    def __init__(self, graph: Topology) -> None:
        self._graph = graph
        self._ranks = ranks(graph)
        self._known: dict[tuple[int, int], tuple[Hop, ...]] = {}
        self._climbs: dict[tuple[Node, bool], dict[Node, list[Node]]] = {}
        self._cables: dict[Node, list[Node]] = {}
        self._ups: dict[tuple[Node, bool], list[Node]] = {}

    def route(self, src: int, dst: int) -> tuple[Hop, ...]:
        """The links from rank ``src`` to rank ``dst`` in the order in which a message crosses them."""
        if (src, dst) not in self._known:
            path = self._path(self._ranks[src], self._ranks[dst])
            self._known[src, dst] = tuple(pairwise(path))
        return self._known[src, dst]

    def _path(self, a: Node, b: Node) -> list[Node]:
        path = self._by_cable(a, b) or self._up_and_down(a, b) or self._through_peers(a, b)
        if path is None:
            try:
                path = nx.shortest_path(self._graph, a, b)
            except nx.NetworkXNoPath:
                raise TopologyError(f"no path from {a!r} to {b!r}") from None
        return path

    def _by_cable(self, a: Node, b: Node) -> list[Node] | None:
        if self._graph.has_edge(a, b):
            return [a, b]
        between = [[a, *hop, b] for hop in self._cabled(a) if self._graph.has_edge(hop[0], b)]
        return self._best(between) if between else None

    def _up_and_down(self, a: Node, b: Node) -> list[Node] | None:
        """Of the places where climbs from both ends meet, or stand side by side, that of the best way."""
        up, down = self._climb(a, outward=True), self._climb(b, outward=False)
        ways = [[*path, *reversed(down[node][:-1])] for node, path in up.items() if node in down]
        ways += [
            [*path, *reversed(down[beside])]
            for node, path in up.items()
            for beside in self._beside(node)
            if beside in down
        ]
        return self._best(ways) if ways else None

    def _best(self, paths: list[list[Node]]) -> list[Node]:
        """The shortest, then the widest; equally good ones are taken in turn by the sender's rank."""

        def rating(path: list[Node]) -> tuple[int, float]:
            return len(path), -min(self._graph.edges[hop]["bandwidth"] for hop in pairwise(path))

        best = min(map(rating, paths))
        equal = [path for path in paths if rating(path) == best]
        return equal[self._graph.nodes[paths[0][0]]["rank"] % len(equal)]

    def _climb(self, start: Node, *, outward: bool) -> dict[Node, list[Node]]:
        """Every node above ``start``, itself included, each with the shortest way up to it."""
        if (start, outward) not in self._climbs:
            found = level = {start: [start]}
            while level:
                level = {
                    above: [*path, above]
                    for node, path in level.items()
                    for above in self._above(node, outward=outward)
                    if above not in found
                }
                found = found | level
            self._climbs[start, outward] = found
        return self._climbs[start, outward]

    def _above(self, node: Node, *, outward: bool) -> list[Node]:
        """The next nodes up from a node; looked up once, for a switch may have thousands of neighbours."""
        if (node, outward) not in self._ups:
            nodes = self._graph.nodes
            tier = nodes[node].get("tier")
            neighbours = self._graph.successors(node) if outward else self._graph.predecessors(node)
            self._ups[node, outward] = [
                n for n in neighbours if tier is not None and nodes[n].get("tier", -1) > tier
            ]
        return self._ups[node, outward]

    def _beside(self, node: Node) -> list[Node]:
        """The nodes of the same tier at the other end of a cable."""
        if node not in self._cables:
            tier = self._graph.nodes[node].get("tier")
            others = self._graph.successors(node) if tier is not None else ()
            self._cables[node] = [n for n in others if self._graph.nodes[n].get("tier") == tier]
        return self._cables[node]

    def _through_peers(self, a: Node, b: Node) -> list[Node] | None:
        """Through one rank after another, as few as can be, the last of which meets ``b``."""
        seen, paths = {a}, [[a]]
        while paths:
            further = []
            for path in paths:
                for hop in self._peers(path[-1]):
                    if hop[-1] not in seen:
                        seen.add(hop[-1])
                        further.append([*path, *hop])
            for path in further:
                onward = self._up_and_down(path[-1], b)
                if onward:
                    return [*path[:-1], *onward]
            paths = further
        return None

    def _peers(self, a: Node) -> Iterator[list[Node]]:
        """The way from ``a`` to each rank at the end of its cables, then behind its switches."""
        if "tier" in self._graph.nodes[a]:
            yield from self._cabled(a)
        for switch in self._above(a, outward=True):
            for peer in self._graph.successors(switch):
                if self._graph.nodes[peer]["kind"] == "gpu":
                    yield [switch, peer]

    def _cabled(self, a: Node) -> Iterator[list[Node]]:
        return ([peer] for peer in self._graph.successors(a) if self._graph.nodes[peer]["kind"] == "gpu")
