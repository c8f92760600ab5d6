"""Choose a path from node to node: fewest hops, then most bandwidth, then round robin.

Paths are not enumerated, since their number can be astronomical: a search records the predecessors of each
node that it reaches, and two searches, one from either end, meet.
"""

from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush
from math import inf

from ringside.topologies.graph import Node, Topology, TopologyError

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
