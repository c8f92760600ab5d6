"""The engine's input for one collective: schedules, each on a network of its own."""

from collections.abc import Iterator
from dataclasses import dataclass

from ringside.sim.collective import Collective
from ringside.sim.libraries.nccl.communicator import Communicator
from ringside.sim.libraries.nccl.device.machine import Hops, MachineRoutes, of_nvlink
from ringside.sim.libraries.nccl.device.p2p_schedule import p2p_schedule
from ringside.sim.libraries.nccl.device.schedules import (
    carried_bytes,
    channel_schedule,
    check_schedulable,
    schedule,
)
from ringside.sim.libraries.nccl.device.wires import channels, wires
from ringside.sim.schedule import Schedule
from ringside.topologies import Routes, Topology


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
