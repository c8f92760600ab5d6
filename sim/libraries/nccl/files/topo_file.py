"""A machine from NCCL's topology file, written with NCCL_TOPO_DUMP_FILE."""

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Literal

from ringside.sim.libraries.nccl.graph.graph import LOCAL, PCI, Node, Nodes, PathClass, cable, connect
from ringside.sim.libraries.nccl.graph.system import System, nvlink_link
from ringside.topologies.graph import Topology, ranks
from ringside.topologies.importers import elements, nccl_xml, nvidia_smi
from ringside.topologies.importers.elements import Element

Kind = Literal["topology", "graphs", "table", "log"]

WHAT: dict[Kind, str] = {
    "topology": "a topology file (NCCL_TOPO_DUMP_FILE)",
    "graphs": "a graph file (NCCL_GRAPH_DUMP_FILE)",
    "table": "a table of nvidia-smi topo -m",
    "log": "a log (NCCL_DEBUG=INFO)",
}

_ROOT = re.compile(r"<(\w[\w.:-]*)")
_ROOTS: dict[str, Kind] = {"system": "topology", "graphs": "graphs"}


def is_amds(text: str) -> bool:
    """Return whether a topology file is of a machine with AMD GPUs, on which RCCL runs and not NCCL."""
    return re.search(r"<xgmi\b|<gpu\b[^>]*\sgcn=", text) is not None


def file_kind(text: str) -> Kind | None:
    """Return the kind of file, ``None`` if it is none of them; a table in a job's log makes it a table."""
    if text.lstrip("\ufeff \t\r\n").startswith("<"):
        root = _ROOT.search(text)
        return _ROOTS.get(root[1]) if root else None
    if nvidia_smi.is_matrix(text):
        return "table"
    return "log" if re.search(r"\bNCCL (INFO|WARN|TRACE) ", text) else None


@lru_cache(maxsize=64)  # one graph of nodes per file, searched once
def system_of(text: str, name: str = "topology file", gpus: str = "") -> System:
    """Parse the machine in a topology file's text, one of a cluster's equal machines.

    Its graphs are searched for on the whole drawing; the figures beside it are, where GPUs or cards
    differ, the least of them. Those of PCIe slots are the GPUs', or the cards' if GPUs reach
    their CPU by C2C instead. ``gpus`` names the catalogue machine whose GPUs and cards complete a file
    without them. Raise `ringside.topologies.TopologyError` with the line of an error, and
    `ValueError` for a machine with AMD GPUs, on which RCCL runs and not NCCL.
    """
    machine = nccl_xml.read(text, gpus)
    root = machine.root
    if is_amds(text):
        raise ValueError(
            f"{name}: AMD GPUs joined by xGMI, on which RCCL runs, whose rings and tuner constants "
            "differ from NCCL's; write --library ideal"
        )
    graph, there = machine.graph, ranks(machine.graph)
    nodes = _Drawing(root).nodes.finish(machine.socket)
    nvlink = min(
        sum(link.bandwidth for link in gpu.links if link.kind is PathClass.NVL and link.to is not gpu)
        for gpu in nodes.of["gpu"]
    )
    slots = _pcie(graph, there) or _pcie(graph, machine.ports)
    shared = max(_gpus_on_a_switch_with_cards(graph), default=0)
    return System(
        name=name,
        compute_capability=machine.compute_capability,
        gpus=len(there),
        nics=len(machine.ports),
        nic=min(machine.ports.values(), default=0.0),
        nvlink=nvlink,
        pcie=min(slots, default=0.0),
        socket=machine.socket,
        nvswitch="nvswitch" in graph,
        cpu=machine.cpu,
        gpus_per_switch=shared,
        sockets=len(nodes.of["cpu"]),
        nodes=nodes,
    )


class _Drawing:
    """Builds NCCL's graph from a file's elements, in the file's order (src/graph/topo.cc, v2.30.7)."""

    def __init__(self, root: Element) -> None:
        self.nodes = Nodes()
        self._gpus = {id(gpu): rank for rank, gpu in enumerate(elements.gpus(root))}
        self._nets = {id(net) for net in elements.nets(root)}
        self._places: dict[int, Node] = {}
        self._cpu_of: dict[int, Node] = {}
        hosts: dict[str, int] = {}
        for index, element in enumerate(child for child in root.children if child.tag == "cpu"):
            host = hosts.setdefault(element.attributes.get("host_hash", ""), len(hosts))
            cpu = self.nodes.add(Node("cpu", index, host=host, maker=elements.maker(element)))
            for child in element.children:
                if child.tag == "pci":
                    self._pci(child, cpu, cpu)
                elif child.tag == "nic":
                    self._card(child, (index, 0), cpu, LOCAL)
        for pci in root.below("pci"):
            self._across(pci)

    def _pci(self, element: Element, above: Node, cpu: Node) -> None:
        address, width = elements.busid(element), elements.pcie(element)
        gpus = [child for child in element.children if child.tag == "gpu"]
        used = [gpu for gpu in gpus if id(gpu) in self._gpus]
        nic = next((child for child in element.children if child.tag == "nic"), None)
        if len(used) > 1:
            raise element.complaint(
                "several ranks on one GPU, which the model of NCCL's search does not cover"
            )
        if used:
            gpu = used[0]
            node = Node("gpu", address, host=cpu.host, rank=self._gpus[id(gpu)], dev=gpu.count("dev"))
            node.capability, node.gdr = gpu.count("sm"), gpu.attributes.get("gdr", "1") != "0"
            self._cpu_of[id(node)] = cpu
            self._plug(element, self.nodes.add(node), above, width)
        elif nic is not None:
            self._card(nic, (cpu.name, address & ~0xF), above, width)
        elif not gpus and elements.is_bridge(element):
            node = self.nodes.add(Node("pci", address, device=_device(element)))
            for child in element.children:
                if child.tag == "pci":
                    self._pci(child, node, cpu)
            self._plug(element, node, above, width)

    def _plug(self, element: Element, node: Node, above: Node, width: float) -> None:
        self._places[elements.busid(element)] = node
        cable(node, above, PCI, width)

    def _card(self, element: Element, name: object, above: Node, width: float) -> None:
        """Add a card; NCCL merges its functions, and ignores a card without a port in use."""
        ports = [net for net in element.children if id(net) in self._nets]
        if not ports:
            return
        card = self.nodes.find("nic", name)
        if card is None:
            card = self.nodes.add(Node("nic", name))
            cable(card, above, PCI, width)
        for net in ports:
            number, bandwidth = net.count("dev"), elements.port(net)
            node = Node(
                "net", number, dev=number, bandwidth=bandwidth, asic=net.attributes.get("guid", number)
            )
            node.port = net.count("port") if "port" in net.attributes else 0
            node.gdr = net.attributes.get("gdr", "0") != "0"
            node.latency_us = net.number("latency") if "latency" in net.attributes else 0.0
            cable(card, self.nodes.add(node), PathClass.NET, bandwidth)

    def _across(self, pci: Element) -> None:
        """Add links from a device other than up and down."""
        node = self._places.get(elements.busid(pci))
        if node is None:
            return
        for child in pci.children:
            if child.tag == "pcilink":
                other = self._places.get(elements.busid(child, "target"))
                if other is not None:
                    connect(node, other, PathClass.LOC, LOCAL)
        for gpu in (child for child in pci.children if child.tag == "gpu" and id(child) in self._gpus):
            for link in gpu.children:
                self._link(node, link)

    def _link(self, gpu: Node, element: Element) -> None:
        cpu = self._cpu_of[id(gpu)]
        if element.tag == "c2c":
            bandwidth = element.number("count") * element.number("bw") * 1e6
            cable(gpu, cpu, PathClass.C2C, bandwidth)
        elif element.tag == "nvlink":
            bandwidth = element.count("count") * nvlink_link(gpu.capability)
            kind = element.text("tclass")
            if kind.startswith("0x03"):
                peer = self._places.get(elements.busid(element, "target"))
                if peer is not None:
                    connect(gpu, peer, PathClass.NVL, bandwidth)
            else:
                to = cpu if kind.startswith("0x068001") else self.nodes.nvswitch()
                cable(gpu, to, PathClass.NVL, bandwidth)


def _device(element: Element) -> int:
    """Return vendor, device and subsystem of a PCIe switch in one number."""
    number = 0
    for name in ("vendor", "device", "subsystem_vendor", "subsystem_device"):
        text = element.attributes.get(name, "0")
        number = number << 16 | (int(text, 16) & 0xFFFF if text.startswith("0x") and len(text) > 2 else 0)
    return number


def _pcie(graph: Topology, devices: Iterable[str]) -> list[float]:
    """Return the bytes/s of some devices' slots."""
    links = (link for device in devices for *_, link in graph.out_edges(device, data=True))
    return [link["bandwidth"] for link in links if link["kind"] == "pcie"]


def _gpus_on_a_switch_with_cards(graph: Topology) -> Iterable[int]:
    """Return the number of GPUs of each PCIe switch that has cards too."""
    for node, data in graph.nodes(data=True):
        if data["kind"] == "pcie" and any(graph.nodes[to]["kind"] == "nic" for to in graph.successors(node)):
            yield len(_gpus_below(graph, node))


def _gpus_below(graph: Topology, node: str) -> list[str]:
    """Return the GPUs below a device, or the device itself if it is a GPU."""
    if graph.nodes[node]["kind"] == "gpu":
        return [node]
    tier = graph.nodes[node]["tier"]
    lower = (other for other in graph.successors(node) if graph.nodes[other]["tier"] < tier)
    return [gpu for other in lower for gpu in _gpus_below(graph, other)]
