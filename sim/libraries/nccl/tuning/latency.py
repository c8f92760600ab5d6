"""The latency that NCCL's tuner gives an algorithm and protocol (src/graph/tuning.cc; by release).

Microseconds: a base, and what the steps one after another take on their links. R ranks on N nodes.
"""

from sim.libraries.nccl.communicator import Communicator
from sim.libraries.nccl.graph.graph import Graph, PathClass
from sim.libraries.nccl.names import PROTOCOLS
from sim.libraries.nccl.tuning.bandwidth import steps

_COLUMN = {protocol: column for column, protocol in enumerate(PROTOCOLS)}


def latency_us(comm: Communicator, kind: str, algorithm: str, protocol: str) -> float:
    """Microseconds before bandwidth counts; 0 where the communicator has no graph for the algorithm."""
    graph = comm.graph(algorithm)
    if graph is None:
        return 0.0
    base = comm.constants.base_us[algorithm][_COLUMN[protocol]]
    inside = hop_us(_link_inside(comm, graph), algorithm, protocol, comm)
    if protocol == "ll" and comm.nodes > 1:
        inside *= comm.constants.ll_inside
    between = _between(comm, algorithm, protocol, graph)
    others = comm.gpus - 1
    doublings = comm.nodes.bit_length() - 1
    match algorithm:
        case "ring":
            return base + _ring(comm, kind, protocol, graph, inside, between)
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
    """Microseconds of one step over a class of link: ``nvlink``, ``pci`` or ``net``."""
    if comm.system.cpu == "power" and (link, algorithm, protocol) == ("pci", "tree", "simple"):
        algorithm = "ring"  # NCCL favours trees on IBM Power, where PCIe is not what slows them
    return comm.constants.hop_us[link][algorithm][_COLUMN[protocol]]


def _link_inside(comm: Communicator, graph: Graph) -> str:
    return "nvlink" if graph.type_intra is PathClass.NVL else "pci"


def _between(comm: Communicator, algorithm: str, protocol: str, graph: Graph) -> float:
    # with one rank a node nothing hides the network, whatever the algorithm
    exposed = "tree" if comm.gpus == 1 and comm.constants.network_exposed else algorithm
    flushes = 2 if protocol == "simple" else 1
    return hop_us("net", exposed, protocol, comm) + flushes * graph.latency_inter_us


def _ring(comm: Communicator, kind: str, protocol: str, graph: Graph, inside: float, between: float) -> float:
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
