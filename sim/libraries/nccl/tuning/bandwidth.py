"""The bandwidth that NCCL's tuner gives an algorithm and protocol (src/graph/tuning.cc; by release).

Bytes/s of *algorithm bandwidth*: size over time, where the size is one rank's buffer for all_reduce,
broadcast and reduce, and the total of all ranks for all_gather and reduce_scatter. A graph of C
channels of b each carries C b on its busiest link, less what the rules below take away.
"""

from sim.libraries.nccl.communicator import Communicator
from sim.libraries.nccl.graph.graph import Graph
from sim.libraries.nccl.graph.system import GB


def bandwidth(comm: Communicator, kind: str, algorithm: str, protocol: str) -> float:
    """Algorithm bandwidth in bytes/s; 0 where the communicator has no channels for it."""
    graph = comm.graph(algorithm)
    if graph is None:
        return 0.0
    match algorithm:
        case "ring":
            bus = _ring(comm, kind, graph, protocol)
        case "tree":
            bus = _tree(comm, graph, protocol)
        case "pat":
            bus = 0.75 * graph.channels * _of_channel(comm, graph)
        case "collnet_direct":
            bus = _collnet_direct(comm, kind, graph)
        case "collnet_chain":
            bus = graph.channels * graph.bw_intra
        case _:
            bus = _nvls(comm, kind, algorithm, graph)
    return bus * _bus_to_algorithm(comm, kind, algorithm)


def steps(kind: str, ranks: int) -> int:
    """Hops of a ring, one after another, that a collective takes."""
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
    """Bytes/s of all channels together."""
    limit = comm.constants.ampere_total if comm.generation == 1 else float("inf")
    return min(graph.channels * _of_channel(comm, graph), limit * GB)


def _ring(comm: Communicator, kind: str, graph: Graph, protocol: str) -> float:
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


def _tree(comm: Communicator, graph: Graph, protocol: str) -> float:
    tables = comm.constants
    cap = tables.tree[comm.generation][comm.scale] * GB
    bus = min(0.92 * _whole(comm, graph), graph.channels * cap)
    if protocol == "ll":
        bus = min(bus / 3.8, _ll_max(comm))
    elif protocol == "ll128":
        cap = tables.tree_ll128[comm.generation][comm.scale] * GB
        bus = min(bus * (7 / 9 if comm.nodes == 1 else tables.tree_ll128_between), graph.channels * cap)
    return 0.85 * bus if graph.pattern == "tree" else bus


def _nvls(comm: Communicator, kind: str, algorithm: str, graph: Graph) -> float:
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
    """One channel, in releases that look at the links alone."""
    if algorithm == "nvls_tree":
        return min(graph.bw_intra, graph.bw_inter / (1 if comm.nodes <= 2 else 2))
    if kind == "all_reduce":
        return min(graph.bw_intra, graph.bw_inter)
    return min(graph.bw_intra * (comm.gpus - 1) / comm.gpus, 0.9 * graph.bw_inter)


def _collnet_direct(comm: Communicator, kind: str, graph: Graph) -> float:
    if kind != "all_reduce":
        return comm.gpus * min(graph.bw_intra, 0.9 * graph.bw_inter)
    gpus_per_head = comm.gpus / graph.channels
    bus = graph.channels * graph.bw_intra / (gpus_per_head - (gpus_per_head - 1) / 2)
    return 0.85 * bus if comm.system.compute_capability >= 90 else bus
