"""The machine in the XML file that NCCL_TOPO_DUMP_FILE makes NCCL write (version 1, NCCL 2.28 to 2.30).

What becomes of it: every ``cpu`` is a CPU, all CPUs are joined two by two; every ``pci`` with
GPUs somewhere below is a PCIe switch; every ``gpu`` is a rank; every ``net`` is a card. NVLinks
towards switches go to one NVSwitch, those towards GPUs to the GPU named, at the data sheet's
bandwidth of the generation. A bridge without GPUs below is left out; what hangs on it goes to the
next switch or CPU above, at the slowest link on the way. Fused switches (``pcilink``) and
devices that are neither GPU nor card are left out too.
"""

import re
from dataclasses import dataclass, field
from itertools import combinations, count

import networkx as nx

from topologies import links
from topologies.graph import Node, Topology, TopologyError, add_cable
from topologies.importers.cluster import clustered
from topologies.importers.elements import Element, Source, parse
from topologies.units import Seconds

_SOURCE = Source("topology file", "take the file that NCCL_TOPO_DUMP_FILE writes, as it is", TopologyError)

_VENDORS = {"GenuineIntel": "intel", "AuthenticAMD": "amd"}
_ARCHITECTURES = {"arm64": "arm", "ppc64": "power", "x86_64": "x86"}
_SOCKET_GBPS = {"amd": 16, "arm": 6, "power": 32, "x86": 6}
_INTEL_SOCKET_GBPS = {0xCF: 40, 0x8F: 22, 0x55: 10, 0: 6}
"""GB/s that NCCL reckons from CPU to CPU, Intel's from a model on (src/graph/topo.cc, v2.30.7)."""

UNKNOWN_PORT = 10e9 / 8
"""Bytes/s that NCCL takes for a card which does not tell its speed."""


@dataclass(slots=True)
class Machine:
    """What one file tells: the machine as a graph without latencies, and what stands beside it.

    ``ports`` has the bytes/s of every card; ``compute_capability`` is the least of the GPUs; ``cpu``
    is ``intel``, ``amd``, ``arm``, ``power`` or ``x86`` for another maker's; ``socket`` what NCCL reckons
    from one CPU to another, in bytes/s.
    """

    graph: Topology
    compute_capability: int
    cpu: str
    socket: float
    ports: dict[Node, float] = field(default_factory=dict)


def topology(
    text: str,
    nodes: int = 1,
    nvlink_latency: Seconds = 0.6e-6,
    pcie_latency: Seconds = 1e-6,
    network_latency: Seconds = 2.7e-6,
) -> Topology:
    """``nodes`` machines of the kind in the file; latencies default to NCCL's for LL."""
    machine = read(text)
    cpu = "other" if machine.cpu == "x86" else machine.cpu
    machine.graph.graph.update(compute_capability=machine.compute_capability, cpu=cpu)
    return clustered(
        machine.graph,
        nodes,
        machine.ports,
        nvlink_latency=nvlink_latency,
        pcie_latency=pcie_latency,
        network_latency=network_latency,
    )


def read(text: str) -> Machine:
    """The machine in a file's text; raise `TopologyError` with the line of what is wrong."""
    root = parse(text, _SOURCE, "system")
    cpus = [child for child in root.children if child.tag == "cpu"]
    names = _ranked(root)
    if not cpus:
        raise root.complaint("no cpu element")
    graph: Topology = nx.DiGraph(name="nccl-topology")
    for rank, gpu in enumerate(names.values()):
        graph.add_node(gpu, kind="gpu", rank=rank, tier=0)
    cpu, socket = _maker(cpus[0])
    capability = min(element.count("sm") for element in root.below("gpu"))
    machine = Machine(graph, capability, cpu, socket)
    _Walk(machine, root, names).through(cpus)
    return machine


class _Walk:
    """Builds a machine's graph from the CPUs down to the devices, then the NVLinks across."""

    def __init__(self, machine: Machine, root: Element, names: dict[int, Node]) -> None:
        self._machine = machine
        self._graph = machine.graph
        self._names = names
        nets = sorted(root.below("net"), key=lambda net: net.count("dev"))
        self._cards = {id(net): f"nic{index}" for index, net in enumerate(nets)}
        self._depth = max(_depth(element) for element in root.children)
        self._at: dict[str, list[Node]] = {}
        self._numbers = count()

    def through(self, cpus: list[Element]) -> None:
        for index in range(len(cpus)):
            self._graph.add_node(f"cpu{index}", kind="cpu", tier=self._depth + 1)
        for a, b in combinations(range(len(cpus)), 2):
            self._cable(f"cpu{a}", f"cpu{b}", "upi", self._machine.socket)
        for index, element in enumerate(cpus):
            self._below(element, f"cpu{index}", float("inf"), self._depth)
        for index, element in enumerate(cpus):
            for gpu in element.below("gpu"):
                self._links_of(gpu, f"cpu{index}")

    def _below(self, element: Element, above: Node, width: float, tier: int) -> None:
        for child in element.children:
            match child.tag:
                case "pci":
                    self._pci(child, above, min(width, _pcie(child)), tier)
                case "nic":
                    self._nic(child, above, width)
                case "gpu":
                    gpu = self._names[id(child)]
                    self._at.setdefault(element.text("busid"), []).append(gpu)
                    self._cable(gpu, above, "pcie", width)

    def _pci(self, element: Element, above: Node, width: float, tier: int) -> None:
        bridge = any(child.tag == "pci" for child in element.children)
        if bridge and any(element.below("gpu")):
            switch = f"pcie{next(self._numbers)}"
            self._graph.add_node(switch, kind="pcie", tier=tier)
            self._cable(switch, above, "pcie", width)
            above, width = switch, float("inf")
        self._below(element, above, width, tier - 1)

    def _nic(self, element: Element, above: Node, width: float) -> None:
        for net in element.children:
            if net.tag == "net":
                card = self._cards[id(net)]
                port = _speed(net)
                self._graph.add_node(card, kind="nic", tier=self._depth + 2)
                self._cable(above, card, "pcie", width if width < float("inf") else port)
                self._machine.ports[card] = port

    def _links_of(self, element: Element, cpu: Node) -> None:
        gpu, link = self._names[id(element)], links.nvlink(element.count("sm"))
        for child in element.children:
            if child.tag == "c2c":
                self._cable(gpu, cpu, "c2c", child.number("count") * child.number("bw") * 1e6)
            if child.tag != "nvlink":
                continue
            bandwidth = child.count("count") * link
            kind = child.text("tclass")
            if kind.startswith("0x068001"):
                self._cable(gpu, cpu, "nvlink", bandwidth)
            elif kind.startswith("0x0680"):
                self._to_switch(gpu, bandwidth)
            for peer in self._at.get(child.text("target"), ()):
                self._graph.add_edge(gpu, peer, kind="nvlink", bandwidth=bandwidth, latency=0.0)

    def _to_switch(self, gpu: Node, bandwidth: float) -> None:
        self._graph.add_node("nvswitch", kind="nvswitch", tier=1)
        known = self._graph.edges.get((gpu, "nvswitch"), {"bandwidth": 0.0})
        self._cable(gpu, "nvswitch", "nvlink", bandwidth + known["bandwidth"])

    def _cable(self, a: Node, b: Node, kind: str, bandwidth: float) -> None:
        add_cable(self._graph, a, b, kind=kind, bandwidth=bandwidth, latency=0)


def _ranked(root: Element) -> dict[int, Node]:
    """The name of every GPU by its element: in the order of the ranks where the file has them."""
    gpus = list(root.below("gpu"))
    if not gpus:
        raise root.complaint("no gpu element, so there is no rank")
    if all("rank" in gpu.attributes for gpu in gpus):
        seen: set[int] = set()
        for gpu in gpus:
            rank = gpu.count("rank")
            if rank in seen:
                raise gpu.complaint(f"a second gpu has rank {rank}")
            seen.add(rank)
        gpus.sort(key=lambda gpu: gpu.count("rank"))
    return {id(gpu): f"gpu{index}" for index, gpu in enumerate(gpus)}


def _depth(element: Element) -> int:
    """How many bridges lie above one another under an element."""
    pcis = [child for child in element.children if child.tag == "pci"]
    return max((_depth(pci) + any(c.tag == "pci" for c in pci.children) for pci in pcis), default=0)


def _pcie(element: Element) -> float:
    speed = re.match(r"\s*([\d.]+) *GT/s", element.attributes.get("link_speed", ""))
    width = element.attributes.get("link_width", "")
    lanes = int(width) if width.isdecimal() and int(width) else 16
    try:
        return links.pcie(float(speed[1]) if speed else 0.0, lanes)
    except ValueError:
        raise element.complaint(f"link_speed is {element.attributes['link_speed']!r}") from None


def _speed(net: Element) -> float:
    unknown = net.attributes.get("speed", "0").startswith("-")
    megabits = 0.0 if unknown or "speed" not in net.attributes else net.number("speed")
    return megabits * 1e6 / 8 or UNKNOWN_PORT


def _maker(cpu: Element) -> tuple[str, float]:
    architecture = _ARCHITECTURES[cpu.one_of("arch", tuple(_ARCHITECTURES))]
    maker = architecture
    if architecture == "x86":
        maker = _VENDORS.get(cpu.text("vendor"), "x86")
    if maker != "intel":
        return maker, _SOCKET_GBPS[maker] * 1e9
    model = cpu.count("modelid") if cpu.count("familyid") == 6 else 0
    return maker, _INTEL_SOCKET_GBPS[max(first for first in _INTEL_SOCKET_GBPS if first <= model)] * 1e9
