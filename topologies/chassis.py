"""What machines are put together from: GPUs, NVLinks, PCIe slots with cards, sockets."""

from itertools import combinations

import networkx as nx

from ringside.topologies.graph import Node, Topology, add_cable, ranks


def gpus_of(name: str, count: int) -> Topology:
    """A machine that has GPUs and nothing else yet."""
    machine: Topology = nx.DiGraph(name=name)
    for gpu in range(count):
        machine.add_node(f"gpu{gpu}", kind="gpu", rank=gpu, tier=0)
    return machine


def behind_nvswitch(name: str, count: int, bandwidth: float, latency: float) -> Topology:
    """A machine whose GPUs have all their NVLinks to NVSwitch; ``latency`` is from GPU to GPU."""
    machine = gpus_of(name, count)
    machine.add_node("nvswitch", kind="nvswitch", tier=1)
    for gpu in range(count):
        add_cable(machine, f"gpu{gpu}", "nvswitch", kind="nvlink", bandwidth=bandwidth, latency=latency / 2)
    return machine


def all_to_all(name: str, count: int, bandwidth: float, latency: float, kind: str = "nvlink") -> Topology:
    """A machine whose GPUs spread their links evenly over the others, without a switch."""
    machine = gpus_of(name, count)
    share = bandwidth / (count - 1)
    for a, b in combinations(ranks(machine), 2):
        add_cable(machine, a, b, kind=kind, bandwidth=share, latency=latency)
    return machine


def slots(machine: Topology, bandwidth: float, *, gpus: int, nics: int, latency: float = 0.0) -> None:
    """A PCIe switch for every ``gpus`` GPUs, with ``nics`` cards on it; a GPU's slot has the ``latency``."""
    for slot in range(len(ranks(machine)) // gpus):
        switch = f"pcie{slot}"
        machine.add_node(switch, kind="pcie", tier=1)
        for gpu in range(slot * gpus, (slot + 1) * gpus):
            add_cable(machine, f"gpu{gpu}", switch, kind="pcie", bandwidth=bandwidth, latency=latency)
        for card in range(slot * nics, (slot + 1) * nics):
            machine.add_node(f"nic{card}", kind="nic", tier=2)
            add_cable(machine, switch, f"nic{card}", kind="pcie", bandwidth=bandwidth, latency=0)


def sockets(machine: Topology, count: int, socket: float, pcie: float) -> None:
    """CPUs that carry the PCIe switches, as many each, joined two by two."""
    switches = [node for node, data in machine.nodes(data=True) if data["kind"] == "pcie"]
    _cpus(machine, count, socket, tier=2)
    for index, switch in enumerate(switches):
        cpu = f"cpu{index * count // len(switches)}"
        add_cable(machine, switch, cpu, kind="pcie", bandwidth=pcie, latency=0)


def on_sockets(
    machine: Topology, count: int, socket: float, pcie: float, *, nics: int, latency: float = 0.0
) -> None:
    """CPUs that carry GPUs and cards themselves, spread evenly."""
    gpus = len(ranks(machine))
    _cpus(machine, count, socket, tier=1)
    for gpu in range(gpus):
        cpu = f"cpu{gpu * count // gpus}"
        add_cable(machine, f"gpu{gpu}", cpu, kind="pcie", bandwidth=pcie, latency=latency)
    for card in range(nics):
        machine.add_node(f"nic{card}", kind="nic", tier=2)
        cpu = f"cpu{card * count // nics}"
        add_cable(machine, cpu, f"nic{card}", kind="pcie", bandwidth=pcie, latency=0)


def cards(machine: Topology, bandwidth: float) -> dict[Node, float]:
    """The network cards, each with its bytes/s."""
    return {node: bandwidth for node, data in machine.nodes(data=True) if data["kind"] == "nic"}


def _cpus(machine: Topology, count: int, bandwidth: float, *, tier: int) -> None:
    for cpu in range(count):
        machine.add_node(f"cpu{cpu}", kind="cpu", tier=tier)
    for a, b in combinations(range(count), 2):
        add_cable(machine, f"cpu{a}", f"cpu{b}", kind="upi", bandwidth=bandwidth, latency=0)
