"""Which rank sits on which host: the same hosts and cables, ranks numbered another way.

A placement is a sequence of hosts, each by the rank that the topology gives it: entry r is the
host of rank r. Hosts that it leaves out carry no rank.
"""

from collections.abc import Sequence
from itertools import chain, zip_longest

from topologies.graph import Node, Topology, TopologyError, ranks


def natural(graph: Topology) -> tuple[int, ...]:
    """The topology's own order: neighbouring ranks sit close to each other."""
    return tuple(range(len(ranks(graph))))


def interleaved(graph: Topology) -> tuple[int, ...]:
    """One host from under each switch in turn: neighbouring ranks sit under different switches.

    A host's switch is the one that it has its widest link to.
    """
    under: dict[Node | None, list[int]] = {}
    for host, node in enumerate(ranks(graph)):
        links = [(-link["bandwidth"], other) for other, link in graph.adj[node].items()]
        switches = [(width, other) for width, other in links if graph.nodes[other]["kind"] != "gpu"]
        _, switch = min(switches, default=(0, None))
        under.setdefault(switch, []).append(host)
    dealt = chain.from_iterable(zip_longest(*under.values()))
    return tuple(host for host in dealt if host is not None)


PLACEMENTS = {"natural": natural, "interleaved": interleaved}
"""By name."""


def place(graph: Topology, placement: Sequence[int]) -> Topology:
    """The topology as ranks see it that are placed so; hosts without a rank are left out."""
    hosts = ranks(graph)
    check_placement(graph, placement)
    if len(set(placement)) < len(placement):
        raise TopologyError(
            f"placement {list(placement)} puts several ranks on one host; a model has one each"
        )
    placed = graph.copy()
    placed.remove_nodes_from(set(hosts) - {hosts[host] for host in placement})
    for rank, host in enumerate(placement):
        placed.nodes[hosts[host]]["rank"] = rank
    return placed


def check_placement(graph: Topology, placement: Sequence[int]) -> None:
    """Raise `TopologyError` unless every entry of the placement is a host of the topology."""
    hosts = len(ranks(graph))
    strange = sorted({host for host in placement if not 0 <= host < hosts})
    if strange or not placement:
        raise TopologyError(
            f"placement {list(placement)} names hosts {strange}; {graph.graph.get('name', 'the topology')} "
            f"has hosts 0 to {hosts - 1}, and there is at least one rank"
        )
