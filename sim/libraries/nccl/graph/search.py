"""A plain rule in place of NCCL's graph search, for machines and part-used nodes without a preset.

NCCL searches depth-first for channels that fit the links (src/graph/search.cc). This rule does not
search; it fills bandwidth in the order in which the search prefers it, and finds the channels and
speeds of NCCL's own search on every NVLink machine of ``graphs.csv`` (a test holds it to that; of
the PCIe box it finds the rings, but trees of 10 where NCCL finds 9 GB/s).

Speeds come from NCCL's lists. N nodes, m GPUs used in each, T bytes/s of NVLink at each GPU:

- one node, rings: the highest speed s of the list up to T, floor(T/s) channels; trees the same;
- more nodes, rings: the highest speed up to what a GPU and its NIC exchange, one channel per NIC,
  as long as channels * s <= T m/(m-1). The NICs used are those near the GPUs used, nics * m / gpus;
- s of 25 GB/s or more: twice the channels at half the speed, except above compute capability 90
  below 50 GB/s with more than 4 channels;
- more nodes, trees: as many channels, whose speed inside the node rises through the list until it is
  twice the speed between nodes or no longer fits T m/(m-1) (a mesh: one link);
- NVLS: up to 32 heads, one a GPU, or one a NIC used; s with (heads + 1) s <= T;
- no NVLink: one channel inside a node, one a NIC between nodes, at what PCIe (a sixth less through
  a CPU) and the link between sockets carry;
- a mesh of NVLinks is taken to have its links spread evenly over all other GPUs;
- CollNet: chains as the trees, direct with one head a NIC.
"""

from sim.libraries.nccl.graph.graph import Graph, Graphs, PathClass
from sim.libraries.nccl.graph.system import GB, System, nvlink_link

INTRA_SPEEDS = {
    0: (40, 30, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3),
    90: (60, 50, 40, 30, 24, 20, 15, 12, 11, 6, 3),
    100: (90, 80, 70, 60, 50, 45, 40, 30, 24, 20, 19, 18),
}
INTER_SPEEDS = {
    0: (48, 30, 28, 24, 20, 18, 15, 12, 10, 9, 7, 6, 5, 4, 3, 2.4, 1.2, 0.24, 0.12),
    90: (48, 45, 42, 40, 30, 24, 22, 20, 17.5, 15, 12, 6, 3, 2.4, 1.2, 0.24, 0.12),
    100: (96, 86, 80, 48, 45.1, 42, 40, 30, 24, 22, 20, 17.5, 15, 12, 6, 3, 2.4, 1.2, 0.24, 0.12),
}
"""GB/s that NCCL 2.30 tries, by the first compute capability each list is for (src/graph/search.cc)."""

MAX_SEARCH_CHANNELS = 32
MAX_NVLS_HEADS = 32


def search(system: System, nodes: int, gpus: int) -> Graphs:
    """The graphs of ``nodes`` nodes with ``gpus`` GPUs used in each, by the rule above."""
    if nodes > 1 and not system.nics:
        raise ValueError(f"{system.name} has no NIC, so {nodes} nodes cannot be joined; give it nics and nic")
    ring = _ring_alone(system, gpus) if nodes == 1 else _ring_across(system, gpus)
    found = {"ring": ring, "tree": _tree(system, nodes, gpus, ring)}
    nvls = _nvls(system, nodes, gpus)
    if nvls is not None:
        found["nvls"] = nvls
    if nodes > 1:
        found |= _collnet(system, gpus, found["tree"])
    return Graphs.joined(found)


def nics_used(system: System, gpus: int) -> int:
    """The NICs of one node that are near the ``gpus`` GPUs used."""
    return min(system.nics, -(-system.nics * gpus // system.gpus))


def nvlink_among(system: System, gpus: int) -> float:
    """Bytes/s of NVLink at each GPU towards the other GPUs used; 0 without NVLink."""
    if gpus == 1 or system.nvswitch:
        return system.nvlink
    return system.nvlink * (gpus - 1) / max(system.gpus - 1, 1)


def through_cpu(system: System, gpus: int) -> float:
    """Bytes/s between GPUs without NVLink: PCIe through a CPU, and the other socket where both are used."""
    slot = system.pcie * 5 / 6 if system.cpu == "intel" else system.pcie
    return min(slot, system.socket) if 2 * gpus > system.gpus else slot


def _ring_alone(system: System, gpus: int) -> Graph:
    room = nvlink_among(system, gpus)
    if room:
        speed = _highest(_speeds(system, 1), room)
        channels, speed = _doubled(system, max(1, min(int(room / speed), MAX_SEARCH_CHANNELS)), speed)
    else:
        channels, speed = 1, _highest(_speeds(system, 1), through_cpu(system, gpus))
    intra = PathClass.NVL if room else _cpu_path(system, gpus)
    same = system.nvswitch or not room
    return Graph("ring", channels, speed, speed, intra, PathClass.PIX, same_channels=same)


def _ring_across(system: System, gpus: int) -> Graph:
    reach, nics = system.nic_path, nics_used(system, gpus)
    room = _tree_room(system, gpus)
    if not room:
        reach = min(reach, through_cpu(system, gpus))
    speed = _highest(_speeds(system, 2), reach)
    channels = int(max(1, min(nics, room / speed if room else nics, MAX_SEARCH_CHANNELS)))
    if gpus > 1 and not room:
        path = _cpu_path(system, gpus)
        return Graph("ring", channels, speed, speed, path, path, cross_nic=2 if nics > 1 else 0)
    inter, cross = _way_out(system, gpus, channels * speed)
    channels, speed = _doubled(system, channels, speed)
    intra = PathClass.NVL if gpus > 1 else PathClass.LOC
    return Graph("ring", channels, speed, speed, intra, inter, cross, same_channels=gpus == 1)


def _way_out(system: System, gpus: int, total: float) -> tuple[PathClass, int]:
    """How the last GPU of a ring leaves: by a NIC beside it, through NVLink, or on another rail."""
    if system.cpu == "arm":
        return PathClass.P2C, 0
    if gpus == 1 or system.shared_switch:
        return PathClass.PIX, 0
    return (PathClass.PXN, 0) if total <= system.nvlink else (PathClass.PIX, 2)


def _tree(system: System, nodes: int, gpus: int, ring: Graph) -> Graph:
    pattern = "tree" if nodes > 1 and system.compute_capability >= 90 else "balanced_tree"
    intra = ring.bw_intra
    if nodes > 1 and (gpus == 1 or system.nvlink):
        room = _tree_room(system, gpus) / ring.channels
        if gpus > 1 and not system.nvswitch:
            room = min(room, nvlink_link(system.compute_capability))
        for speed in reversed(_speeds(system, nodes)):
            if intra < speed <= room and intra < 2 * ring.bw_inter:
                intra = speed
    inter = ring.type_inter if ring.type_inter is not PathClass.PXN else PathClass.PIX
    same = ring.same_channels
    return Graph(pattern, ring.channels, intra, ring.bw_inter, ring.type_intra, inter, same_channels=same)


def _nvls(system: System, nodes: int, gpus: int) -> Graph | None:
    if not system.nvswitch or system.compute_capability < 90 or gpus < 2:
        return None
    heads = min(gpus if nodes == 1 else nics_used(system, gpus), gpus, MAX_NVLS_HEADS)
    speeds = _speeds(system, nodes)
    reach = speeds[0] if nodes == 1 else system.nic_path
    intra = _highest(speeds, min(system.nvlink / (heads + 1), reach))
    inter = intra
    for speed in reversed(speeds):
        if inter < speed <= reach and inter < 2 * intra:
            inter = speed
    if heads < 2 or intra > system.nvlink / (heads + 1):
        return None
    return Graph("nvls", heads, intra, inter, PathClass.NVL, PathClass.PIX)


def _collnet(system: System, gpus: int, tree: Graph) -> dict[str, Graph]:
    speed = _highest(_speeds(system, 2), system.nic_path)
    heads = nics_used(system, gpus)
    direct = Graph("collnet_direct", heads, speed, speed, tree.type_intra, PathClass.PIX)
    return {"collnet_direct": direct, "collnet_chain": tree}


def _speeds(system: System, nodes: int) -> list[float]:
    lists = INTRA_SPEEDS if nodes == 1 else INTER_SPEEDS
    first = max(first for first in lists if first <= system.compute_capability)
    return [speed * GB for speed in lists[first]]


def _highest(speeds: list[float], reach: float) -> float:
    return next((speed for speed in speeds if speed <= reach), speeds[-1])


def _tree_room(system: System, gpus: int) -> float:
    """Bytes/s of all channels together that NVLink carries where each channel spares one GPU one way."""
    if gpus == 1:
        return float("inf")
    return nvlink_among(system, gpus) * gpus / (gpus - 1)


def _doubled(system: System, channels: int, speed: float) -> tuple[int, float]:
    enough = system.compute_capability >= 90 and speed < 50 * GB and channels > 4
    if speed < 25 * GB or enough or 2 * channels > MAX_SEARCH_CHANNELS:
        return channels, speed
    return 2 * channels, speed / 2


def _cpu_path(system: System, gpus: int) -> PathClass:
    return PathClass.SYS if 2 * gpus > system.gpus else PathClass.PHB
