"""How long the links are busy with what an algorithm sends over them: NCCL's one count of bytes.

Every connection of every channel carries its bytes over the links on its way: between a node's GPUs, from a
GPU to its card, and over the cables of a fabric. What one link has to carry, over its bandwidth in the data
sheet, is a time below which no answer can be. Counted are the algorithm's own rings, trees, heads and
messages, with the flags that its protocol sends beside the data: what switches add crosses a link once.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise, product

import numpy as np
from numpy.typing import NDArray

from ringside.sim.algorithms.double_binary_tree import trees as node_trees
from ringside.sim.collective import Collective
from ringside.sim.engine.laws import ROUNDING
from ringside.sim.libraries.nccl.communicator import Communicator
from ringside.sim.libraries.nccl.device.chunks import WIRE_EFFICIENCY
from ringside.sim.libraries.nccl.device.connect import ordered
from ringside.sim.libraries.nccl.device.exchange import Exchange, between_cards, cards_of, exchange
from ringside.sim.libraries.nccl.device.fabric import Ends, connections
from ringside.sim.libraries.nccl.device.p2p import KINDS as POINT_TO_POINT
from ringside.sim.libraries.nccl.device.schedules import PIPELINED, carried_bytes
from ringside.sim.libraries.nccl.device.shares import Crossing, crossings, paths_of, roles
from ringside.sim.libraries.nccl.device.switched import heads
from ringside.sim.libraries.nccl.graph.graph import PathClass
from ringside.sim.libraries.nccl.graph.nodes import Link
from ringside.sim.libraries.nccl.graph.system import nvlink_in_datasheet
from ringside.sim.libraries.nccl.names import ALGORITHMS
from ringside.sim.libraries.nccl.tuning.tuner import cost_table
from ringside.topologies.fabrics.fabric import carried as carried_by_cables
from ringside.topologies.graph import Hop

Seconds = float
Floats = NDArray[np.float64]

NVLINK, PCIE, CARDS, CARD = "NVLinks of a GPU", "PCIe of a GPU", "cards of a node", "card of a node"
"""What is busy at a node: the busiest NVLink, the busiest link of PCIe, all cards together, and the busiest
card where they are not loaded alike. A cable between switches goes by its ends."""

AT_A_NODE = NVLINK, PCIE, CARDS, CARD

_PARTS = {PathClass.NVL: NVLINK, PathClass.PIX: PCIE, PathClass.NET: CARD}

_SLOT = 63 / 48
"""What a slot carries beside what NCCL reckons: 16 lanes of PCIe 5.0 have 63 GB/s, and NCCL writes 48."""

Sends = Iterable[tuple[Sequence[Link], "float | Floats"]]
"""Links in a row, and the bytes that they carry: a figure for each kind of node."""


@lru_cache(maxsize=1024)
def traffic(comm: Communicator, collective: Collective, algorithm: str, protocol: str) -> dict[str, Seconds]:
    """For how long the busiest of each kind of link carries bytes one way, by its name.

    A fabric's cable is missing where nothing is known of it: what CollNet, and NVLS on several nodes, add
    inside switches by their makers' rules, or too many messages.
    """
    found = _of_node(comm, collective, algorithm, protocol)
    cables = cable_bytes(comm, collective, algorithm, protocol)
    if cables and comm.network is not None:
        edges = comm.network.edges
        seconds, hop = max((nbytes / edges[hop]["bandwidth"], hop) for hop, nbytes in cables.items())
        found["->".join(hop)] = seconds
    return found


def least_traffic(comm: Communicator, collective: Collective) -> Seconds:
    """What the busiest link carries by whichever of NCCL's algorithms loads it least, in seconds."""
    if collective.kind in POINT_TO_POINT:
        return max(traffic(comm, collective, "p2p", "simple").values())
    table = cost_table(comm, collective.kind, collective.dtype or "float32", collective.redop)
    able = [algorithm for algorithm in ALGORITHMS if table.rate(algorithm, "simple")]
    return min(max(traffic(comm, collective, algorithm, "simple").values()) for algorithm in able)


def _of_node(comm: Communicator, collective: Collective, algorithm: str, protocol: str) -> dict[str, Seconds]:
    found, system = dict.fromkeys(AT_A_NODE, 0.0), comm.system
    for sends in _sends(comm, collective, algorithm, protocol):
        load: dict[Link, float | Floats] = defaultdict(float)
        for links, nbytes in sends:
            for link in links:
                load[link] = load[link] + nbytes
        for link, total in load.items():
            if part := _PARTS.get(link.kind):
                found[part] = max(found[part], float(np.max(total)) / _in_datasheet(comm, link))
        for out in (True, False):
            cards = [link for link in load if link.kind is PathClass.NET and (link.to.kind == "net") == out]
            total = np.max(sum(load[link] for link in cards))
            found[CARDS] = max(found[CARDS], float(total) / (system.nics * system.nic) if cards else 0.0)
    inside, between = _claimed(comm)
    if found[CARD] <= found[CARDS] * (1 + ROUNDING):
        del found[CARD]
    more = {CARDS: between, CARD: between}
    return {part: seconds / more.get(part, inside) for part, seconds in found.items()}


def _in_datasheet(comm: Communicator, link: Link) -> float:
    """Bytes/s of a link as its data sheet has it."""
    match link.kind:
        case PathClass.NVL:
            return nvlink_in_datasheet(_nvlink(comm, link), comm.system.compute_capability)
        case PathClass.PIX:
            return link.bandwidth * _SLOT
        case _:
            return link.bandwidth


def _nvlink(comm: Communicator, link: Link) -> float:
    """What NCCL reckons for an NVLink; where it was told of other pairs than are cabled, for the widest."""
    if not comm.system.cabling:
        return link.bandwidth
    gpus = paths_of(comm).nodes.of["gpu"]
    return max(one.bandwidth for gpu in gpus for one in gpu.links if one.kind is PathClass.NVL)


@lru_cache(maxsize=256)
def _claimed(comm: Communicator) -> tuple[float, float]:
    """By how many times a graph file or a log says that NCCL moves more than a GPU's links, or the cards."""
    system = comm.system
    graphs = [graph for algorithm in ALGORITHMS if (graph := comm.graph(algorithm))]
    gpu = nvlink_in_datasheet(system.nvlink, system.compute_capability) + system.pcie
    cards = system.nics * system.nic
    inside = max(graph.channels * graph.bw_intra for graph in graphs)
    between = max(graph.channels * graph.bw_inter for graph in graphs)
    return max(inside / gpu, 1.0) if gpu else 1.0, max(between / cards, 1.0) if cards else 1.0


def _sends(comm: Communicator, collective: Collective, algorithm: str, protocol: str) -> Iterator[Sends]:
    """What goes over the links of one node, for each kind of node."""
    if algorithm in ("p2p", "pat"):
        if found := exchange(comm, collective, algorithm):
            yield _exchanged(comm, found)
    elif algorithm in ("ring", "tree"):
        weights = _by_channel(comm, collective, algorithm, protocol)
        inside, ends = crossings(comm, algorithm, len(weights))
        for node in ends or [[]]:
            own = (one for one in (*inside, *node) if not _is_cut(comm, collective, one))
            yield [(one.links, weights[one.channel]) for one in own]
    elif comm.graph(algorithm) is not None:
        for degrees in roles(comm.nodes) if algorithm == "nvls_tree" else [[[True], [True]]]:
            yield list(_switched(comm, collective, algorithm, [sum(degree) for degree in degrees]))


def _by_channel(comm: Communicator, collective: Collective, algorithm: str, protocol: str) -> list[float]:
    """The bytes, flags included, that each connection of a channel's ring or tree carries one way."""
    times, ranks = 1.0, comm.ranks
    if algorithm == "ring" and collective.kind not in PIPELINED:
        times = 2 * (ranks - 1) / ranks if collective.kind == "all_reduce" else ranks - 1
    each = times / WIRE_EFFICIENCY[protocol]
    return [nbytes * each for nbytes in carried_bytes(comm, collective, algorithm, protocol)]


def _is_cut(comm: Communicator, collective: Collective, one: Crossing) -> bool:
    """Whether a ring's connection carries nothing: into the root of a broadcast, out of that of a reduce.

    On two nodes that is an end of the node that has no root; of more some have no such end.
    """
    if collective.kind not in PIPELINED or comm.nodes > 2:
        return False
    end = one.dst if collective.kind == "broadcast" else one.src
    inside = one.src >= 0 <= one.dst
    return end == collective.root if comm.nodes == 1 else not inside and end < 0


def _switched(
    comm: Communicator, collective: Collective, algorithm: str, degrees: Sequence[int]
) -> Iterator[tuple[Sequence[Link], float]]:
    """What is added on the way, by switches or heads; ``degrees`` are a node's neighbours in both trees."""
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
    """CollNet Chain: up and down a chain of GPUs for each channel, whose first one talks to the network."""
    paths, place, graph = paths_of(comm), _places(comm), ordered(comm).collnet_chain
    orders = [[place[gpu] for gpu in channel.gpus] for channel in graph.order] if graph else []
    for channel, nbytes in enumerate(carried):
        chain = orders[channel % len(orders)]
        for a, b in pairwise(chain):
            yield paths.gpus[a][b].links, nbytes
            yield paths.gpus[b][a].links, nbytes
        yield from _by_cards(comm, chain[0], nbytes, nbytes)


def _places(comm: Communicator) -> list[int]:
    """Where the GPU of each local rank stands among the machine's."""
    gpus = paths_of(comm).nodes.of["gpu"]
    return sorted(range(comm.gpus), key=lambda gpu: gpus[gpu].rank)


def _by_cards(
    comm: Communicator, gpu: int, out: float, into: float
) -> Iterator[tuple[Sequence[Link], float]]:
    """What a GPU sends to other nodes and gets from them, its cards alike."""
    paths = paths_of(comm)
    ports = paths.ports_of(gpu) if comm.nodes > 1 else []
    for port in ports:
        yield paths.out[gpu][port].links, out / len(ports)
        yield paths.back[port][gpu].links, into / len(ports)


def _exchanged(comm: Communicator, found: Exchange) -> Iterator[tuple[Sequence[Link], Floats]]:
    """Messages between ranks, by the cards that they take."""
    paths, gpus, place = paths_of(comm), range(comm.gpus), _places(comm)
    for a in gpus:
        for b in gpus:
            if found.inside[:, a, b].any():
                yield paths.gpus[place[a]][place[b]].links, found.inside[:, a, b]
    if comm.nodes == 1:
        return
    cards = cards_of(comm)
    for out, into in zip(cards.out, cards.into, strict=True):
        for a in gpus:
            for b in gpus:
                leaving, arriving = found.leaving[:, a, b], found.arriving[:, a, b]
                yield paths.out[place[a]][out[a, b]].links, leaving / len(cards.out)
                yield paths.back[into[a, b]][place[b]].links, arriving / len(cards.out)


@lru_cache(maxsize=8)
def cable_bytes(
    comm: Communicator, collective: Collective, algorithm: str, protocol: str
) -> dict[Hop, float] | None:
    """The bytes on each cable between a fabric's switches; ``None`` where nothing is known of them."""
    if comm.network is None or comm.nodes == 1:
        return None
    structure = comm.network.graph["structure"]
    cards = len(structure.cards)
    if algorithm in ("p2p", "pat"):
        found = exchange(comm, collective, algorithm)
        sent = between_cards(comm, found, cards) if found else None
        return None if sent is None else carried_by_cables(structure.fabric, sent)
    if algorithm in ("ring", "tree"):
        weights = _by_channel(comm, collective, algorithm, protocol)
        carried = connections(comm, algorithm, weights)
    elif algorithm == "nvls_tree" and comm.graph(algorithm) is not None:
        carried = _over_trees(comm, collective, cards)
    else:
        return None
    ends = np.array(list(carried), dtype=np.int64).reshape(-1, 4).T
    src, dst = ends[0] * cards + ends[1], ends[2] * cards + ends[3]
    return carried_by_cables(structure.fabric, [(src, dst, np.array(list(carried.values())))])


def _over_trees(comm: Communicator, collective: Collective, cards: int) -> dict[Ends, float]:
    """What NVLSTree sends between nodes: from head to head of one number, along both trees of nodes."""
    found: dict[Ends, float] = defaultdict(float)
    carried, paths = carried_bytes(comm, collective, "nvls_tree", "simple"), paths_of(comm)
    number = comm.machines or range(comm.nodes)
    place = _places(comm)
    ports = [paths.ports_of(place[head]) for head in heads(comm, "nvls_tree").tolist()]
    for parity, parent in enumerate(node_trees(comm.nodes)):
        for own in ports:
            nbytes = sum(carried[parity::2]) / len(ports) / max(len(own), 1)
            for node, above in enumerate(parent.tolist()):
                for port in own if above >= 0 else ():
                    here, there = (number[node], port % cards), (number[above], port % cards)
                    found[*here, *there] += nbytes
                    found[*there, *here] += nbytes
    return found
