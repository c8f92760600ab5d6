"""Placement of ranks on hosts: the same hosts and cables with another numbering of ranks.

A placement is a sequence of hosts, each identified by its rank in the topology: entry r is the
host of rank r. Hosts that are not in it have no rank.

A job with fewer ranks than the cluster is spread over its machines by the rule `EVEN` in every library and
command, unless `PACKED` is requested (docs/decisions/0013-placement.md).
"""

from collections.abc import Iterable, Sequence
from itertools import chain, groupby, zip_longest

from ringside.topologies.graph import Node, Topology, TopologyError, machine_nodes, num_machines, ranks
from ringside.topologies.names import one_of

EVEN, PACKED = "even", "packed"
SPREADS = (EVEN, PACKED)
"""EVEN: the same number of ranks per machine, the first ones may have one more. PACKED: fill in order."""

NUMBERED = "numbered"
"""The first ranks in the topology's numbering, for callers that place ranks themselves."""


def natural(graph: Topology) -> tuple[int, ...]:
    """Return the topology's own order: neighbouring ranks are close to each other."""
    return tuple(range(len(ranks(graph))))


def interleaved(graph: Topology) -> tuple[int, ...]:
    """Take one host of each switch in turn: neighbouring ranks are under different switches.

    A host's switch is the one at its widest link.
    """
    under: dict[Node | None, list[int]] = {}
    for host, node in enumerate(ranks(graph)):
        links = [(-link["bandwidth"], other) for other, link in graph.adj[node].items()]
        switches = [(width, other) for width, other in links if graph.nodes[other]["kind"] != "gpu"]
        _, switch = min(switches, default=(0, None))
        under.setdefault(switch, []).append(host)
    order = chain.from_iterable(zip_longest(*under.values()))
    return tuple(host for host in order if host is not None)


PLACEMENTS = {"natural": natural, "interleaved": interleaved}
"""Placements by name."""


def check_spread(word: str) -> None:
    """Refuse an unknown way to spread ranks over machines."""
    if word not in (*SPREADS, NUMBERED):
        raise TopologyError(f"unknown rank placement {word!r}; write {one_of(SPREADS, word)}")


def shares(rooms: Sequence[int], count: int, spread: str) -> tuple[int, ...]:
    """Return how many of ``count`` ranks each machine gets, given the room of each; zeros are left out."""
    taken = [0] * len(rooms)
    left = min(count, sum(rooms))
    while left:
        for machine, room in enumerate(rooms):
            more = min(left, room - taken[machine], room if spread == PACKED else 1)
            taken[machine] += more
            left -= more
    return tuple(filter(None, taken))


def spread_over(graph: Topology, count: int, spread: str) -> Topology:
    """Return the topology with ``count`` ranks spread over its machines; unused hosts relay no messages.

    With one machine, or if machines cannot be told apart, the graph is returned as it is.
    """
    check_spread(spread)
    machines = _machines(graph) if spread != NUMBERED and count < len(ranks(graph)) else []
    if not machines:
        return graph
    taken = shares([len(machine) for machine in machines], count, spread)
    return place(graph, [host for own, share in zip(machines, taken, strict=False) for host in own[:share]])


def machines_of(graph: Topology, count: int) -> list[int]:
    """Return the machine of each of the first ``count`` ranks; unknown machines have equal runs of ranks."""
    machines = _machines(graph)
    on = {host: number for number, machine in enumerate(machines) for host in machine}
    if on:
        return [on[rank] for rank in range(count)]
    number, total = num_machines(graph), len(ranks(graph))
    return [rank * number // total for rank in range(count)]


def stretches(machines: Iterable[int]) -> tuple[int, ...]:
    """Return the numbers of consecutive ranks that share a machine: 4 and 4 on two machines."""
    return tuple(len(list(run)) for _, run in groupby(machines))


def ranks_text(placed: Sequence[int]) -> str:
    """Describe the number of ranks on each machine: ``4 ranks on each of 2 machines``."""
    phrases = []
    for each, run in groupby(placed):
        machines = len(list(run))
        where = f"each of {machines} machines" if machines > 1 else "a machine"
        phrases.append(f"{each} rank{'s' * (each > 1)} on {where}")
    return " and ".join(phrases)


def placement_notes(count: int | None, spread: str, placed: Sequence[int]) -> list[str]:
    """Return a note on the ranks of each machine, if a count of ranks was requested."""
    if count is None or (len(placed) == 1 and spread == EVEN):
        return []
    return [f"placement {spread}: {ranks_text(placed)}"]


def _machines(graph: Topology) -> list[list[int]]:
    """Return the ranks of each of several machines: the parts connected without the network's switches.

    The list is empty if their number differs from the topology's number of machines.
    """
    hosts, several = ranks(graph), num_machines(graph)
    if several == 1:
        return []
    rank_of = {node: rank for rank, node in enumerate(hosts)}
    machines = [sorted(rank_of[node] for node in nodes if node in rank_of) for nodes in machine_nodes(graph)]
    return machines if len(machines) == several else []


def place(graph: Topology, placement: Sequence[int]) -> Topology:
    """Return the topology with ranks renumbered by a placement; hosts without a rank are left out."""
    hosts = ranks(graph)
    check_placement(graph, placement)
    if len(set(placement)) < len(placement):
        raise TopologyError(
            f"placement {list(placement)} puts several ranks on one host; only one per host is modelled"
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
