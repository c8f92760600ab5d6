"""A machine from a table of ``nvidia-smi topo -m``, which states no speeds."""

from functools import lru_cache

from ringside.sim.libraries.nccl.graph.graph import PCI, Node, Nodes, PathClass, cable, connect
from ringside.sim.libraries.nccl.graph.system import SYSTEMS, System, nvlink_link
from ringside.topologies.graph import Topology, ranks
from ringside.topologies.importers import nvidia_smi

_LIKE = {90: "dgx-h100", 80: "dgx-a100", 70: "dgx1-v100"}
"""A machine with NVSwitch or an NVLink mesh of each generation."""

_OTHERWISE = "a100-pcie4"
"""The machine that stands for all others: GPUs without NVLink, or joined in pairs."""


@lru_cache(maxsize=64)  # one graph of nodes per table, searched once
def system_of_table(text: str, name: str = "topo -m") -> System:
    """Parse a machine from a table's text.

    The number of NVLinks per GPU determines its generation; a catalogue machine of that generation
    supplies the speeds of slots, cards and CPUs, as `System.note` states. Raise
    `ringside.topologies.TopologyError` with the line of an error.
    """
    table = nvidia_smi.read(text)
    links, capability = nvidia_smi.nvlinks(table), nvidia_smi.compute_capability(table)
    like = SYSTEMS[_LIKE.get(capability, _OTHERWISE) if links else _OTHERWISE]
    link = nvlink_link(capability)
    machine = nvidia_smi.machine(table, link, like.pcie, like.socket)
    nodes = _nodes(machine, table.cards, like, capability)
    switches = [node for node, data in machine.nodes(data=True) if data["kind"] == "pcie"]
    below = [sum(to in table.gpus for to in machine.successors(switch)) for switch in switches]
    return System(
        name,
        capability,
        len(table.gpus),
        len(table.cards),
        like.nic if table.cards else 0.0,
        links * link,
        like.pcie,
        like.socket,
        "nvswitch" in machine,
        like.cpu,
        max(below, default=0),
        len(nodes.of["cpu"]),
        nodes=nodes,
        note=_note(links, like, capability),
    )


def _note(links: int, like: System, capability: int) -> str:
    nvlinks = f"{links} NVLinks a GPU" if links else "no NVLink"
    return (
        f"the table names no GPU: with {nvlinks} they count as compute capability {capability}, and "
        f"cards, slots and CPUs as those of {like.name}; --set nic, pcie, nvlink or socket changes that"
    )


def _nodes(machine: Topology, cards: list[str], like: System, capability: int) -> Nodes:
    """Return NCCL's graph of the machine."""
    nodes, made = Nodes(), dict[str, Node]()
    kinds = {"cpu": "cpu", "pcie": "pci", "gpu": "gpu", "nic": "nic"}
    for device, data in machine.nodes(data=True):
        if data["kind"] in kinds:
            made[device] = nodes.add(Node(kinds[data["kind"]], device, maker=like.cpu, capability=capability))
    for rank, gpu in enumerate(ranks(machine)):
        made[gpu].rank = made[gpu].dev = rank
    if "nvswitch" in machine:
        made["nvswitch"] = nodes.nvswitch()
    for a, b, data in machine.edges(data=True):
        if data["kind"] == "nvlink":
            connect(made[a], made[b], PathClass.NVL, data["bandwidth"])
        elif data["kind"] == "pcie":
            connect(made[a], made[b], PCI, data["bandwidth"])
    for number, card in enumerate(cards):
        net = Node("net", number, dev=number, bandwidth=like.nic, asic=number)
        cable(made[card], nodes.add(net), PathClass.NET, like.nic)
    return nodes.finish(like.socket)
