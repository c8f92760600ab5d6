"""The two figures that NCCL's tuner gives an algorithm and protocol (src/graph/tuning.cc; by release).

Latency in microseconds: a base, and the consecutive steps on their links. Bytes/s of
*algorithm bandwidth*: size over time, where the size is one rank's buffer for all_reduce, broadcast and
reduce, and the total of all ranks for all_gather and reduce_scatter. A graph of C channels of b each
carries C b on its busiest link, less the reductions below. R ranks on N nodes.
"""

from ringside.sim.libraries.nccl.communicator import Communicator
from ringside.sim.libraries.nccl.graph.graph import Graph, PathClass
from ringside.sim.libraries.nccl.graph.system import GB
from ringside.sim.libraries.nccl.names import PROTOCOLS

_COLUMN = {protocol: column for column, protocol in enumerate(PROTOCOLS)}


def latency_us(comm: Communicator, kind: str, algorithm: str, protocol: str) -> float:
    """Return the microseconds of latency; 0 if the communicator has no graph for the algorithm."""
    graph = comm.usable.get(algorithm)
    if graph is None:
        return 0.0
    base = comm.constants.base_us[algorithm][_COLUMN[protocol]]
    inside = hop_us(_link_inside(comm, graph), algorithm, protocol, comm)
    if protocol == "ll" and comm.nodes > 1:
        inside *= comm.constants.ll_inside
    between = _between_us(comm, algorithm, protocol, graph)
    others = comm.gpus - 1
    doublings = comm.nodes.bit_length() - 1
    match algorithm:
        case "ring":
            return base + _ring_us(comm, kind, protocol, graph, inside, between)
        case "tree":
            return base + 2 * (others * inside + doublings * between)
        case "collnet_direct":
            return base + 2 * (min(1, others) * inside + others * 0.4) + between
        case "collnet_chain":
            return base + 2 * others * inside + between
        case "nvls":
            return inside + (between if comm.nodes > 1 else 0)
        case "nvls_tree":
            return base + inside + 2 * doublings * between
        case _:
            return base + doublings * between / 3.5 + 2.8 * comm.ranks


def hop_us(link: str, algorithm: str, protocol: str, comm: Communicator) -> float:
    """Return the microseconds of one step over a class of link: ``nvlink``, ``pci`` or ``net``."""
    if comm.system.cpu == "power" and (link, algorithm, protocol) == ("pci", "tree", "simple"):
        algorithm = "ring"  # NCCL favours trees on IBM Power, where PCIe is not the bottleneck
    return comm.constants.hop_us[link][algorithm][_COLUMN[protocol]]


def _link_inside(comm: Communicator, graph: Graph) -> str:
    return "nvlink" if graph.type_intra is PathClass.NVL else "pci"


def _between_us(comm: Communicator, algorithm: str, protocol: str, graph: Graph) -> float:
    # with one rank a node nothing hides the network, whatever the algorithm
    exposed = "tree" if comm.gpus == 1 and comm.constants.network_exposed else algorithm
    flushes = 2 if protocol == "simple" else 1
    return hop_us("net", exposed, protocol, comm) + flushes * graph.latency_inter_us


def _ring_us(
    comm: Communicator, kind: str, protocol: str, graph: Graph, inside: float, between: float
) -> float:
    hops = steps(kind, comm.ranks)
    if kind in ("broadcast", "reduce"):
        link = _link_inside(comm, graph) if comm.nodes == 1 else "net"
        if graph.same_channels:
            return hop_us(link, "ring", protocol, comm)
        return hops * hop_us(link, "tree" if protocol == "simple" else "ring", protocol, comm)
    if comm.nodes == 1:
        return hops * inside
    crossings = 2 * (comm.nodes - 1 + comm.constants.crossings) if kind == "all_reduce" else comm.nodes - 1
    overhead = _net_overhead(comm) * (3 if protocol == "simple" else 1)
    return (hops - crossings) * max(inside, overhead) + crossings * between


def _net_overhead(comm: Communicator) -> float:
    if comm.settings.net_overhead_us is not None:
        return comm.settings.net_overhead_us
    if not comm.constants.net_overhead:
        return 0.0
    return 2.0 if comm.system.cpu == "amd" else 1.0


def bandwidth(comm: Communicator, kind: str, algorithm: str, protocol: str) -> float:
    """Algorithm bandwidth in bytes/s; 0 where the communicator has no channels for it."""
    graph = comm.usable.get(algorithm)
    if graph is None:
        return 0.0
    match algorithm:
        case "ring":
            bus = _ring_bus(comm, kind, graph, protocol)
        case "tree":
            bus = _tree_bus(comm, graph, protocol)
        case "pat":
            bus = 0.75 * graph.channels * _of_channel(comm, graph)
        case "collnet_direct":
            bus = _collnet_direct_bus(comm, kind, graph)
        case "collnet_chain":
            bus = graph.channels * graph.bw_intra
        case _:
            bus = _nvls_bus(comm, kind, algorithm, graph)
    return bus * _bus_to_algorithm(comm, kind, algorithm)


def steps(kind: str, ranks: int) -> int:
    """Return the consecutive hops of a ring in a collective."""
    match kind:
        case "all_reduce":
            return 2 * (ranks - 1)
        case "all_gather" | "reduce_scatter":
            return ranks - 1
        case _:
            return ranks


def _bus_to_algorithm(comm: Communicator, kind: str, algorithm: str) -> float:
    if algorithm != "ring" and kind in ("all_gather", "reduce_scatter"):
        return 1.0
    if algorithm.startswith("nvls") and not comm.constants.nvls_efficiency:
        return 5 / 6
    return comm.ranks / steps(kind, comm.ranks) if algorithm in ("ring", "nvls", "nvls_tree") else 0.5


def _of_channel(comm: Communicator, graph: Graph) -> float:
    return graph.bw_intra if comm.nodes <= 2 else graph.bw_inter


def _ll_max(comm: Communicator) -> float:
    amd = comm.system.cpu in ("amd", "mixed")
    row = comm.generation if comm.nodes == 1 else int(amd)
    return comm.constants.ll_max[row][comm.scale] * GB


def _whole(comm: Communicator, graph: Graph) -> float:
    """Return the bytes/s of all channels together."""
    limit = comm.constants.ampere_total if comm.generation == 1 else float("inf")
    return min(graph.channels * _of_channel(comm, graph), limit * GB)


def _ring_bus(comm: Communicator, kind: str, graph: Graph, protocol: str) -> float:
    full, tables = _whole(comm, graph), comm.constants
    match protocol:
        case "ll":
            gathering = comm.nodes == 1 and kind not in ("all_reduce", "reduce")
            return min(_ll_max(comm), full * (tables.ring_ll_gathering if gathering else tables.ring_ll))
        case "ll128":
            cap = tables.ring_ll128[comm.generation][comm.scale] * GB
            cap = tables.ring_ll128_by_kind.get(kind, cap / GB) * GB
            return min((tables.ring_ll128_alone if comm.gpus == 1 else 0.92) * full, graph.channels * cap)
        case _:
            return full


def _tree_bus(comm: Communicator, graph: Graph, protocol: str) -> float:
    tables = comm.constants
    cap = tables.tree[comm.generation][comm.scale] * GB
    bus = min(0.92 * _whole(comm, graph), graph.channels * cap)
    if protocol == "ll":
        bus = min(bus / 3.8, _ll_max(comm))
    elif protocol == "ll128":
        cap = tables.tree_ll128[comm.generation][comm.scale] * GB
        bus = min(bus * (7 / 9 if comm.nodes == 1 else tables.tree_ll128_between), graph.channels * cap)
    return 0.85 * bus if graph.pattern == "tree" else bus


def _nvls_bus(comm: Communicator, kind: str, algorithm: str, graph: Graph) -> float:
    tables = comm.constants
    if graph.channels < 2:
        return 0.0
    if not tables.nvls_efficiency:
        return graph.channels * _nvls_before_228(comm, kind, algorithm, graph)
    inside = graph.bw_intra * tables.nvls_efficiency[comm.generation] * (graph.channels - 1) / graph.channels
    inside *= 2 if kind == "all_reduce" else (comm.gpus - 1) / comm.gpus
    if algorithm == "nvls":
        return graph.channels * min(inside, graph.bw_inter)
    between = graph.bw_inter * (2 if comm.nodes <= 2 else 1)
    cap = tables.nvls_tree[comm.generation][comm.scale] * GB if tables.nvls_tree else float("inf")
    return graph.channels * min(inside, between, cap)


def _nvls_before_228(comm: Communicator, kind: str, algorithm: str, graph: Graph) -> float:
    """Return one channel's, in releases that only use the links."""
    if algorithm == "nvls_tree":
        return min(graph.bw_intra, graph.bw_inter / (1 if comm.nodes <= 2 else 2))
    if kind == "all_reduce":
        return min(graph.bw_intra, graph.bw_inter)
    return min(graph.bw_intra * (comm.gpus - 1) / comm.gpus, 0.9 * graph.bw_inter)


def _collnet_direct_bus(comm: Communicator, kind: str, graph: Graph) -> float:
    if kind != "all_reduce":
        return comm.gpus * min(graph.bw_intra, 0.9 * graph.bw_inter)
    gpus_per_head = comm.gpus / graph.channels
    bus = graph.channels * graph.bw_intra / (gpus_per_head - (gpus_per_head - 1) / 2)
    return 0.85 * bus if comm.system.compute_capability >= 90 else bus
