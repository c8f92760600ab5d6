"""The facts from which NCCL chooses, out of the topology file that NCCL_TOPO_DUMP_FILE makes it write."""

from collections.abc import Iterable

from sim.libraries.nccl.graph.system import CPUS, System, nvlink_as_nccl_reckons
from topologies.graph import Node, Topology, ranks
from topologies.importers import nccl_xml


def system_of(text: str, name: str = "topology file") -> System:
    """The machine in a topology file's text, as one kind of machine that a cluster is made of.

    Where its GPUs or cards differ, the least counts; the PCIe slots are the GPUs', or the cards' where
    GPUs reach their CPU by C2C instead. Raise `topologies.TopologyError` with the line
    of what is wrong, and `ValueError` for a CPU by which NCCL would choose in a way not modelled.
    """
    machine = nccl_xml.read(text)
    if machine.cpu not in CPUS:
        raise ValueError(
            f"{name}: an x86 CPU of neither Intel nor AMD, for which NCCL's constants are not known here; "
            "write vendor GenuineIntel to see what it chooses with those of Intel's"
        )
    graph, gpus = machine.graph, ranks(machine.graph)
    out = {gpu: [link for *_, link in graph.out_edges(gpu, data=True)] for gpu in gpus}
    nvlink = min(sum(link["bandwidth"] for link in out[gpu] if link["kind"] == "nvlink") for gpu in gpus)
    return System(
        name=name,
        compute_capability=machine.compute_capability,
        gpus=len(gpus),
        nics=len(machine.ports),
        nic=min(machine.ports.values(), default=0.0),
        nvlink=nvlink_as_nccl_reckons(nvlink, machine.compute_capability),
        pcie=min(_pcie(graph, gpus) or _pcie(graph, machine.ports), default=0.0),
        socket=machine.socket,
        nvswitch="nvswitch" in graph,
        cpu=machine.cpu,
        shared_switch=any(
            data["kind"] == "pcie" and _has_card(graph, node) and len(_gpus_below(graph, node)) > 1
            for node, data in graph.nodes(data=True)
        ),
    )


def _pcie(graph: Topology, devices: Iterable[Node]) -> list[float]:
    """Bytes/s of the slots in which some devices sit."""
    links = (link for device in devices for *_, link in graph.out_edges(device, data=True))
    return [link["bandwidth"] for link in links if link["kind"] == "pcie"]


def _has_card(graph: Topology, switch: Node) -> bool:
    return any(graph.nodes[node]["kind"] == "nic" for node in graph.successors(switch))


def _gpus_below(graph: Topology, node: Node) -> list[Node]:
    """The GPUs that reach a switch by climbing, itself if it is one."""
    if graph.nodes[node]["kind"] == "gpu":
        return [node]
    tier = graph.nodes[node]["tier"]
    lower = (other for other in graph.successors(node) if graph.nodes[other]["tier"] < tier)
    return [gpu for other in lower for gpu in _gpus_below(graph, other)]
