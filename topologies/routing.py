"""Routes between ranks: the links that a message crosses, a function of the graph alone.

If ranks have tiers, routes come from structure. Two ranks that share a cable, or each have one to the
same third rank, use those: a mesh of NVLinks. Otherwise both ends climb the tiers of switches until
they meet, as in up/down routing, or reach the two ends of one cable, such as the sockets of a machine.
Two ranks that do not meet (different rails of different machines) use a peer of the sender, behind its
own switch or cable, that is on the receiver's rail, as NCCL's PXN does; if a mesh has no such peer, a
peer of a peer. Any other pair, and any graph without tiers, uses a path found by search.

A topology with a structure (`ringside.topologies.fabrics.structure`) computes its own routes on demand.

Among several paths the fewest hops win, then the widest narrowest link, with a tolerance of a thousandth.
Equal paths are distributed by source and destination: see `ringside.topologies.routing.Turn`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import heapify, heappop, heappush
from itertools import count, pairwise
from math import inf
from typing import Any, NamedTuple

from ringside.topologies.graph import Hop, Node, Topology, TopologyError, ranks

AS_WIDE = 1 - 1e-3
"""A path with at least this share of the widest path's bandwidth counts as equally wide."""


class Reached:
    """A node that a search has reached, with the number of hops and the narrowest link's bytes/s.

    ``before`` are its predecessors on the paths with fewest hops, each with the link's bytes/s.
    """

    __slots__ = ("before", "hops", "node", "width")

    def __init__(self, node: Node, hops: int = 0, width: float = inf) -> None:
        self.node = node
        self.hops = hops
        self.width = width
        self.before: list[tuple[Reached, float]] = []


Table = dict[Node, Reached]
Links = Iterable[tuple[Node, float]]
"""Links of one node, each by the node at its other end and its bytes/s."""


def one_hop(start: Node, links: Links) -> Table:
    """Return the nodes reached over a node's links."""
    table: Table = {}
    begin = Reached(start)
    for node, width in links:
        offer(table, node, begin, width)
    return table


def spread(table: Table, links: Callable[[Node], Links]) -> Table:
    """Return a table with all nodes reached from those of ``table``, and these themselves."""
    nodes = dict(table)
    queue = [(reached.hops, node) for node, reached in table.items()]
    heapify(queue)
    while queue:
        hops, node = heappop(queue)
        reached = nodes[node]
        if reached.hops == hops:
            for other, width in links(node):
                if offer(nodes, other, reached, width):
                    heappush(queue, (hops + 1, other))
    return nodes


def offer(table: Table, node: Node, before: Reached, width: float) -> bool:
    """Add a link to a node to the table; return True if the node is new, or nearer than before."""
    known, hops = table.get(node), before.hops + 1
    if known is None or hops < known.hops:
        known = table[node] = Reached(node, hops, 0.0)
    elif hops > known.hops:
        return False
    known.before.append((before, width))
    known.width = max(known.width, min(width, before.width))
    return len(known.before) == 1


def meet(graph: Topology, a: Node, b: Node) -> tuple[Table, Table]:
    """Search from ``a`` and back from ``b`` over all links; return the two frontiers when they meet."""
    ends = {a: Reached(a)}, {b: Reached(b)}
    seen = {a}, {b}
    while ends[0].keys().isdisjoint(ends[1]):
        side = int(len(ends[0]) > len(ends[1]))
        neighbours = graph.pred if side else graph.adj
        further: Table = {}
        for node, reached in ends[side].items():
            for other, link in neighbours[node].items():
                if other not in seen[side]:
                    offer(further, other, reached, link["bandwidth"])
        if not further:
            raise TopologyError(f"no path from {a!r} to {b!r}")
        seen[side].update(further)
        ends = (ends[0], further) if side else (further, ends[1])
    return ends


class Turn:
    """Distributes messages over equal paths by the ranks of source and destination, s and d.

    Where m links are equally good, a message takes number s + d/m + d/m^2 + ... (each quotient rounded
    down) mod m in the order of the next nodes' names. At the next such choice d replaces s, and s/m
    replaces d. This separates the messages of one step of a ring, an all-to-all or a recursive halving
    for any placement, and also one rank's messages to many and many ranks' messages to one.
    """

    def __init__(self, src: int, dst: int) -> None:
        self._src, self._dst = src, dst

    def one_of(self, ways: list[Reached]) -> Reached:
        """Choose one of several equally good next nodes."""
        count = len(ways)
        if count == 1:
            return ways[0]
        number, rest = self._src, self._dst // count
        while rest:
            number += rest
            rest //= count
        self._src, self._dst = self._dst, self._src // count
        return sorted(ways, key=lambda way: way.node)[number % count]


def join(forth: Table, back: Table, turn: Turn) -> list[Node]:
    """Return the nodes of the chosen path after a forward and a backward search have met."""
    met = [(forth[node], back[node]) for node in forth.keys() & back.keys()]
    hops = min([there.hops + rest.hops for there, rest in met])
    met = [(there, rest) for there, rest in met if there.hops + rest.hops == hops]
    if len(met) == 1 and (way := _only_way(*met[0])):
        return way
    enough = AS_WIDE * max([min(there.width, rest.width) for there, rest in met])
    onward = {
        there: _wide(rest, enough) for there, rest in met if there.width >= enough and rest.width >= enough
    }
    places = list(onward)
    for place in places:
        for before in _wide(place, enough):
            if before not in onward:
                onward[before] = []
                places.append(before)
            onward[before].append(place)
    (place,) = (place for place in places if not place.before)
    path = [place.node]
    while ways := onward[place] if place in onward else _wide(place, enough):
        place = turn.one_of(ways)
        path.append(place.node)
    return path


def _wide(place: Reached, enough: float) -> list[Reached]:
    """Return the predecessors of a node on the paths that are wide enough."""
    return [before for before, width in place.before if width >= enough and before.width >= enough]


def _only_way(there: Reached, rest: Reached) -> list[Node]:
    """Return the nodes of the path through a place if there is only one, as on most machines; else []."""
    path = [there.node]
    while there.before:
        if len(there.before) > 1:
            return []
        ((there, _),) = there.before
        path.append(there.node)
    path.reverse()
    while rest.before:
        if len(rest.before) > 1:
            return []
        ((rest, _),) = rest.before
        path.append(rest.node)
    return path


class _Around(NamedTuple):
    """The links of a node with a tier: to and from ranks, higher tiers and its own tier."""

    to_ranks: Links = ()
    from_ranks: Links = ()
    to_above: Links = ()
    from_above: Links = ()
    from_beside: Links = ()


class Routes:
    """The routes of one topology; search results are cached.

    >>> from ringside.topologies import star
    >>> Routes(star(4)).route(0, 3)
    (('gpu0', 'switch'), ('switch', 'gpu3'))
    """

    def __init__(self, graph: Topology) -> None:
        self._graph = graph
        self._ranks = ranks(graph)
        self._structure = graph.graph.get("structure")
        self._known: dict[tuple[int, int], tuple[Hop, ...]] = {}
        self._hops: dict[Hop, Hop] = {}
        self._only: dict[Node, Hop | None] = {}
        self._neighbours: dict[Node, _Around] = {}
        self._cables: dict[Node, tuple[Table, Table]] = {}
        self._ascents: dict[Node, list[tuple[Table, Table]]] = {}
        self._descents: dict[Node, Table] = {}
        self._switches: dict[tuple[int, ...], Node] = {}

    def route(self, src: int, dst: int) -> tuple[Hop, ...]:
        """Return the links from rank ``src`` to rank ``dst`` in the order in which a message crosses them."""
        route = self._known.get((src, dst))
        if route is None and self._structure is not None:
            route = self._by_structure(src, dst)
        if route is None:
            a, b = self._ranks[src], self._ranks[dst]
            hops = self._only_way(a, b) or pairwise(self._path(a, b, Turn(src, dst)))
            # a million routes share a thousand links
            route = tuple([self._hops.setdefault(hop, hop) for hop in hops])
            self._known[src, dst] = route
        return route

    def _by_structure(self, src: int, dst: int) -> tuple[Hop, ...] | None:
        """Return the structure's route if the graph still has its links."""
        if self._structure is None or src == dst:
            return None
        way = self._structure.way(self._ranks[src], self._ranks[dst])
        hops = tuple(pairwise(way or ()))
        return hops if hops and all(self._graph.has_edge(*hop) for hop in hops) else None

    def star(self, channels: set[int]) -> tuple[list[Hop], list[Hop]] | None:
        """Return every rank's link up to the one switch that joins all ranks, and down; None elsewhere.

        A route then consists of these two links, on any of ``channels``.
        """
        adjacent = self._graph.adj
        switches = {next(iter(adjacent[rank])) if len(adjacent[rank]) == 1 else None for rank in self._ranks}
        alike = all(self.on(channel) is self for channel in channels)
        if self._structure is not None or len(switches) > 1 or not alike:
            return None
        (switch,) = switches
        if switch is None or any(rank not in adjacent[switch] for rank in self._ranks):
            return None
        return [(rank, switch) for rank in self._ranks], [(switch, rank) for rank in self._ranks]

    def on(self, channel: int) -> "Routes":
        """Return the routes of one of a library's channels; here all channels have the same."""
        return self

    def to_switch(self, rank: int, joined: tuple[int, ...]) -> tuple[Hop, ...]:
        """Return the links from a rank up to the switch that joins some ranks: see `switch`."""
        switch, forth = self.switch(joined), self._ascent(self._ranks[rank], 0)
        if switch not in forth:
            raise TopologyError(f"no path up from {self._ranks[rank]!r} to {switch!r}")
        return tuple(pairwise(join(forth, {switch: Reached(switch)}, Turn(rank, rank))))

    def from_switch(self, joined: tuple[int, ...], rank: int) -> tuple[Hop, ...]:
        """Return the links from the switch that joins some ranks down to a rank."""
        switch, back = self.switch(joined), self._descent(self._ranks[rank])
        if switch not in back:
            raise TopologyError(f"no path down from {switch!r} to {self._ranks[rank]!r}")
        return tuple(pairwise(join({switch: Reached(switch)}, back, Turn(rank, rank))))

    def switch(self, joined: tuple[int, ...]) -> Node:
        """Return the nearest switch, of NVLinks or of the network, above all of some ranks, by tiers."""
        if joined not in self._switches:
            nodes = self._graph.nodes
            climbs = [self._ascent(self._ranks[rank], 0) for rank in joined]
            common = set(climbs[0]).intersection(*climbs[1:])
            able = [node for node in common if nodes[node]["kind"] in ("nvswitch", "switch")]
            if not able:
                raise TopologyError(f"no switch joins ranks {', '.join(map(str, joined))}")
            self._switches[joined] = min(able, key=lambda node: (climbs[0][node].hops, node))
        return self._switches[joined]

    def _only_way(self, a: Node, b: Node) -> tuple[Hop, ...] | None:
        """Return the route over the only link that leaves ``a`` if ``b`` is one or two links away."""
        if a not in self._only:
            ahead = self._graph.adj[a]
            self._only[a] = (a, next(iter(ahead))) if len(ahead) == 1 else None
        only = self._only[a]
        if only is None:
            return None
        _, over = only
        if over == b:
            return (only,)
        return (only, (over, b)) if self._graph.has_edge(over, b) else None

    def _path(self, a: Node, b: Node, turn: Turn) -> list[Node]:
        if self._graph.has_edge(a, b):
            return [a, b]
        for forth, back in self._searches(a, b):
            if not forth.keys().isdisjoint(back):
                return join(forth, back, turn)
        return join(*meet(self._graph, a, b), turn)

    def _searches(self, a: Node, b: Node) -> Iterator[tuple[Table, Table]]:
        """Yield the nodes that both ends reach by tiers; the first common node gives the route."""
        nodes = self._graph.nodes
        if "tier" not in nodes[a] or "tier" not in nodes[b]:
            return
        yield self._cabled(a)[0], self._cabled(b)[1]
        for peers in count():
            climb = self._ascent(a, peers)
            if not climb:
                return
            yield climb, self._descent(b)

    def _cabled(self, rank: Node) -> tuple[Table, Table]:
        """Return the ranks at the far end of a rank's cables, and those with a cable to it."""
        if rank not in self._cables:
            around = self._around(rank)
            self._cables[rank] = one_hop(rank, around.to_ranks), one_hop(rank, around.from_ranks)
        return self._cables[rank]

    def _ascent(self, a: Node, peers: int) -> Table:
        """Return the ranks that a message from ``a`` reaches through ``peers`` ranks, and those above."""
        stages = self._ascents.setdefault(a, [])
        while len(stages) <= peers:
            passed = self._next(stages) if stages else {a: Reached(a)}
            stages.append((passed, spread(passed, lambda node: self._around(node).to_above)))
        return stages[peers][1]

    def _next(self, stages: list[tuple[Table, Table]]) -> Table:
        """Return the new ranks at the ends of the last stage's cables and behind its switches."""
        passed, _ = stages[-1]
        switches: Table = {}
        peers: Table = {}
        for rank in passed.values():
            for switch, width in self._around(rank.node).to_above:
                offer(switches, switch, rank, width)
        for place in (*passed.values(), *switches.values()):
            for peer, width in self._around(place.node).to_ranks:
                if all(peer not in earlier for earlier, _ in stages):
                    offer(peers, peer, place, width)
        return peers

    def _descent(self, b: Node) -> Table:
        """Return all nodes above ``b``, and those cabled to these on the same tier."""
        if b not in self._descents:
            down = spread({b: Reached(b)}, lambda node: self._around(node).from_above)
            across: Table = {}
            for place in down.values():
                for node, width in self._around(place.node).from_beside:
                    if node not in down or place.hops + 1 < down[node].hops:
                        offer(across, node, place, width)
            self._descents[b] = down | across
        return self._descents[b]

    def _around(self, node: Node) -> _Around:
        """Classify a node's links, once: a switch may have thousands of neighbours."""
        if node not in self._neighbours:
            nodes, tier = self._graph.nodes, self._graph.nodes[node].get("tier")
            out, into = self._graph.adj[node], self._graph.pred[node]

            def links(around: Mapping[Node, Any], wanted: Callable[[Any], bool]) -> Links:
                return [(other, link["bandwidth"]) for other, link in around.items() if wanted(nodes[other])]

            def is_rank(other: Any) -> bool:
                return bool(other["kind"] == "gpu")

            def is_above(other: Any) -> bool:
                return bool(other.get("tier", -1) > tier)

            def is_beside(other: Any) -> bool:
                return bool(other.get("tier", -1) == tier)

            self._neighbours[node] = _Around() if tier is None else _Around(
                links(out, is_rank), links(into, is_rank), links(out, is_above), links(into, is_above),
                links(into, is_beside),
            )  # fmt: skip
        return self._neighbours[node]
