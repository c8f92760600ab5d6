"""The machine in the XML file that NCCL or RCCL writes for NCCL_TOPO_DUMP_FILE.

Every ``cpu`` becomes a CPU, and every two CPUs are joined; every ``pci`` with GPUs anywhere below it
becomes a PCIe switch; every ``gpu`` is a rank; every ``net`` is a card. NVLinks to switches go to one
NVSwitch, those to GPUs to the GPU named, at the data sheet's bandwidth of the generation. A bridge
without GPUs below is left out; its devices go to the next switch or CPU above, at the bandwidth of the
slowest link on the way. Fused switches (``pcilink``) and devices that are neither GPU nor card are left
out too. AMD's links (``xgmi``) join two GPUs directly.

A file without GPUs, as clouds ship them, is completed from a named machine of the catalogue.
"""

from dataclasses import dataclass, field
from itertools import combinations, count

import networkx as nx

from ringside.topologies import hardware
from ringside.topologies.chassis import clustered
from ringside.topologies.graph import Node, Topology, add_cable
from ringside.topologies.importers import completing, elements
from ringside.topologies.importers.elements import Element
from ringside.topologies.units import Seconds


@dataclass(slots=True)
class ImportedMachine:
    """The content of a file: the machine as a graph without latencies, and its attributes.

    ``ports`` has the bytes/s of every card; ``compute_capability`` is the lowest of the GPUs; ``cpu``
    is its maker as in `elements.maker`; ``socket`` is NCCL's bandwidth from CPU to CPU in
    bytes/s. ``root`` is the file itself, completed.
    """

    graph: Topology
    compute_capability: int
    cpu: str
    socket: float
    root: Element
    ports: dict[Node, float] = field(default_factory=dict)


def topology(
    text: str,
    nodes: int = 1,
    gpus: str = "",
    nvlink_latency: Seconds = 0.6e-6,
    pcie_latency: Seconds = 1e-6,
    network_latency: Seconds = 2.7e-6,
) -> Topology:
    """Join ``nodes`` machines of the kind in the file; latencies default to NCCL's for LL.

    ``gpus`` names the catalogue machine from which a file without GPUs is completed.
    """
    machine = read(text, gpus)
    machine.graph.graph.update(compute_capability=machine.compute_capability, cpu=machine.cpu)
    return clustered(
        machine.graph,
        nodes,
        machine.ports,
        nvlink_latency=nvlink_latency,
        pcie_latency=pcie_latency,
        network_latency=network_latency,
    )


def read(text: str, gpus: str = "") -> ImportedMachine:
    """Parse a file's text into a machine; raise `TopologyError` with the line of an error."""
    root = elements.elements(text)
    if gpus:
        completing.complete(root, gpus)
    ranked = elements.gpus(root)
    if not ranked:
        raise root.complaint(completing.refusal(root))
    cpus = [child for child in root.children if child.tag == "cpu"]
    graph: Topology = nx.DiGraph(name="nccl-topology")
    names = {id(gpu): f"gpu{index}" for index, gpu in enumerate(ranked)}
    for rank, gpu in enumerate(names.values()):
        graph.add_node(gpu, kind="gpu", rank=rank, tier=0)
    capability = min(element.count("sm") for element in ranked)
    machine = ImportedMachine(graph, capability, elements.maker(cpus[0]), elements.socket(cpus[0]), root)
    _Walk(machine, names).through(cpus)
    return machine


class _Walk:
    """Builds a machine's graph from the CPUs down to the devices, then the NVLinks across."""

    def __init__(self, machine: ImportedMachine, names: dict[int, Node]) -> None:
        self._machine = machine
        self._graph = machine.graph
        self._names = names
        self._cards = {id(net): f"nic{index}" for index, net in enumerate(elements.nets(machine.root))}
        self._depth = max(_depth(element) for element in machine.root.children)
        self._at: dict[int, list[Node]] = {}
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
                if id(gpu) in self._names:
                    self._links_of(gpu, f"cpu{index}")

    def _below(self, element: Element, above: Node, width: float, tier: int) -> None:
        for child in element.children:
            match child.tag:
                case "pci":
                    self._pci(child, above, min(width, elements.pcie(child)), tier)
                case "nic":
                    self._nic(child, above, width)
                case "gpu" if id(child) in self._names:
                    gpu = self._names[id(child)]
                    self._at.setdefault(elements.busid(element), []).append(gpu)
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
            card = self._cards.get(id(net))
            if card is not None:
                port = elements.port(net)
                self._graph.add_node(card, kind="nic", tier=self._depth + 2)
                self._cable(above, card, "pcie", width if width < float("inf") else port)
                self._machine.ports[card] = port

    def _links_of(self, element: Element, cpu: Node) -> None:
        gpu = self._names[id(element)]
        for child in element.children:
            match child.tag:
                case "c2c":
                    self._cable(gpu, cpu, "c2c", child.number("count") * child.number("bw") * 1e6)
                case "nvlink":
                    self._nvlink(gpu, cpu, child, hardware.nvlink(element.count("sm")))
                case "xgmi":
                    link = hardware.xgmi(element.attributes.get("gcn", ""))
                    self._to_peers(gpu, child, "xgmi", child.count("count") * link)

    def _nvlink(self, gpu: Node, cpu: Node, element: Element, link: float) -> None:
        bandwidth = element.count("count") * link
        kind = element.text("tclass")
        if kind.startswith("0x068001"):
            self._cable(gpu, cpu, "nvlink", bandwidth)
        elif kind.startswith("0x0680"):
            self._to_switch(gpu, bandwidth)
        else:
            self._to_peers(gpu, element, "nvlink", bandwidth)

    def _to_peers(self, gpu: Node, element: Element, kind: str, bandwidth: float) -> None:
        """Link to the GPU at the target address, unless it is absent, or the GPU itself as in some files."""
        for peer in self._at.get(elements.busid(element, "target"), ()):
            if bandwidth and peer != gpu:
                self._graph.add_edge(gpu, peer, kind=kind, bandwidth=bandwidth, latency=0.0)

    def _to_switch(self, gpu: Node, bandwidth: float) -> None:
        self._graph.add_node("nvswitch", kind="nvswitch", tier=1)
        known = self._graph.edges.get((gpu, "nvswitch"), {"bandwidth": 0.0})
        self._cable(gpu, "nvswitch", "nvlink", bandwidth + known["bandwidth"])

    def _cable(self, a: Node, b: Node, kind: str, bandwidth: float) -> None:
        add_cable(self._graph, a, b, kind=kind, bandwidth=bandwidth, latency=0)


def _depth(element: Element) -> int:
    """Return the depth of nested bridges below an element."""
    pcis = [child for child in element.children if child.tag == "pci"]
    return max((_depth(pci) + any(c.tag == "pci" for c in pci.children) for pci in pcis), default=0)
