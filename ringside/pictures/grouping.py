"""Nodes of a large fabric that are joined alike, as one node with their number: a pod, not 512 circles."""

from collections import Counter

from ringside.topologies import Topology


def grouped(graph: Topology, most: int) -> Topology:
    """Return the graph with alike nodes merged until no tier has more than ``most``; ``count`` is how many.

    Nodes of a tier that is too wide are alike if they have the same neighbours below them, as the switches of
    a pod have; without any below, or if that merges none, the same above. An edge's ``cables`` is the number
    of cables between two groups.
    """
    own, is_smaller = {node: node for node in graph}, True
    while is_smaller:
        is_smaller = False
        for tier in sorted({tier_of(graph, node) for node in graph}, reverse=True):
            for is_above in (False, True):
                count = _width(graph, own, tier)
                if count > most:
                    own = _merged(graph, own, tier, is_above=is_above)
                    is_smaller |= _width(graph, own, tier) < count
    counts, cables = Counter(own.values()), Counter((own[a], own[b]) for a, b in graph.edges)
    small = graph.edge_subgraph([]).copy()
    small.graph.update(graph.graph)
    for node, count in counts.items():
        small.add_node(node, **graph.nodes[node] | {"count": count})
    for (a, b), number in cables.items():
        if a != b:
            small.add_edge(a, b, cables=number)
    return small


def tier_of(graph: Topology, node: str) -> float:
    """Return the height at which a node is drawn."""
    data = graph.nodes[node]
    return float(data.get("tier", 0 if data["kind"] == "gpu" else 1))


def _width(graph: Topology, own: dict[str, str], tier: float) -> int:
    return sum(tier_of(graph, group) == tier for group in set(own.values()))


def _merged(graph: Topology, own: dict[str, str], tier: float, *, is_above: bool) -> dict[str, str]:
    """Return each node's group after one round in a tier; the group has the name of its first node."""
    neighbours: dict[str, set[str]] = {
        group: set() for group in own.values() if tier_of(graph, group) == tier
    }
    for a, b in graph.edges:
        if own[a] in neighbours and (tier_of(graph, b) > tier) == is_above and tier_of(graph, b) != tier:
            neighbours[own[a]].add(own[b])
    first: dict[tuple[str, frozenset[str]], str] = {}
    groups = {}
    for group, others in neighbours.items():
        key = graph.nodes[group]["kind"], frozenset(others)
        groups[group] = first.setdefault(key, group) if others else group
    return {node: groups.get(group, group) for node, group in own.items()}
