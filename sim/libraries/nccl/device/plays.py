"""The engine's input for one collective: schedules, each on a network of its own.

NCCL's search reserves a bandwidth for every search channel; the channels that run over it share that. No
connection of a ring or a tree gets more than its share of the machine's links either (`connect.shares`), less
the protocol's flags. Every connection is a wire of its own; but behind an NVSwitch a GPU has one port, where
its sends up and down a tree take turns. One message takes the hop's latency. So channels do not share wires,
and a collective takes the time of its slowest channel.

Latencies are the tuner's hardware latencies (src/graph/tuning.cc, v2.30.7), not its corrections.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import networkx as nx
import numpy as np

from ringside.sim.collective import Collective
from ringside.sim.libraries.nccl.chunks import WIRE_EFFICIENCY
from ringside.sim.libraries.nccl.communicator import Communicator
from ringside.sim.libraries.nccl.device.connect import rings, shares, through_port, trees
from ringside.sim.libraries.nccl.device.fabric import shared
from ringside.sim.libraries.nccl.device.machine import Hops, MachineRoutes, of_nvlink
from ringside.sim.libraries.nccl.device.p2p_schedule import p2p_schedule
from ringside.sim.libraries.nccl.device.schedules import (
    carried_bytes,
    channel_schedule,
    check_schedulable,
    schedule,
)
from ringside.sim.libraries.nccl.figures import hop_us
from ringside.sim.libraries.nccl.graph.graph import Graph, PathClass
from ringside.sim.schedule import Schedule
from ringside.topologies import Routes, Topology


@dataclass(frozen=True, slots=True)
class Wire:
    """One connection: data bytes/s, and the seconds that a message's head takes."""

    bandwidth: float
    latency: float


@dataclass(frozen=True, slots=True)
class Channel:
    """One channel with the bytes of a block that it carries, and its wires inside nodes and between them.

    If there is only one kind of wire, both are the same. With ``port`` the wire inside a node is a GPU's port
    to the NVSwitch, for all its sends.
    """

    number: int
    nbytes: int
    inside: Wire
    between: Wire
    port: bool


def channels(comm: Communicator, collective: Collective, algorithm: str, protocol: str) -> list[Channel]:
    """Return one channel of each kind that differs in time.

    Channels with equal bytes, equal wires and the same tree of the pair act alike on other GPUs.
    """
    carried = carried_bytes(comm, collective, algorithm, protocol)
    search = _graph(comm, algorithm).channels
    port = through_port(comm, algorithm)
    kinds: dict[tuple[int, int, int], Channel] = {}
    for number, nbytes in enumerate(carried):
        sharing = len(range(number % search, len(carried), search))
        key = nbytes, tree_number(comm, number) if algorithm == "tree" else 0, sharing
        if key not in kinds:
            inside, between = _wires(comm, algorithm, protocol, sharing, len(carried))
            if comm.nodes == 1:
                between = inside
            kinds[key] = Channel(number, nbytes, between if comm.gpus == 1 else inside, between, port)
    return list(kinds.values())


def wires(comm: Communicator, algorithm: str, channel: Channel) -> Topology:
    """Return one channel's wires as a topology: an edge per connection, or per GPU's port."""
    name = f"{comm.nodes} x {comm.system.name}, {algorithm}, channel {channel.number}"
    graph: Topology = nx.DiGraph(name=name, nodes=comm.nodes)
    for rank in range(comm.ranks):
        graph.add_node(f"gpu{rank}", kind="gpu", rank=rank, tier=0)
    inside = {"kind": "nvlink" if comm.system.nvlink else "pcie", "bandwidth": channel.inside.bandwidth}
    between = {"kind": "ib", "bandwidth": channel.between.bandwidth, "latency": channel.between.latency}
    if channel.port:
        for rank in range(comm.ranks):
            gpu, switch = f"gpu{rank}", f"nvswitch{rank // comm.gpus}"
            graph.add_node(switch, kind="nvswitch", tier=1)
            graph.add_edge(gpu, switch, latency=channel.inside.latency, **inside)
            graph.add_edge(switch, gpu, latency=0.0, **inside)
    for src, dst in _connections(comm, algorithm, channel.number):
        if src // comm.gpus != dst // comm.gpus:
            graph.add_edge(f"gpu{src}", f"gpu{dst}", **between)
        elif not channel.port:
            graph.add_edge(f"gpu{src}", f"gpu{dst}", latency=channel.inside.latency, **inside)
    return graph


def _wires(comm: Communicator, algorithm: str, protocol: str, sharing: int, used: int) -> tuple[Wire, Wire]:
    """Return the wires inside a node and between nodes of a channel that shares its search channel.

    With one GPU per node nothing hides the network, whose latency is then the trees'; as in the tuner.
    """
    graph = _graph(comm, algorithm)
    inside, between = shares(comm, algorithm, used)
    fabric = shared(comm, algorithm, used)
    link = "nvlink" if graph.type_intra is PathClass.NVL else "pci"
    exposed = "tree" if comm.gpus == 1 else algorithm
    device = graph.latency_inter_us * (2 if protocol == "simple" else 1)
    return (
        Wire(
            min(graph.bw_intra / sharing, inside) * WIRE_EFFICIENCY[protocol],
            hop_us(link, algorithm, protocol, comm) * 1e-6,
        ),
        Wire(
            min(graph.bw_inter / sharing, between, fabric.bandwidth) * WIRE_EFFICIENCY[protocol],
            (hop_us("net", exposed, protocol, comm) + device) * 1e-6 + fabric.latency,
        ),
    )


def tree_number(comm: Communicator, channel: int) -> int:
    """Return which tree of the pair a channel has: all search channels first use one, then the other."""
    return channel // comm.graphs.tree.channels % 2


def _graph(comm: Communicator, algorithm: str) -> Graph:
    return comm.graphs.tree if algorithm == "tree" else comm.graphs.ring


def _connections(comm: Communicator, algorithm: str, channel: int) -> list[tuple[int, int]]:
    if algorithm == "ring":
        ring = rings(comm)[channel]
        return list(zip(ring.tolist(), np.roll(ring, -1).tolist(), strict=True))
    parent = trees(comm)[channel].parent
    up = [(rank, int(above)) for rank, above in enumerate(parent) if above >= 0]
    return up + [(above, rank) for rank, above in up]


@dataclass(frozen=True, slots=True)
class ChannelPlay:
    """A schedule, its network, and the routes."""

    schedule: Schedule
    graph: Topology
    routes: Routes


def plays(comm: Communicator, collective: Collective, algorithm: str, protocol: str) -> Iterator[ChannelPlay]:
    """Return one play per kind of channel that differs in time; the slowest one's is the collective's time.

    Channels of a ring or a tree have wires of their own. Those of NVLS, CollNet Direct and PAT share every
    link of the machine evenly, so each has its part to itself, unless GPUs have several cards. Those of
    CollNet Chain have different heads, and meet, as do sends and receives.
    """
    if algorithm == "p2p":
        machine = MachineRoutes(comm, Hops.of(comm, "ring", collective.kind))
        plan = p2p_schedule(comm, collective)
        machine.copy_in_blocks(plan.connections())
        yield ChannelPlay(plan, machine.graph, machine)
        return
    check_schedulable(comm, collective, algorithm, protocol)
    if algorithm in ("ring", "tree"):
        for channel in channels(comm, collective, algorithm, protocol):
            graph = wires(comm, algorithm, channel)
            plan = channel_schedule(comm, collective, algorithm, protocol, channel.number)
            yield ChannelPlay(plan, graph, Routes(graph))
        return
    hops, part = Hops.of(comm, algorithm, collective.kind), of_nvlink(comm, algorithm)
    machine = MachineRoutes(comm, hops, nvlink=part)
    if algorithm == "collnet_chain" or machine.many_ports:
        yield ChannelPlay(schedule(comm, collective, algorithm, protocol), machine.graph, machine)
        return
    carried = carried_bytes(comm, collective, algorithm, protocol)
    # NVLSTree alternates its two trees over the channels, and each loads other cards
    together = 2 if algorithm == "nvls_tree" and len(carried) > 1 else 1
    machine = MachineRoutes(comm, hops, channels=len(carried) / together, nvlink=part)
    groups = [range(len(carried))[first : first + together] for first in range(0, len(carried), together)]
    kinds = {tuple(carried[number] for number in group): group for group in groups}
    for some in kinds.values():
        plan = channel_schedule(comm, collective, algorithm, protocol, *some)
        yield ChannelPlay(plan, machine.graph, machine)
