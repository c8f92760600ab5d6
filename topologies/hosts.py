"""Nodes of supercomputers as MPI sees them: processes on CPUs, and the cards that they send over."""

from typing import Annotated

from pydantic import Field

from ringside.topologies.chassis import gpus_of
from ringside.topologies.graph import Topology, add_cable
from ringside.topologies.joining import joined
from ringside.topologies.units import BytesPerSecond, Seconds

Processes = Annotated[int, Field(ge=1, le=256)]


def mare_nostrum(
    nodes: int = 1,
    processes: Processes = 1,
    nic: BytesPerSecond = 25e9,
    memory: BytesPerSecond = 100e9,
    network_latency: Seconds = 0.7e-6,
) -> Topology:
    """MareNostrum 5's accelerated node without its GPUs: four ConnectX-7 of 200 Gb/s on a fat tree.

    A process sends over one of them (BSC, MareNostrum 5 user guide; ``UCX_MAX_RNDV_RAILS=1``). ``memory``,
    what a process passes to another on its node, and the latency under one switch are taken to be usual.
    """
    return _hosts("mare-nostrum", nodes, processes, 4, nic, memory, network_latency)


def leonardo(
    nodes: int = 1,
    processes: Processes = 1,
    nic: BytesPerSecond = 25e9,
    memory: BytesPerSecond = 100e9,
    network_latency: Seconds = 0.7e-6,
) -> Topology:
    """Leonardo's booster node without its GPUs: four ports of 100 Gb/s (HDR) on a dragonfly+.

    UCX spreads a process' large messages over two ports, which make one card here (CINECA, Leonardo user
    guide; UCX's default of two rails). ``memory`` and the latency under one switch are taken to be usual.
    """
    return _hosts("leonardo", nodes, processes, 2, nic, memory, network_latency)


def _hosts(
    name: str, nodes: int, processes: int, cards: int, nic: float, memory: float, latency: float
) -> Topology:
    """Processes on one CPU, each with a card that it may share; one switch joins all cards."""
    machine = gpus_of(name, processes)
    machine.add_node("cpu0", kind="cpu", tier=1)
    used = min(cards, processes)
    for process in range(processes):
        add_cable(machine, f"gpu{process}", "cpu0", kind="memory", bandwidth=memory, latency=0)
    for card in range(used):
        machine.add_node(f"nic{card}", kind="nic", tier=2)
        add_cable(machine, "cpu0", f"nic{card}", kind="pcie", bandwidth=max(memory, nic), latency=0)
    return joined(machine, nodes, {f"nic{card}": nic for card in range(used)}, latency, rails=False)
