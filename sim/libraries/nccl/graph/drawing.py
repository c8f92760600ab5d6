"""NCCL's graph of a machine that is given by figures only."""

from dataclasses import replace
from functools import cache
from itertools import combinations
from typing import Any

from ringside.sim.libraries.nccl.graph.graph import PathClass
from ringside.sim.libraries.nccl.graph.nodes import LOCAL, PCI, Node, Nodes, cable
from ringside.sim.libraries.nccl.graph.system import System


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
