"""The graphs that NCCL's own search finds on a machine, and what the machine's links carry.

The search is NCCL's (`graph_search`, `channel_search`): on the machines whose graphs NCCL's compiled
code printed (a test has them) it finds the same channels, speeds, path classes and orders. CollNet
alone is a plain rule: its chains are the trees, and it has one head a network card.
"""

from sim.libraries.nccl.graph.drawing import drawing, redrawn
from sim.libraries.nccl.graph.graph import Graph, Graphs, PathClass, SearchChannel
from sim.libraries.nccl.graph.graph_search import MAX_CHANNELS, MAX_NVLS_HEADS, GraphSearch
from sim.libraries.nccl.graph.nodes import Nodes
from sim.libraries.nccl.graph.paths import Paths
from sim.libraries.nccl.graph.results import Result
from sim.libraries.nccl.graph.system import GB, System, nvlink_link
from sim.libraries.nccl.releases import constants, speeds


def search(system: System, nodes: int, gpus: int, version: str) -> Graphs:
    """The graphs of ``nodes`` nodes with ``gpus`` GPUs used in each, by a release of NCCL."""
    if nodes > 1 and not system.nics:
        raise ValueError(f"{system.name} has no NIC, so {nodes} nodes cannot be joined; give it nics and nic")
    reckoned = redrawn(system, nvlink=system.nvlink * _nvlink_then(system, version))
    used = drawing(reckoned, gpus)
    tried = [round(speed * 1000) for speed in speeds(version, system.compute_capability, inter=nodes > 1)]
    machine = GraphSearch(Paths(used), tried, inter=nodes > 1)
    ring = machine.find("ring", 1, MAX_CHANNELS)
    assert ring is not None
    tree = machine.find("balanced_tree", ring.channels, ring.channels)
    results = {"ring": ring, "tree": tree, "nvls": machine.find("nvls", 1, MAX_NVLS_HEADS)}
    found = {name: _graph(result, used) for name, result in results.items() if result}
    if nodes > 1:
        found |= _collnet(system, gpus, version, found["tree"])
    return Graphs.joined(found)


def _nvlink_then(system: System, version: str) -> float:
    """What a release reckons for an NVLink, of what the newest reckons."""
    then, now = constants(version).nvlink_gbps, nvlink_link(system.compute_capability)
    known = [first for first in then if first <= system.compute_capability]
    return then[max(known)] * GB / now if known and now else 1.0


def nics_used(system: System, gpus: int) -> int:
    """The NICs of one node that are near the ``gpus`` GPUs used."""
    return min(system.nics, -(-system.nics * gpus // system.ranks))


def nvlink_among(system: System, gpus: int) -> float:
    """Bytes/s of NVLink at each GPU towards the other GPUs used; 0 without NVLink."""
    if gpus == 1 or system.nvswitch:
        return system.nvlink
    return system.nvlink * (gpus - 1) / max(system.gpus - 1, 1)


def through_cpu(system: System, gpus: int) -> float:
    """Bytes/s between GPUs without NVLink: PCIe through a CPU, and the other socket where both are used."""
    slot = system.pcie * 5 / 6 if system.cpu == "intel" else system.pcie
    return min(slot, system.socket) if 2 * gpus > system.ranks else slot


def _graph(result: Result, nodes: Nodes) -> Graph:
    """A search result in bytes/s, its GPUs by local rank and its ports by number."""
    ranks = sorted(gpu.rank for gpu in nodes.of["gpu"])
    local = [ranks.index(gpu.rank) for gpu in nodes.of["gpu"]]
    ports = sorted(net.dev for net in nodes.of["net"])
    number = [ports.index(net.dev) for net in nodes.of["net"]]
    want = result.request
    order = tuple(
        SearchChannel(
            tuple(local[gpu] for gpu in gpus if gpu >= 0), tuple(number[port] for port in ends if port >= 0)
        )
        for gpus, ends in zip(result.gpus, result.ports, strict=True)
    )
    return Graph(
        want.pattern,
        result.channels,
        want.intra * 1e6,
        want.inter * 1e6,
        want.type_intra,
        want.type_inter,
        want.cross_nic,
        want.same_channels,
        result.latency_us,
        order,
    )


def _collnet(system: System, gpus: int, version: str, tree: Graph) -> dict[str, Graph]:
    tried = speeds(version, system.compute_capability, inter=True)
    speed = next((s for s in tried if s * GB <= system.nic_path), tried[-1]) * GB
    direct = Graph("collnet_direct", nics_used(system, gpus), speed, speed, tree.type_intra, PathClass.PIX)
    return {"collnet_direct": direct, "collnet_chain": tree}
