"""Build clusters: GPUs, NVLinks, PCIe slots with cards, sockets, and switches that join machines."""

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import combinations
from typing import Annotated, Literal

import networkx as nx
from pydantic import Field

from ringside.topologies.graph import Node, Topology, TopologyError, add_cable, ranks
from ringside.topologies.units import BytesPerSecond, Seconds

Processes = Annotated[int, Field(ge=1, le=256)]

Links = Iterable[tuple[int, int, int]]
"""Two GPUs and the number of links between them."""


def gpus_of(name: str, count: int) -> Topology:
    """Build a machine that has only GPUs."""
    machine: Topology = nx.DiGraph(name=name)
    for gpu in range(count):
        machine.add_node(f"gpu{gpu}", kind="gpu", rank=gpu, tier=0)
    return machine


def behind_nvswitch(name: str, count: int, bandwidth: float, latency: float) -> Topology:
    """Build a machine whose GPUs have all their NVLinks to NVSwitch; ``latency`` is from GPU to GPU."""
    machine = gpus_of(name, count)
    machine.add_node("nvswitch", kind="nvswitch", tier=1)
    for gpu in range(count):
        add_cable(machine, f"gpu{gpu}", "nvswitch", kind="nvlink", bandwidth=bandwidth, latency=latency / 2)
    return machine


def all_to_all(name: str, count: int, bandwidth: float, latency: float, kind: str = "nvlink") -> Topology:
    """Build a machine whose GPUs spread their links evenly over the others, without a switch."""
    machine = gpus_of(name, count)
    share = bandwidth / (count - 1)
    for a, b in combinations(ranks(machine), 2):
        add_cable(machine, a, b, kind=kind, bandwidth=share, latency=latency)
    return machine


def linked(name: str, count: int, links: Links, cpu_links: int, bandwidth: float, latency: float) -> Topology:
    """Build a machine with ``links`` between pairs of GPUs and ``cpu_links`` from each GPU to its CPU."""
    machine = gpus_of(name, count)
    for a, b, number in links:
        share = bandwidth * number / links_of_one(links, cpu_links)
        add_cable(machine, f"gpu{a}", f"gpu{b}", kind="nvlink", bandwidth=share, latency=latency)
    return machine


def links_of_one(links: Links, cpu_links: int) -> int:
    """Return the number of links of the GPU with most of them."""
    ends = Counter[int]()
    for a, b, number in links:
        ends.update({a: number, b: number})
    return max(ends.values(), default=0) + cpu_links


def slots(machine: Topology, bandwidth: float, *, gpus: int, nics: int, latency: float = 0.0) -> None:
    """Add a PCIe switch for every ``gpus`` GPUs, with ``nics`` cards; a GPU's slot has the ``latency``."""
    for slot in range(len(ranks(machine)) // gpus):
        switch = f"pcie{slot}"
        machine.add_node(switch, kind="pcie", tier=1)
        for gpu in range(slot * gpus, (slot + 1) * gpus):
            add_cable(machine, f"gpu{gpu}", switch, kind="pcie", bandwidth=bandwidth, latency=latency)
        for card in range(slot * nics, (slot + 1) * nics):
            machine.add_node(f"nic{card}", kind="nic", tier=2)
            add_cable(machine, switch, f"nic{card}", kind="pcie", bandwidth=bandwidth, latency=0)


def on_cpus(machine: Topology, count: int, socket: float, pcie: float) -> None:
    """Add ``count`` CPUs, 0 or more, every two joined, and spread the PCIe switches evenly over them."""
    switches = [node for node, data in machine.nodes(data=True) if data["kind"] == "pcie"]
    _cpus(machine, count, socket, tier=2)
    for index, switch in enumerate(switches if count else ()):
        cpu = f"cpu{index * count // len(switches)}"
        add_cable(machine, switch, cpu, kind="pcie", bandwidth=pcie, latency=0)


def on_sockets(
    machine: Topology, count: int, socket: float | None, way: tuple[str, float, float], pcie: float, nics: int
) -> None:
    """Add CPUs and spread GPUs and cards evenly over them, without PCIe switches.

    ``way`` is the kind, the bandwidth and the latency of the link from a GPU to its CPU; if ``socket`` is
    None, CPUs are not linked.
    """
    gpus, (kind, bandwidth, latency) = len(ranks(machine)), way
    _cpus(machine, count, socket, tier=1)
    for gpu in range(gpus):
        cpu = f"cpu{gpu * count // gpus}"
        add_cable(machine, f"gpu{gpu}", cpu, kind=kind, bandwidth=bandwidth, latency=latency)
    for card in range(nics):
        machine.add_node(f"nic{card}", kind="nic", tier=2)
        cpu = f"cpu{card * count // nics}"
        add_cable(machine, cpu, f"nic{card}", kind="pcie", bandwidth=pcie, latency=0)


def cards(machine: Topology, bandwidth: float) -> dict[Node, float]:
    """Return the network cards, each with its bytes/s."""
    return {node: bandwidth for node, data in machine.nodes(data=True) if data["kind"] == "nic"}


def _cpus(machine: Topology, count: int, bandwidth: float | None, *, tier: int) -> None:
    for cpu in range(count):
        machine.add_node(f"cpu{cpu}", kind="cpu", tier=tier)
    if bandwidth is not None:
        for a, b in combinations(range(count), 2):
            add_cable(machine, f"cpu{a}", f"cpu{b}", kind="upi", bandwidth=bandwidth, latency=0)


def cpu_node(
    nodes: int = 1,
    machine: Literal["cpu-node"] = "cpu-node",
    name: str = "",
    nics: Annotated[int, Field(ge=1, le=256)] = 1,
    processes: Processes = 1,
    nic: BytesPerSecond = 25e9,
    memory: BytesPerSecond = 100e9,
    network_latency: Seconds = 0.7e-6,
) -> Topology:
    """Build ``nodes`` CPUs with ``processes`` each, which share the node's cards; one switch joins all cards.

    ``memory`` is the bandwidth from a process to another on its node.
    """
    one = gpus_of(name or machine, processes)
    one.add_node("cpu0", kind="cpu", tier=1)
    used = min(nics, processes)
    for process in range(processes):
        add_cable(one, f"gpu{process}", "cpu0", kind="memory", bandwidth=memory, latency=0)
    for card in range(used):
        one.add_node(f"nic{card}", kind="nic", tier=2)
        add_cable(one, "cpu0", f"nic{card}", kind="pcie", bandwidth=max(memory, nic), latency=0)
    ports = {f"nic{card}": nic for card in range(used)}
    return joined(one, nodes, ports, network_latency, rails=False)


def joined(
    machine: Topology, nodes: int, ports: Mapping[Node, float], latency: float, *, rails: bool = True
) -> Topology:
    """Join ``nodes`` copies of a machine; with ``rails`` one switch joins the same port of all copies.

    ``ports`` are the machine's network cards with their bytes/s. Without ``rails`` one non-blocking
    switch joins all ports. The cables to a switch have half of ``latency`` each, so a message from
    machine to machine takes it once. Copies are named ``node0/...`` and so on; rank r of node n
    becomes rank ``n * gpus + r``.
    """
    graph = copies(machine, nodes)
    top = max(data["tier"] for _, data in machine.nodes(data=True)) + 1
    for index, (port, bandwidth) in enumerate(ports.items() if nodes > 1 else ()):
        switch = f"rail{index}" if rails else "network"
        graph.add_node(switch, kind="switch", tier=top)
        for node in range(nodes):
            card = f"node{node}/{port}"
            add_cable(graph, card, switch, kind="ib", bandwidth=bandwidth, latency=latency / 2)
    return graph


def copies(machine: Topology, nodes: int) -> Topology:
    """Put ``nodes`` copies of a machine into one graph, without links between them."""
    graph: Topology = nx.DiGraph(**machine.graph | {"nodes": nodes})
    gpus = len(ranks(machine))
    for node in range(nodes):
        for name, data in machine.nodes(data=True):
            moved = {"rank": data["rank"] + node * gpus} if "rank" in data else {}
            graph.add_node(f"node{node}/{name}", **(data | moved))
        graph.add_edges_from(
            (f"node{node}/{a}", f"node{node}/{b}", dict(d)) for a, b, d in machine.edges(data=True)
        )
    return graph


def clustered(
    machine: Topology,
    nodes: int,
    ports: Mapping[Node, float],
    *,
    nvlink_latency: float,
    pcie_latency: float,
    network_latency: float,
) -> Topology:
    """Join ``nodes`` copies of an imported machine, with the given latencies per hop.

    With NVLink or xGMI they are joined by rails, one switch for the same card of all machines. Without it no
    GPU reaches another's card, so one switch joins all cards. The total latency of a message from machine to
    machine is ``network_latency``.
    """
    if nodes > 1 and not ports:
        raise TopologyError(f"{machine.graph['name']}: no network card, so {nodes} machines cannot be joined")
    kinds = {node: data["kind"] for node, data in machine.nodes(data=True)}
    direct = ("nvlink", "xgmi")
    nvlinked = any(link["kind"] in direct for *_, link in machine.edges(data=True))
    for a, b, link in machine.edges(data=True):
        if link["kind"] in direct:
            link["latency"] = nvlink_latency / (2 if "nvswitch" in (kinds[a], kinds[b]) else 1)
        elif link["kind"] == "pcie" and not nvlinked and "gpu" in (kinds[a], kinds[b]):
            link["latency"] = pcie_latency / 2
    outside = network_latency if nvlinked else max(0.0, network_latency - pcie_latency)
    return joined(machine, nodes, ports, outside, rails=nvlinked)
