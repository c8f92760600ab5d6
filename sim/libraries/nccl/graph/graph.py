"""NCCL's graphs: a machine as a graph, and what its search for channels asks of it and finds.

A machine has GPUs, PCIe switches, CPUs, NVSwitch, cards and network ports (src/graph/topo.cc, v2.30.7). Links
are directed; the order of a node's links is NCCL's, because equal paths are tried in it: widest first, the
PCIe link upwards last. What is found, the number of channels, their bandwidth and paths, is the tuner's
input.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum


class PathClass(IntEnum):
    """The worst hop of a path, best class first (src/graph/topo.h, v2.30)."""

    LOC = 0
    NVL = 1
    NVB = 2
    C2C = 3
    PIX = 4
    PXB = 5
    P2C = 6
    PXN = 7
    PHB = 8
    SYS = 9
    NET = 10
    DIS = 11


PATTERNS = ("balanced_tree", "split_tree", "tree", "ring", "nvls", "collnet_direct")
"""The shapes that NCCL searches for; pattern i is NCCL's number i + 1."""


@dataclass(frozen=True, slots=True)
class SearchChannel:
    """One search channel inside a node: GPUs by local index in order; NICs in and out, if any."""

    gpus: tuple[int, ...]
    nics: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Graph:
    """One search result, the same on every node.

    ``channels`` counts search channels, before the connect step doubles them. ``bw_intra`` and
    ``bw_inter`` are bytes/s of one channel, inside a node and between nodes; ``latency_inter_us``
    is what the network device reports (0 for NCCL's own InfiniBand and socket transports).
    ``cross_nic`` 2 means that a ring leaves a node by another rail than it entered. ``order`` is
    empty where only the numbers are known.
    """

    pattern: str
    channels: int
    bw_intra: float
    bw_inter: float
    type_intra: PathClass
    type_inter: PathClass
    cross_nic: int = 0
    same_channels: bool = False
    latency_inter_us: float = 0.0
    order: tuple[SearchChannel, ...] = ()


@dataclass(frozen=True, slots=True)
class Graphs:
    """All search results of a communicator; ``None`` if nothing was found or requested."""

    ring: Graph
    tree: Graph
    nvls: Graph | None = None
    collnet_direct: Graph | None = None
    collnet_chain: Graph | None = None

    @classmethod
    def joined(cls, results: Mapping[str, Graph]) -> "Graphs":
        """Return search results by name, with ring and tree cut to their common channels, as in NCCL."""
        channels = min(results["ring"].channels, results["tree"].channels)
        level = {name: _cut(results[name], channels) for name in ("ring", "tree")}
        others = {name: graph for name, graph in results.items() if name not in level and graph.channels}
        return cls(**level, **others)


def _cut(graph: Graph, channels: int) -> Graph:
    return replace(graph, channels=channels, order=graph.order[:channels])


TREES = ("balanced_tree", "split_tree", "tree")


@dataclass(frozen=True, slots=True)
class SearchRequest:
    """The aim of a pass: speeds are MB/s of one channel, classes the worst that are allowed."""

    pattern: str
    intra: int
    inter: int
    type_intra: PathClass
    type_inter: PathClass
    cross_nic: int
    same_channels: bool
    min_channels: int
    max_channels: int


@dataclass(frozen=True, slots=True)
class Result:
    """Channels found for a request: GPUs in order and ports in and out, by place, one entry per channel."""

    request: SearchRequest
    gpus: tuple[tuple[int, ...], ...] = ()
    ports: tuple[tuple[int, int], ...] = ()
    hops: int = 0
    latency_us: float = 0.0

    @property
    def channels(self) -> int:
        """Number of channels."""
        return len(self.gpus)


def better(result: Result, best: Result, gpus: int) -> bool:
    """Return whether a result is better than the best so far, on a node with this number of GPUs."""
    want, known = result.request, best.request
    if result.channels < want.min_channels:
        return False
    if want.pattern == "nvls":
        more = best.channels < result.channels <= gpus
        return more or result.channels * want.inter > best.channels * known.inter
    total, before = result.channels * want.intra, best.channels * known.intra
    if total != before:
        return total > before
    same = (want.pattern, want.cross_nic) == (known.pattern, known.cross_nic)
    return same and result.hops < best.hops


def doubled(result: Result, capability: int) -> Result:
    """Return twice the channels at half the speed if NCCL prefers these to few fast channels."""
    speed, channels = result.request.intra, result.channels
    enough = capability > 80 and speed < 50_000 and channels > 4
    if not channels or result.request.pattern == "nvls" or speed < 25_000 or enough:
        return result
    count = min(2 * channels, result.request.max_channels)
    parts = -(-count // channels)
    request = replace(
        result.request, intra=result.request.intra // parts, inter=result.request.inter // parts
    )
    return replace(
        result,
        request=request,
        gpus=(result.gpus * 2)[:count],
        ports=(result.ports * 2)[:count],
    )


KINDS = ("gpu", "dev", "pci", "nvs", "cpu", "nic", "net")

LOCAL = 5000e9
"""Bytes/s that mean no limit."""

PCI = PathClass.PIX
"""The first class of a path over PCIe."""

_BROADCOM_GEN4, _BROADCOM_GEN5 = 0x1000_C010_1000_A000, 0x1000_C030_1000_0000


@dataclass(eq=False, slots=True)
class Link:
    """One direction from a node to another: NVLink, C2C, PCIe, socket to socket, or card to network."""

    kind: PathClass
    to: "Node"
    bandwidth: float


@dataclass(eq=False, slots=True)
class Node:
    """One device. Its kind determines which facts count.

    ``host`` counts the machines that one NVLink domain joins; NCCL treats them as one node. A gpu is one
    rank's part of one: its ``rank`` on the node, NVIDIA's number ``dev`` and the ``capability``; ranks that
    share a GPU are attached to a dev. A cpu has its ``maker``; a pci switch its ``device`` (vendor, device
    and subsystem in one number); a net the ``bandwidth`` of its port in bytes/s, ``asic`` and ``port``, which
    together are its rail, and the ``latency_us`` that it reports. ``gdr`` says that GPUDirect RDMA can be
    used.
    """

    kind: str
    name: object
    links: list[Link] = field(default_factory=list)
    host: int = 0
    rank: int = 0
    dev: int = 0
    capability: int = 0
    maker: str = ""
    device: int = 0
    bandwidth: float = 0.0
    asic: object = None
    port: int = 0
    latency_us: float = 0.0
    gdr: bool = True


class Nodes:
    """All nodes of one machine, by kind in the order of `add`."""

    def __init__(self) -> None:
        self.of: dict[str, list[Node]] = {kind: [] for kind in KINDS}

    def add(self, node: Node) -> Node:
        """Add a node; `connect` adds its links."""
        self.of[node.kind].append(node)
        return node

    def find(self, kind: str, name: object) -> Node | None:
        """Return the node of a kind and name."""
        return next((node for node in self.of[kind] if node.name == name), None)

    def nvswitch(self) -> Node:
        """Return the one node that stands for all NVSwitches."""
        return self.find("nvs", 0) or self.add(Node("nvs", 0))

    def without(self, kind: str, gone: Iterable[Node]) -> None:
        """Remove nodes of one kind, and every link to them."""
        out = {id(node) for node in gone}
        self.of[kind] = [node for node in self.of[kind] if id(node) not in out]
        for nodes in self.of.values():
            for node in nodes:
                node.links = [link for link in node.links if id(link.to) not in out]

    def copied(self) -> "Nodes":
        """Return a copy of the machine."""
        old = [node for nodes in self.of.values() for node in nodes]
        new = {id(node): replace(node, links=[]) for node in old}
        for node in old:
            new[id(node)].links = [replace(link, to=new[id(link.to)]) for link in node.links]
        result = Nodes()
        for kind, nodes in self.of.items():
            result.of[kind] = [new[id(node)] for node in nodes]
        return result

    def first(self, gpus: int) -> "Nodes":
        """Return the machine with only the first GPUs by rank in use."""
        if gpus == len(self.of["gpu"]):
            return self
        nodes = self.copied()
        nodes.without("gpu", sorted(nodes.of["gpu"], key=lambda gpu: gpu.rank)[gpus:])
        return nodes

    def shared(self, ranks: int, each: int) -> "Nodes":
        """Return the machine with ``each`` ranks on every GPU, and fewer on the last ones if necessary."""
        nodes = self.copied()
        nodes.of["dev"], nodes.of["gpu"] = nodes.of["gpu"], []
        for place, gpu in enumerate(sorted(nodes.of["dev"], key=lambda gpu: gpu.rank)):
            gpu.kind = "dev"
            for rank in range(place * each, min((place + 1) * each, ranks)):
                own = replace(gpu, kind="gpu", name=(gpu.name, rank), rank=rank, links=[])
                cable(gpu, nodes.add(own), PathClass.LOC, LOCAL)
        return nodes

    def finish(self, sockets: float) -> "Nodes":
        """Join each host's CPUs by ``sockets`` bytes/s, merge split switches, put links in NCCL's order."""
        _merge_split_switches(self)
        for a in self.of["cpu"]:
            for b in self.of["cpu"]:
                if a is not b and a.host == b.host:
                    connect(a, b, PathClass.SYS, sockets)
        for cpu in self.of["cpu"]:
            _put_upward_last(cpu, None)
        return self


def device(gpu: Node) -> Node:
    """Return a rank's GPU: a gpu node itself, or the dev node that several ranks share."""
    return next((link.to for link in gpu.links if link.kind is PathClass.LOC), gpu)


def connect(a: Node, b: Node, kind: PathClass, bandwidth: float) -> None:
    """Link ``a`` to ``b``; several links of one kind add up to one. Wider links come first."""
    link = next((link for link in a.links if link.to is b and link.kind is kind), None)
    if link is None:
        link = Link(kind, b, 0.0)
        a.links.append(link)
    link.bandwidth += bandwidth
    place = a.links.index(link)
    while place and a.links[place - 1].bandwidth < link.bandwidth:
        a.links[place] = a.links[place - 1]
        place -= 1
    a.links[place] = link


def cable(a: Node, b: Node, kind: PathClass, bandwidth: float) -> None:
    """Link both ways."""
    connect(a, b, kind, bandwidth)
    connect(b, a, kind, bandwidth)


def _put_upward_last(node: Node, above: Node | None) -> None:
    upward = [link for link in node.links if above is not None and link.to is above]
    node.links = [link for link in node.links if link not in upward] + upward
    for link in node.links:
        if link.kind is PCI and link.to is not above:
            _put_upward_last(link.to, node)


def _merge_split_switches(nodes: Nodes) -> None:
    """Merge Broadcom's switches, which show as two levels of bridges with full bandwidth at each port."""
    for switch in list(nodes.of["pci"]):
        generation = _broadcom(switch.device, 0)
        if switch not in nodes.of["pci"] or not generation:
            continue
        lower = [
            link.to
            for link in switch.links
            if link.to.kind == "pci" and _broadcom(link.to.device, 1) == generation
        ]
        switch.links = [link for link in switch.links if link.to not in lower]
        for sub in lower:
            for link in sub.links:
                if link.to is not switch:
                    switch.links.append(link)
                    back = next(other for other in link.to.links if other.to is sub)
                    back.to = switch
            sub.links = []
        nodes.without("pci", lower)


def _broadcom(device: int, level: int) -> int:
    """Return the generation of Broadcom's split switches that a bridge belongs to, 0 for none."""
    known = {_BROADCOM_GEN4: 4, _BROADCOM_GEN5 | level * 0x1000: 5}
    return known.get(device & ~0xFFF, 0)
