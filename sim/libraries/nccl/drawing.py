"""The graph that NCCL would draw of a machine known by its figures alone."""

from functools import cache
from itertools import combinations
from typing import Any

from sim.libraries.nccl.graph import PathClass
from sim.libraries.nccl.nodes import LOCAL, PCI, Node, Nodes, cable, device
from sim.libraries.nccl.system import System


@cache
def drawn(system: System, ranks: int) -> Nodes:
    """The machine with all its cards and the GPUs of its first ``ranks`` ranks."""
    nodes = Nodes()
    sockets = min(system.sockets, system.gpus)
    cpus = [
        nodes.add(Node("cpu", index, host=index * system.hosts // sockets, maker=system.cpu))
        for index in range(sockets)
    ]
    above = _switches(nodes, system, cpus)
    for gpu, own in enumerate(_shares(ranks, system.ranks_per_gpu)):
        cpu = cpus[gpu * sockets // system.gpus]
        number = gpu % (system.gpus // system.hosts)
        node = _gpu(nodes, gpu, own, host=cpu.host, dev=number, capability=system.compute_capability)
        cable(node, above[gpu * len(above) // system.gpus], PCI, system.pcie)
        if system.c2c:
            cable(node, cpu, PathClass.C2C, system.c2c)
    for card in range(system.nics):
        nic = nodes.add(Node("nic", card))
        net = Node("net", card, dev=card, bandwidth=system.nic, asic=card)
        cable(nic, above[card * len(above) // system.nics], PCI, system.pcie)
        cable(nic, nodes.add(net), PathClass.NET, system.nic)
    if system.nvlink:
        _add_nvlinks(nodes, system, cpus)
    return nodes.finish(system.socket)


def drawing(system: System, ranks: int) -> Nodes:
    """The machine as a file draws it, or by its figures, with its first ``ranks`` ranks."""
    return drawn(system, ranks) if system.nodes is None else system.nodes.first(ranks)


def _shares(ranks: int, each: int) -> list[range]:
    """The ranks of every GPU."""
    return [range(first, min(first + each, ranks)) for first in range(0, ranks, each)]


def _gpu(nodes: Nodes, number: int, ranks: range, **facts: Any) -> Node:
    """A GPU, and the ranks on it where it has several."""
    if len(ranks) == 1:
        return nodes.add(Node("gpu", number, rank=ranks[0], **facts))
    shared = nodes.add(Node("dev", number, **facts))
    for rank in ranks:
        cable(shared, nodes.add(Node("gpu", rank, rank=rank, **facts)), PathClass.LOC, LOCAL)
    return shared


def _switches(nodes: Nodes, system: System, cpus: list[Node]) -> list[Node]:
    """What GPUs and cards are plugged into, in order: PCIe switches on the CPUs, or the CPUs themselves."""
    if not system.gpus_per_switch:
        return cpus
    switches = [nodes.add(Node("pci", index)) for index in range(-(-system.gpus // system.gpus_per_switch))]
    for index, switch in enumerate(switches):
        cable(switch, cpus[index * len(cpus) // len(switches)], PCI, system.pcie)
    return switches


def _add_nvlinks(nodes: Nodes, system: System, cpus: list[Node]) -> None:
    gpus = list(dict.fromkeys(device(gpu) for gpu in nodes.of["gpu"]))
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
    """How many NVLinks of a mesh end at a GPU."""
    return sum(count for a, b, count in mesh if gpu in (a, b))
