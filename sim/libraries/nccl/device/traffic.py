"""The seconds for which links carry an algorithm's bytes: the one count of NCCL's traffic.

Every connection of every channel carries its bytes over the links on its way: between a node's GPUs, from a
GPU to its card, and over the cables of a fabric. A link's bytes over its data-sheet bandwidth are a lower
bound of every answer. Counted are the algorithm's own rings, trees, heads and messages, with the protocol's
flags beside the data: data that switches add cross a link once.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise, product

import numpy as np
from numpy.typing import NDArray

from ringside.sim.collective import Collective
from ringside.sim.libraries.library import ROUNDING
from ringside.sim.libraries.nccl.chunks import WIRE_EFFICIENCY
from ringside.sim.libraries.nccl.communicator import Communicator
from ringside.sim.libraries.nccl.device.connect import Crossing, crossings, heads, ordered, paths_of, roles
from ringside.sim.libraries.nccl.device.fabric import Ends, connections
from ringside.sim.libraries.nccl.device.machine import ExchangedBytes, between_cards, cards_of, exchange
from ringside.sim.libraries.nccl.device.p2p import KINDS as POINT_TO_POINT
from ringside.sim.libraries.nccl.device.schedules import PIPELINED, carried_bytes
from ringside.sim.libraries.nccl.graph.graph import Link, PathClass
from ringside.sim.libraries.nccl.names import ALGORITHMS
from ringside.sim.libraries.nccl.tuner import cost_table
from ringside.sim.trees import trees as node_trees
from ringside.topologies.fabrics.fabric import carried as carried_by_cables
from ringside.topologies.graph import Hop, Node

Seconds = float
Floats = NDArray[np.float64]

NVLINK, PCIE, CARDS, CARD = "NVLinks of a GPU", "PCIe of a GPU", "cards of a node", "card of a node"
"""Kinds of busy links at a node: the busiest NVLink, the busiest link of PCIe, all cards together, and the
busiest card if they are not loaded alike. A cable between switches is named by its ends."""

AT_A_NODE = NVLINK, PCIE, CARDS, CARD

_PARTS = {PathClass.NVL: NVLINK, PathClass.PIX: PCIE, PathClass.NET: CARD}

_SLOT = 63 / 48
"""A slot's real rate over NCCL's: 16 lanes of PCIe 5.0 have 63 GB/s, and NCCL writes 48."""

Sends = Iterable[tuple[Sequence[Link], "float | Floats"]]
"""Consecutive links, and the bytes that they carry: a figure per kind of node."""


@lru_cache(maxsize=1024)
def traffic(comm: Communicator, collective: Collective, algorithm: str, protocol: str) -> dict[str, Seconds]:
    """Return the seconds for which the busiest of each kind of link carries bytes one way, by its name.

    A fabric's cables are missing if their traffic is unknown: too many messages, or an algorithm that cannot
    run.
    """
    busy = _of_node(comm, collective, algorithm, protocol)
    cables = cable_bytes(comm, collective, algorithm, protocol)
    if cables and comm.network is not None:
        edges = comm.network.edges
        seconds, hop = max((nbytes / edges[hop]["bandwidth"], hop) for hop, nbytes in cables.items())
        busy["->".join(hop)] = seconds
    return busy


def least_traffic(comm: Communicator, collective: Collective) -> Seconds:
    """Return the busiest link's seconds with the NCCL algorithm that loads it least."""
    if collective.kind in POINT_TO_POINT:
        return max(traffic(comm, collective, "p2p", "simple").values())
    table = cost_table(comm, collective.kind, collective.dtype or "float32", collective.redop)
    able = [algorithm for algorithm in ALGORITHMS if table.rate(algorithm, "simple")]
    return min(max(traffic(comm, collective, algorithm, "simple").values()) for algorithm in able)


def _of_node(comm: Communicator, collective: Collective, algorithm: str, protocol: str) -> dict[str, Seconds]:
    busy, system = dict.fromkeys(AT_A_NODE, 0.0), comm.system
    for sends in _sends(comm, collective, algorithm, protocol):
        load: dict[Link, float | Floats] = defaultdict(float)
        for links, nbytes in sends:
            for link in links:
                load[link] = load[link] + nbytes
        for link, total in load.items():
            if part := _PARTS.get(link.kind):
                busy[part] = max(busy[part], _most(total) / _in_datasheet(comm, link))
        for out in (True, False):
            cards = [link for link in load if link.kind is PathClass.NET and (link.to.kind == "net") == out]
            total = _most(sum(load[link] for link in cards))
            busy[CARDS] = max(busy[CARDS], total / (system.nics * system.nic) if cards else 0.0)
    inside, between = _claimed(comm)
    if busy[CARD] <= busy[CARDS] * (1 + ROUNDING):
        del busy[CARD]
    more = {CARDS: between, CARD: between}
    return {part: seconds / more.get(part, inside) for part, seconds in busy.items()}


def _most(nbytes: float | Floats) -> float:
    """Return the most bytes of some ranks, or those of all."""
    return float(np.max(nbytes)) if isinstance(nbytes, np.ndarray) else nbytes


def _in_datasheet(comm: Communicator, link: Link) -> float:
    """Return the data-sheet bytes/s of a link."""
    match link.kind:
        case PathClass.NVL:
            return _nvlink(comm, link) * comm.system.nvlink_datasheet_rate / comm.system.nvlink_rate
        case PathClass.PIX:
            return link.bandwidth * _SLOT
        case _:
            return link.bandwidth


def _nvlink(comm: Communicator, link: Link) -> float:
    """Return NCCL's rate of an NVLink; the widest's if NCCL was given other pairs than are cabled."""
    if not comm.system.cabling:
        return link.bandwidth
    gpus = paths_of(comm).nodes.of["gpu"]
    return max(one.bandwidth for gpu in gpus for one in gpu.links if one.kind is PathClass.NVL)


@lru_cache(maxsize=256)
def _claimed(comm: Communicator) -> tuple[float, float]:
    """Return the factor by which a graph file or a log exceeds a GPU's links, or the cards."""
    system = comm.system
    graphs = comm.usable.values()
    gpu = system.nvlink * system.nvlink_datasheet_rate / system.nvlink_rate + system.pcie
    cards = system.nics * system.nic
    inside = max(graph.channels * graph.bw_intra for graph in graphs)
    between = max(graph.channels * graph.bw_inter for graph in graphs)
    return max(inside / gpu, 1.0) if gpu else 1.0, max(between / cards, 1.0) if cards else 1.0


def _sends(comm: Communicator, collective: Collective, algorithm: str, protocol: str) -> Iterator[Sends]:
    """Yield the sends over the links of one node, for each kind of node."""
    if algorithm in ("p2p", "pat"):
        if moved := exchange(comm, collective, algorithm):
            yield _exchanged(comm, moved)
    elif algorithm in ("ring", "tree"):
        weights = _by_channel(comm, collective, algorithm, protocol)
        inside, ends = crossings(comm, algorithm, len(weights))
        for node in ends or [[]]:
            own = (one for one in (*inside, *node) if not _is_cut(comm, collective, one))
            yield [(one.links, weights[one.channel]) for one in own]
    elif algorithm in comm.usable:
        for degrees in roles(comm.nodes) if algorithm == "nvls_tree" else [[[True], [True]]]:
            yield list(_switched(comm, collective, algorithm, [sum(degree) for degree in degrees]))


def _by_channel(comm: Communicator, collective: Collective, algorithm: str, protocol: str) -> list[float]:
    """Return the bytes, flags included, that each connection of a channel's ring or tree carries one way."""
    times, ranks = 1.0, comm.ranks
    if algorithm == "ring" and collective.kind not in PIPELINED:
        times = 2 * (ranks - 1) / ranks if collective.kind == "all_reduce" else ranks - 1
    each = times / WIRE_EFFICIENCY[protocol]
    return [nbytes * each for nbytes in carried_bytes(comm, collective, algorithm, protocol)]


def _is_cut(comm: Communicator, collective: Collective, one: Crossing) -> bool:
    """Return whether a ring's connection carries nothing: into a broadcast's root, or out of a reduce's.

    On two nodes that is an end of the node without a root; of more some have no such end.
    """
    if collective.kind not in PIPELINED or comm.nodes > 2:
        return False
    end = one.dst if collective.kind == "broadcast" else one.src
    inside = one.src >= 0 <= one.dst
    return end == collective.root if comm.nodes == 1 else not inside and end < 0


def _switched(
    comm: Communicator, collective: Collective, algorithm: str, degrees: Sequence[int]
) -> Iterator[tuple[Sequence[Link], float]]:
    """Yield sends to switches or heads that add; ``degrees`` are a node's neighbours in both trees."""
    paths, kind, gpus, nodes = paths_of(comm), collective.kind, comm.gpus, comm.nodes
    place, carried = _places(comm), carried_bytes(comm, collective, algorithm, "simple")
    if algorithm == "collnet_chain":
        yield from _chained(comm, carried)
        return
    own, whole = [place[head] for head in heads(comm, algorithm).tolist()], float(sum(carried))
    share = whole / len(own)
    if kind == "all_reduce":
        trees = [sum(carried[parity::2]) / len(own) for parity in (0, 1)]
        climbs = sum(degree * nbytes for degree, nbytes in zip(degrees, trees, strict=True))
        out = into = climbs if algorithm == "nvls_tree" else share
        up = down = whole
        beside = share
    else:  # every GPU is a head of its own block on each node
        beside = nodes * whole
        gathers = kind == "all_gather"
        out, into = (whole, (nodes - 1) * whole) if gathers else (nodes * whole, whole)
        up, down = (beside, (gpus - 1) * beside) if gathers else (gpus * beside, beside)
    if algorithm == "collnet_direct":
        for head, other in product(own, range(gpus)):
            if kind != "all_gather":
                yield paths.gpus[other][head].links, beside
            if kind != "reduce_scatter":
                yield paths.gpus[head][other].links, beside
    else:
        for gpu in range(gpus):
            more = share if algorithm == "nvls" and kind == "all_reduce" and gpu in own else 0.0
            yield paths.up[gpu].links, up + more
            yield paths.down[gpu].links, down
    for head in own:
        yield from _by_cards(comm, head, out, into)


def _chained(comm: Communicator, carried: Sequence[int]) -> Iterator[tuple[Sequence[Link], float]]:
    """Yield CollNet Chain's sends: up and down a chain of GPUs per channel, whose first uses the network."""
    paths, place, graph = paths_of(comm), _places(comm), ordered(comm).collnet_chain
    orders = [[place[gpu] for gpu in channel.gpus] for channel in graph.order] if graph else []
    for channel, nbytes in enumerate(carried):
        chain = orders[channel % len(orders)]
        for a, b in pairwise(chain):
            yield paths.gpus[a][b].links, nbytes
            yield paths.gpus[b][a].links, nbytes
        yield from _by_cards(comm, chain[0], nbytes, nbytes)


def _places(comm: Communicator) -> list[int]:
    """Return the place of each local rank's GPU among the machine's."""
    gpus = paths_of(comm).nodes.of["gpu"]
    return sorted(range(comm.gpus), key=lambda gpu: gpus[gpu].rank)


def _by_cards(
    comm: Communicator, gpu: int, out: float, into: float
) -> Iterator[tuple[Sequence[Link], float]]:
    """Yield a GPU's sends to other nodes and receives from them, distributed evenly over its cards."""
    paths = paths_of(comm)
    ports = paths.ports[gpu] if comm.nodes > 1 else []
    for port in ports:
        yield paths.out[gpu][port].links, out / len(ports)
        yield paths.back[port][gpu].links, into / len(ports)


def _exchanged(comm: Communicator, moved: ExchangedBytes) -> Iterator[tuple[Sequence[Link], Floats]]:
    """Yield messages between ranks, by the cards that they take."""
    paths, gpus, place = paths_of(comm), range(comm.gpus), _places(comm)
    for a in gpus:
        for b in gpus:
            if moved.inside[:, a, b].any():
                yield paths.gpus[place[a]][place[b]].links, moved.inside[:, a, b]
    if comm.nodes == 1:
        return
    cards = cards_of(comm)
    for out, into in zip(cards.out, cards.into, strict=True):
        for a in gpus:
            for b in gpus:
                leaving, arriving = moved.leaving[:, a, b], moved.arriving[:, a, b]
                yield paths.out[place[a]][out[a, b]].links, leaving / len(cards.out)
                yield paths.back[into[a, b]][place[b]].links, arriving / len(cards.out)


@lru_cache(maxsize=8)
def cable_bytes(
    comm: Communicator, collective: Collective, algorithm: str, protocol: str
) -> dict[Hop, float] | None:
    """Return the bytes on each cable between a fabric's switches; ``None`` if they are unknown."""
    if comm.network is None or comm.nodes == 1:
        return None
    structure = comm.network.graph["structure"]
    cards = len(structure.cards)
    if algorithm in ("p2p", "pat"):
        moved = exchange(comm, collective, algorithm)
        sent = between_cards(comm, moved, cards) if moved else None
        return None if sent is None else carried_by_cables(structure.fabric, sent)
    if algorithm in ("ring", "tree"):
        weights = _by_channel(comm, collective, algorithm, protocol)
        carried = connections(comm, algorithm, weights)
    elif algorithm not in comm.usable:
        return None
    elif algorithm == "nvls_tree":
        carried = _over_trees(comm, collective, cards)
    else:
        return _added_inside(comm, collective, algorithm) if comm.collnet else None
    ends = np.array(list(carried), dtype=np.int64).reshape(-1, 4).T
    src, dst = ends[0] * cards + ends[1], ends[2] * cards + ends[3]
    return carried_by_cables(structure.fabric, [(src, dst, np.array(list(carried.values())))])


def _over_trees(comm: Communicator, collective: Collective, cards: int) -> dict[Ends, float]:
    """Return NVLSTree's bytes between nodes: between heads of one number, along both trees of nodes."""
    sums: dict[Ends, float] = defaultdict(float)
    carried, paths = carried_bytes(comm, collective, "nvls_tree", "simple"), paths_of(comm)
    number = comm.machines or range(comm.nodes)
    place = _places(comm)
    ports = [paths.ports[place[head]] for head in heads(comm, "nvls_tree").tolist()]
    for parity, parent in enumerate(node_trees(comm.nodes)):
        for own in ports:
            nbytes = sum(carried[parity::2]) / len(ports) / max(len(own), 1)
            for node, above in enumerate(parent.tolist()):
                for port in own if above >= 0 else ():
                    here, there = (number[node], port % cards), (number[above], port % cards)
                    sums[*here, *there] += nbytes
                    sums[*there, *here] += nbytes
    return sums


def _added_inside(comm: Communicator, collective: Collective, algorithm: str) -> dict[Hop, float]:
    """Return each cable's bytes if switches add, by a tree per head of the routes to the first node.

    A sum goes over each of its cables once up and once down. A block of a reduce-scatter goes towards its
    owner, and one of an all-gather away from it (Graham et al., "Scalable Hierarchical Aggregation Protocol
    (SHArP)", COM-HPC 2016).
    """
    carried: dict[Hop, float] = defaultdict(float)
    for card, nbytes in _heads_and_bytes(comm, collective, algorithm):
        for (lower, upper), below in _aggregation_tree(comm, card).items():
            others = comm.nodes - below
            up, down = {"all_reduce": (1, 1), "all_gather": (below, others)}.get(
                collective.kind, (others, below)
            )
            carried[lower, upper] += up * nbytes
            carried[upper, lower] += down * nbytes
    return carried


def _heads_and_bytes(
    comm: Communicator, collective: Collective, algorithm: str
) -> Iterator[tuple[int, float]]:
    """Yield each card by which a head talks to the network, and the bytes of its sum, or of one block."""
    paths, place = paths_of(comm), _places(comm)
    carried = carried_bytes(comm, collective, algorithm, "simple")
    if algorithm == "collnet_chain":
        graph = ordered(comm).collnet_chain
        chains = [channel.gpus[0] for channel in graph.order] if graph else []
        parts = [(chains[channel % len(chains)], float(nbytes)) for channel, nbytes in enumerate(carried)]
    else:
        own = heads(comm, algorithm).tolist()
        shares = len(own) if collective.kind == "all_reduce" else 1
        parts = [(head, sum(carried) / shares) for head in own]
    for head, nbytes in parts:
        ports = paths.ports[place[head]]
        for port in ports:
            yield port, nbytes / len(ports)


@lru_cache(maxsize=256)
def _aggregation_tree(comm: Communicator, port: int) -> dict[Hop, int]:
    """Return the cables of a tree that joins one card of every node, upwards, with the nodes below each."""
    assert comm.network is not None
    structure = comm.network.graph["structure"]
    cards = len(structure.cards)
    first, *others = (node * cards + port % cards for node in comm.machines or range(comm.nodes))
    above: dict[Node, Node | None] = {structure.fabric.above(first): None}
    below: dict[Hop, int] = defaultdict(int)
    for other in others:
        switches = structure.fabric.way(other, first)
        for lower, upper in pairwise(switches):
            if lower in above:
                break
            above[lower] = upper
        lower = switches[0]
        while (upper := above[lower]) is not None:
            below[lower, upper] += 1
            lower = upper
    return dict(below)
