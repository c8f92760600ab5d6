"""The best path from every GPU to every other, and to every network port (src/graph/paths.cc, v2.30.7).

The better class wins, then the wider path, then the shorter one. A path passes through another GPU only over
NVLink and only once (NVB). Then NCCL's policies: GPUs farther apart than a PCIe switch exchange through host
memory, a GPU reaches a far port through the GPU beside it (PXN), and paths without GPUDirect RDMA go through
the CPU. A machine that is given by figures only is drawn first.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations
from typing import Any

from ringside.sim.libraries.nccl.graph.graph import LOCAL, PCI, Link, Node, Nodes, PathClass, cable, device
from ringside.sim.libraries.nccl.graph.system import System

MAX_CHANNELS = 64

_GPUS = ("gpu", "dev")
"""Kinds of nodes that a path may only pass through over NVLink."""


@dataclass(frozen=True, slots=True)
class Path:
    """One path: its links in order, its worst class, and its narrowest link's bytes/s."""

    links: tuple[Link, ...]
    kind: PathClass
    bandwidth: float


_NOWHERE = Path((), PathClass.DIS, 0.0)


class Paths:
    """The paths in one machine; GPUs and ports by their place in ``nodes``.

    ``gpus[a][b]`` leads from GPU to GPU, ``out[g][n]`` from GPU to port and ``back[n][g]`` from port to GPU;
    ``up[g]`` and ``down[g]`` to and from the NVSwitch. ``gpu_of[n]`` is the GPU that uses port n, -1 if there
    is none. ``ports[g]`` are those that a GPU uses, in order of channels, each once.
    """

    def __init__(self, nodes: Nodes) -> None:
        self.nodes = nodes
        of, back = nodes.of, _reverses(nodes)
        to_cpu, to_gpu, to_net, to_nvs = (
            [_ways(base, back) for base in of[kind]] for kind in ("cpu", "gpu", "net", "nvs")
        )
        self.gpus = _table(of["gpu"], to_gpu)
        self.out = _table(of["gpu"], to_net)
        self.back = _table(of["net"], to_gpu)
        self._cpus_of_gpu, self._cpus_of_net = _table(of["gpu"], to_cpu), _table(of["net"], to_cpu)
        self._gpus_of_cpu, self._nets_of_cpu = _table(of["cpu"], to_gpu), _table(of["cpu"], to_net)
        self.up = [row[0] for row in _table(of["gpu"], to_nvs)] if of["nvs"] else []
        self.down = _table(of["nvs"], to_gpu)[0] if of["nvs"] else []
        self._cpu = [_first_of_widest(row) for row in self._cpus_of_gpu]
        self._keep_to_the_host()
        self._mark_c2c()
        self._relay()
        self.gpu_of = [self._gpu_beside(net) for net in range(len(of["net"]))]
        self.ports = [self._ports_of(gpu) for gpu in range(len(of["gpu"]))]

    def _ports_of(self, gpu: int) -> list[int]:
        near = _widest(self.out[gpu])
        if not near:
            return []
        sharing = len(_widest(self.back[near[0]])) or 1
        each = -(-len(near) // sharing)
        first = self.nodes.of["gpu"][gpu].dev % sharing
        if len(near) & (len(near) - 1) == 0:
            first = _mirrored(first, len(near))
        return [near[(first + channel) % len(near)] for channel in range(each)]

    def nearest_gpus(self, net: int) -> list[int]:
        """Return the GPUs to which a port has its best path."""
        return _widest(self.back[net])

    def _gpu_beside(self, net: int) -> int:
        """Return the first GPU nearest to a port that uses it, on the earliest channel."""
        near = _widest(self.back[net])
        ports = {gpu: self._ports_of(gpu) for gpu in near}
        for channel in range(MAX_CHANNELS):
            for gpu in near:
                if ports[gpu] and ports[gpu][channel % len(ports[gpu])] == net:
                    return gpu
        return -1

    def _keep_to_the_host(self) -> None:
        """Route GPUs that are farther apart than a PCIe switch through the receiver's CPU."""
        cpus, gpus = self.nodes.of["cpu"], self.nodes.of["gpu"]
        few = len({id(device(gpu)) for gpu in gpus}) <= 2
        direct = PathClass.SYS if cpus[0].maker == "amd" and few else PathClass.PXB
        for b in range(len(gpus)):
            for a in range(len(gpus)):
                if self.gpus[a][b].kind > direct:
                    cpu = self._cpu[b]
                    self.gpus[a][b] = _joined(self._cpus_of_gpu[a][cpu], self._gpus_of_cpu[cpu][b])

    def _mark_c2c(self) -> None:
        """Mark ports on a CPU that its GPU reaches by C2C as nearer than those behind a host bridge."""
        for gpu, cpu in enumerate(self._cpu):
            for net in _widest(self.out[gpu]):
                both = {self._cpus_of_gpu[gpu][cpu].kind, self._cpus_of_net[net][cpu].kind}
                if both == {PathClass.C2C, PathClass.PHB}:
                    for table, a, b in ((self.out, gpu, net), (self.back, net, gpu)):
                        path = table[a][b]
                        table[a][b] = Path(path.links, min(PathClass.P2C, path.kind), path.bandwidth)

    def _relay(self) -> None:
        for net in range(len(self.nodes.of["net"])):
            for gpu in range(len(self.nodes.of["gpu"])):
                self._through_a_peer(gpu, net)
                if self.out[gpu][net].kind < PathClass.PHB and not self._direct(gpu, net):
                    cpu = self._cpu[gpu]
                    self.back[net][gpu] = _joined(self._cpus_of_net[net][cpu], self._gpus_of_cpu[cpu][gpu])
                    self.out[gpu][net] = _joined(self._cpus_of_gpu[gpu][cpu], self._nets_of_cpu[cpu][net])

    def _through_a_peer(self, gpu: int, net: int) -> None:
        peer = self._gpu_beside(net)
        if peer in (gpu, -1):
            return
        near, own = self.out[peer][net], self.out[gpu][net]
        gpus = self.nodes.of["gpu"]
        nvlinked = self.gpus[peer][gpu].kind <= PathClass.NVL and gpus[peer].host == gpus[gpu].host
        better = near.bandwidth > own.bandwidth or own.kind > PathClass.PXN
        if near.kind <= PathClass.P2C and self._direct(peer, net, send=True) and nvlinked and better:
            joined = _joined(self.gpus[gpu][peer], near)
            self.out[gpu][net] = Path(joined.links, PathClass.PXN, joined.bandwidth)

    def _direct(self, gpu: int, net: int, *, send: bool = False) -> bool:
        """Return whether GPUDirect RDMA carries data between them."""
        node = self.nodes.of["gpu"][gpu]
        if not (node.gdr and self.nodes.of["net"][net].gdr):
            return False
        if send and node.capability < 80 and len(self.gpus) > 1:
            others = (path for peer, path in enumerate(self.gpus[gpu]) if peer != gpu)
            if all(path.kind is not PathClass.NVL for path in others):
                return False
        kind = self.out[gpu][net].kind
        return kind <= PathClass.P2C or kind is PathClass.PXN


@cache
def paths_of_system(system: System, ranks: int) -> Paths:
    """Return the paths in a machine with the GPUs of its first ``ranks`` ranks."""
    return Paths(drawing(system, ranks))


def _reverses(nodes: Nodes) -> dict[int, Link]:
    """Return every link's reverse, by the link's id; links without one are missing."""
    links = [(node, link) for of in nodes.of.values() for node in of for link in node.links]
    ends = {(id(node), id(link.to), link.kind): link for node, link in links}
    backs = ((link, ends.get((id(link.to), id(node), link.kind))) for node, link in links)
    return {id(link): back for link, back in backs if back is not None}


def _ways(base: Node, reverses: dict[int, Link]) -> dict[int, Path]:
    """Return the best path from every node to ``base``, by the node's id."""
    paths = {id(base): Path((), PathClass.LOC, LOCAL)}
    own = device(base)
    level = [base]
    while level:
        following: list[Node] = []
        for node in level:
            path = paths[id(node)]
            for link in node.links:
                back = reverses.get(id(link))
                if back is None or _no_relay(base, own, node, path, link):
                    continue
                known = paths.get(id(link.to), _NOWHERE)
                rating = (
                    _kind(own, node, path, link),
                    -min(path.bandwidth, link.bandwidth),
                    len(path.links) + 1,
                )
                if rating < (known.kind, -known.bandwidth, len(known.links)):
                    paths[id(link.to)] = Path((back, *path.links), rating[0], -rating[1])
                    if link.to not in following:
                        following.append(link.to)
        level = following
    return paths


def _no_relay(base: Node, own: Node, node: Node, path: Path, link: Link) -> bool:
    """Return whether the path would pass through a GPU other than from neighbour to neighbour over NVLink."""
    if node.kind not in _GPUS or node in (base, own) or link.kind is PathClass.LOC:
        return False
    reach = 1 if own is base else 2
    return link.kind is not PathClass.NVL or link.to.kind not in _GPUS or len(path.links) > reach


def _kind(own: Node, node: Node, path: Path, link: Link) -> PathClass:
    """Return the class of a path extended by one link."""
    kind = link.kind
    if kind is PCI:
        if "cpu" in (node.kind, link.to.kind):
            kind = PathClass.PHB
        elif node.kind == link.to.kind == "pci":
            kind = PathClass.PXB
    elif kind is PathClass.NET:
        kind = PathClass.LOC
    elif kind is PathClass.NVL and path.kind is PathClass.NVL and node.kind in _GPUS and node is not own:
        kind = PathClass.NVB
    return max(path.kind, kind)


def _table(sources: Iterable[Node], ways: list[dict[int, Path]]) -> list[list[Path]]:
    return [[to.get(id(source), _NOWHERE) for to in ways] for source in sources]


def _joined(first: Path, second: Path) -> Path:
    kind = max(first.kind, second.kind)
    if {first.kind, second.kind} == {PathClass.C2C, PathClass.PHB}:
        kind = PathClass.P2C
    return Path(first.links + second.links, kind, min(first.bandwidth, second.bandwidth))


def _widest(row: list[Path]) -> list[int]:
    """Return the places of the widest paths of the best class."""
    ratings = [(-path.bandwidth, path.kind) for path in row]
    best = min(ratings, default=(0.0, PathClass.DIS))
    return [place for place, rating in enumerate(ratings) if rating == best and rating[0]]


def _first_of_widest(row: list[Path]) -> int:
    return min(_widest(row), key=lambda place: len(row[place].links), default=0)


def _mirrored(number: int, power: int) -> int:
    """Return a number's bits, below a power of two, in reverse order."""
    width = power.bit_length() - 1
    return int(f"{number % power:0{width}b}"[::-1], 2) if width else 0


@cache
def drawn(system: System, gpus: int) -> Nodes:
    """Return the machine with its first ``gpus`` GPUs in use and all its cards."""
    nodes = Nodes()
    sockets = min(system.sockets, system.gpus)
    cpus = [
        nodes.add(Node("cpu", index, host=index * system.hosts // sockets, maker=system.cpu))
        for index in range(sockets)
    ]
    above = _switches(nodes, system, cpus)
    for gpu in range(gpus):
        cpu = cpus[gpu * sockets // system.gpus]
        number = gpu % (system.gpus // system.hosts)
        node = Node("gpu", gpu, host=cpu.host, rank=gpu, dev=number, capability=system.compute_capability)
        cable(nodes.add(node), above[gpu * len(above) // system.gpus], PCI, system.pcie)
        if system.c2c:
            cable(node, cpu, PathClass.C2C, system.c2c)
    for card in range(system.nics):
        nic = nodes.add(Node("nic", card))
        net = Node("net", card, dev=card, bandwidth=system.nic, asic=card)
        place = system.beside[card] / system.gpus if system.beside else card / system.nics
        cable(nic, above[int(place * len(above))], PCI, system.pcie)
        cable(nic, nodes.add(net), PathClass.NET, system.nic)
    if system.nvlink:
        _add_nvlinks(nodes, system, cpus)
    return nodes.finish(system.socket)


def drawing(system: System, ranks: int) -> Nodes:
    """Return the machine as in a file, or by its figures, with the GPUs of its first ``ranks`` ranks."""
    gpus = -(-ranks // system.ranks_per_gpu)
    nodes = drawn(system, gpus) if system.nodes is None else system.nodes.first(gpus)
    return nodes if system.ranks_per_gpu == 1 else nodes.shared(ranks, system.ranks_per_gpu)


def redrawn(system: System, **figures: float) -> System:
    """Return the machine with other ``nvlink``, ``pcie``, ``nic`` or ``socket`` (bytes/s), and drawing."""
    changed: dict[str, Any] = dict(figures)
    if system.nodes is None:
        return replace(system, **changed)
    nodes = system.nodes.copied()
    for node in (node for of in nodes.of.values() for node in of):
        for link in node.links:
            match link.kind:
                case PathClass.NVL if "nvlink" in figures and system.nvlink:
                    link.bandwidth *= figures["nvlink"] / system.nvlink
                case PathClass.PIX if link.bandwidth < LOCAL:
                    link.bandwidth = figures.get("pcie", link.bandwidth)
                case PathClass.NET:
                    link.bandwidth = figures.get("nic", link.bandwidth)
                case PathClass.SYS:
                    link.bandwidth = figures.get("socket", link.bandwidth)
        if node.kind == "net":
            node.bandwidth = figures.get("nic", node.bandwidth)
    return replace(system, nodes=nodes, **changed)


def _switches(nodes: Nodes, system: System, cpus: list[Node]) -> list[Node]:
    """Return the devices that hold GPUs and cards, in order: PCIe switches on the CPUs, or the CPUs."""
    if not system.gpus_per_switch:
        return cpus
    switches = [nodes.add(Node("pci", index)) for index in range(-(-system.gpus // system.gpus_per_switch))]
    for index, switch in enumerate(switches):
        cable(switch, cpus[index * len(cpus) // len(switches)], PCI, system.pcie)
    return switches


def _add_nvlinks(nodes: Nodes, system: System, cpus: list[Node]) -> None:
    gpus = nodes.of["gpu"]
    if system.nvswitch:
        for gpu in gpus:
            cable(gpu, nodes.nvswitch(), PathClass.NVL, system.nvlink)
        return
    pairs = system.mesh or tuple((a, b, 1) for a, b in combinations(range(system.gpus), 2))
    most = max(links_of(pairs, gpu) for gpu in range(system.gpus)) + system.cpu_links
    link = system.nvlink / max(most, 1)
    for a, b, count in pairs:
        if max(a, b) < len(gpus):
            cable(gpus[a], gpus[b], PathClass.NVL, count * link)
    if system.cpu_links:
        for index, gpu in enumerate(gpus):
            cable(gpu, cpus[index * len(cpus) // system.gpus], PathClass.NVL, system.cpu_links * link)


def links_of(mesh: tuple[tuple[int, int, int], ...], gpu: int) -> int:
    """Return the number of NVLinks of a mesh at a GPU."""
    return sum(count for a, b, count in mesh if gpu in (a, b))
