"""Which rank sits on which host: the same hosts and cables, ranks numbered another way.

A placement is a sequence of hosts, each by the rank that the topology gives it: entry r is the
host of rank r. Hosts that it leaves out carry no rank.

A job of fewer ranks than a cluster has is spread over its machines by one rule for every library and
command, `EVEN`, unless `PACKED` is asked for (docs/decisions/0013-placement.md).
"""

from collections.abc import Iterable, Sequence
from itertools import chain, groupby, zip_longest

import networkx as nx

from ringside.topologies.graph import Node, Topology, TopologyError, num_machines, ranks
from ringside.topologies.words import one_of

EVEN, PACKED = "even", "packed"
SPREADS = (EVEN, PACKED)
"""As many ranks on every machine, or one more on the first ones; or one machine full after another."""

NUMBERED = "numbered"
"""The first ranks as the topology numbers them, for who has placed them already or does so one by one."""


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


def check_spread(word: str) -> None:
    """Raise TopologyError for an unknown placement of ranks."""
    if word not in (*SPREADS, NUMBERED):
        raise TopologyError(f"unknown rank placement {word!r}; write {one_of(SPREADS, word)}")


def shares(rooms: Sequence[int], count: int, spread: str) -> tuple[int, ...]:
    """How many of ``count`` ranks each machine carries, of machines with room for so many; none where 0."""
    taken = [0] * len(rooms)
    left = min(count, sum(rooms))
    while left:
        for machine, room in enumerate(rooms):
            more = min(left, room - taken[machine], room if spread == PACKED else 1)
            taken[machine] += more
            left -= more
    return tuple(filter(None, taken))


def spread_over(graph: Topology, count: int, spread: str) -> Topology:
    """Return the topology of ``count`` ranks placed over its machines; other ranks relay nothing.

    On one machine, or if machines are not distinguished, these are the first ranks.
    """
    check_spread(spread)
    machines = _machines(graph) if spread != NUMBERED and count < len(ranks(graph)) else []
    if not machines:
        return graph
    taken = shares([len(machine) for machine in machines], count, spread)
    return place(graph, [host for own, share in zip(machines, taken, strict=False) for host in own[:share]])


def machines_of(graph: Topology, count: int) -> list[int]:
    """On which machine each of the first ``count`` ranks is; as many in a row share one that is not told."""
    machines = _machines(graph)
    on = {host: number for number, machine in enumerate(machines) for host in machine}
    if on:
        return [on[rank] for rank in range(count)]
    said, total = num_machines(graph), len(ranks(graph))
    return [rank * said // total for rank in range(count)]


def stretches(machines: Iterable[int]) -> tuple[int, ...]:
    """How many ranks in a row share a machine: 4 and 4 on two machines."""
    return tuple(len(list(run)) for _, run in groupby(machines))


def in_words(placed: Sequence[int]) -> str:
    """How many ranks stand on each machine: ``4 ranks on each of 2 machines``."""
    found = []
    for each, run in groupby(placed):
        machines = len(list(run))
        where = f"each of {machines} machines" if machines > 1 else "a machine"
        found.append(f"{each} rank{'s' * (each > 1)} on {where}")
    return " and ".join(found)


def placement_told(count: int | None, spread: str, placed: Sequence[int]) -> list[str]:
    """A line that says how ranks stand on several machines, where a count of them was asked for."""
    if count is None or (len(placed) == 1 and spread == EVEN):
        return []
    return [f"placement {spread}: {in_words(placed)}"]


def _machines(graph: Topology) -> list[list[int]]:
    """The ranks of each of several machines: of what hangs together without the network's switches.

    None where that makes another number of machines than the topology says.
    """
    hosts, several = ranks(graph), num_machines(graph)
    if several == 1:
        return []
    inside = graph.subgraph([node for node, data in graph.nodes(data=True) if data["kind"] != "switch"])
    rank_of = {node: rank for rank, node in enumerate(hosts)}
    parts = [
        sorted(rank_of[node] for node in part if node in rank_of)
        for part in nx.weakly_connected_components(inside)
    ]
    found = sorted(part for part in parts if part)
    return found if len(found) == several else []


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
    if num_machines(graph) > 1 and len(placement) < len(hosts):
        on = machines_of(graph, len(hosts))
        placed.graph["nodes"] = len({on[host] for host in placement})
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
