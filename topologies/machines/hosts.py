"""Nodes of supercomputers as MPI sees them: processes on CPUs, and network cards."""

from typing import Annotated, Literal

from pydantic import Field

from ringside.topologies.graph import Topology, add_cable
from ringside.topologies.joining import joined
from ringside.topologies.machines.chassis import gpus_of
from ringside.topologies.units import BytesPerSecond, Seconds

Processes = Annotated[int, Field(ge=1, le=256)]


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
