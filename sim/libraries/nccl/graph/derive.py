"""NCCL's facts of a machine from any topology whose graph states its GPUs and CPUs."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import combinations
from typing import Any

from ringside.sim.libraries.nccl.graph.system import GB, System, nvlink_as_nccl_reckons
from ringside.topologies.graph import Hardware, Node, Topology, TopologyError, hardware_of
from ringside.topologies.machine import nvidia_machine, nvidia_machines
from ringside.topologies.names import Lazy

SOCKET = {
    **{"intel": 10 * GB, "amd": 16 * GB, "arm": 6 * GB, "power": 32 * GB},
    **{"zhaoxin": 6 * GB, "other": 5000 * GB},
}
"""Bytes/s from CPU to CPU if no link between them is given; Intel's is Skylake's (src/graph/topo.h)."""


def system_of_graph(graph: Topology) -> System:
    """Return the machine that a topology is made of, as NCCL sees it.

    All machines must have equally many GPUs, on consecutive ranks; the least of differing links counts. PCIe
    slots are the GPUs', or the cards' if GPUs have none. Without CPUs in the topology there are two.
    """
    hardware = hardware_of(graph)
    name, capability, cpu = hardware.name, hardware.compute_capability, hardware.cpu
    if hardware.is_amd:
        raise TopologyError(f"{name}: RCCL runs on AMD's GPUs, not NCCL; take another library, such as ideal")
    if capability is None or hardware.nvlink is None:
        raise TopologyError(
            f"NCCL's choices on {name} depend on its GPUs, which it does not tell; add for example "
            "device: a100 (or compute_capability: 80) and cpu: intel to a file of it, or take a machine by "
            "name or another library"
        )
    if cpu is not None and cpu not in SOCKET:
        raise TopologyError(
            f"{name}: NCCL's constants for CPUs of {cpu} are not known; write one of {', '.join(SOCKET)}"
        )
    _check_even(hardware)
    machines, gpus, link = hardware.machines, hardware.gpus, hardware.nvlink
    cards = [node for node, data in graph.nodes(data=True) if data["kind"] == "nic"]
    each = len(gpus) // len(machines)
    owned = [gpus[first : first + each] for first in range(0, len(gpus), each)]
    nvswitch = any(data["kind"] == "nvswitch" for _, data in graph.nodes(data=True))
    totals = [[sum(_out(graph, [gpu], "nvlink")) for gpu in of] for of in owned]
    # a mesh shares the bandwidth of its best linked GPU among that GPU's links
    nvlink = min(min(of) if nvswitch else max(of) for of in totals)
    system = System(
        name=name,
        compute_capability=capability,
        gpus=each,
        nics=min(sum(graph.nodes[node]["kind"] == "nic" for node in machine) for machine in machines),
        nic=min(_ports(graph, cards), default=0.0),
        nvlink=nvlink_as_nccl_reckons(nvlink, capability),
        pcie=min(_out(graph, gpus, "pcie") or _out(graph, cards, "pcie"), default=0.0),
        socket=min(_out(graph, graph, "upi"), default=SOCKET[cpu or "intel"]),
        nvswitch=bool(nvlink) and nvswitch,
        cpu=cpu or "intel",
        gpus_per_switch=max(_gpus_per_switch(graph), default=0),
        sockets=sum(graph.nodes[node]["kind"] == "cpu" for node in machines[0]) or 2,
        mesh=() if nvswitch else _mesh(graph, owned[0], link),
        cpu_links=0 if nvswitch else max(_cpu_links(graph, owned[0], link), default=0),
        c2c=min(_out(graph, gpus, "c2c"), default=0.0),
    )
    return _with_facts(system, graph.graph["nccl"]) if "nccl" in graph.graph else system


def _with_facts(system: System, seen: Mapping[str, Any]) -> System:
    """Return the machine with facts that NCCL sees differently from the graph."""
    figures = dict(seen)
    if "nvlink" in seen:
        figures["nvlink"] = nvlink_as_nccl_reckons(seen["nvlink"], system.compute_capability)
    if "links" in seen:
        figures |= {"mesh": tuple(map(tuple, figures.pop("links"))), "cabling": system.mesh}
    return replace(system, **figures)


def _check_even(hardware: Hardware) -> None:
    """Refuse machines that do not have equally many GPUs each, on consecutive ranks."""
    gpus, machines, count = hardware.gpus, hardware.machines, hardware.num_machines
    each = len(gpus) // count
    counted = len(machines) == count and each * count == len(gpus)
    if not counted or any(gpus[rank] not in machines[rank // each] for rank in range(len(gpus))):
        raise TopologyError(
            f"{hardware.name} says that it has machines: {count}, but its {len(gpus)} GPUs sit on "
            f"{len(machines)}, not counting switches; NCCL's model "
            "needs equally many GPUs on each, rank after rank; take another library, such as ideal"
        )


def _mesh(graph: Topology, gpus: list[Node], link: float) -> tuple[tuple[int, int, int], ...]:
    """How many NVLinks of ``link`` bytes/s join which two GPUs; empty if they are spread evenly over all."""
    pairs = list(combinations(range(len(gpus)), 2))
    mesh = tuple(
        (a, b, _links(graph, gpus[a], gpus[b], link)) for a, b in pairs if _is_nvlink(graph, gpus[a], gpus[b])
    )
    return () if len(mesh) == len(pairs) and len({links for *_, links in mesh}) == 1 else mesh


def _cpu_links(graph: Topology, gpus: list[Node], link: float) -> list[int]:
    """Return the number of NVLinks from a GPU to a CPU, for each such cable."""
    return [
        _links(graph, gpu, other, link)
        for gpu in gpus
        for other in graph.successors(gpu)
        if graph.nodes[other]["kind"] == "cpu" and _is_nvlink(graph, gpu, other)
    ]


def _is_nvlink(graph: Topology, a: Node, b: Node) -> bool:
    return graph.has_edge(a, b) and graph.edges[a, b]["kind"] == "nvlink"


def _links(graph: Topology, a: Node, b: Node, link: float) -> int:
    bandwidth: float = graph.edges[a, b]["bandwidth"]
    return max(1, round(bandwidth / link))


def _out(graph: Topology, nodes: Iterable[Node], kind: str) -> list[float]:
    """Return the bytes/s of the links of a kind that lead out of some nodes."""
    links = (link for node in nodes for *_, link in graph.out_edges(node, data=True))
    return [link["bandwidth"] for link in links if link["kind"] == kind]


def _ports(graph: Topology, cards: list[Node]) -> list[float]:
    """Return the bytes/s of the cards' cables to and from the network."""
    return [
        link["bandwidth"]
        for card in cards
        for a, b, link in (*graph.out_edges(card, data=True), *graph.in_edges(card, data=True))
        if "switch" in (graph.nodes[a]["kind"], graph.nodes[b]["kind"])
    ]


def _gpus_per_switch(graph: Topology) -> list[int]:
    """Return the number of GPUs on each PCIe switch."""
    return [
        sum(graph.nodes[neighbour]["kind"] == "gpu" for neighbour in graph.successors(node))
        for node, data in graph.nodes(data=True)
        if data["kind"] == "pcie"
    ]


_LISTED: dict[str, System] = {}


def listed_system(name: str) -> System | None:
    """Return the catalogue's machine of that name as NCCL sees it; None if NCCL does not run on it."""
    if name not in _LISTED:
        graph = nvidia_machine(name, 2)
        if graph is None:
            return None
        _LISTED[name] = system_of_graph(graph)
    return _LISTED[name]


def _listed(name: str) -> System:
    system = listed_system(name)
    assert system
    return system


SYSTEMS = Lazy(nvidia_machines, _listed)
"""The catalogue's machines as NCCL sees them, by name."""
