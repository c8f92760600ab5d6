"""The facts from which NCCL chooses, out of any topology whose graph tells its GPUs and CPUs."""

from collections.abc import Iterable

import networkx as nx

from sim.libraries.nccl.graph.system import CPUS, GB, System, nvlink_as_nccl_reckons
from topologies.devices import DEVICES
from topologies.graph import Node, Topology, TopologyError, name_of, num_machines, ranks

SOCKET = {"intel": 10 * GB, "amd": 16 * GB, "arm": 6 * GB, "power": 32 * GB}
"""Bytes/s from CPU to CPU where no link between them is drawn; Intel's is Skylake's (src/graph/topo.h)."""


def system_of_graph(graph: Topology) -> System:
    """The machine that a topology is made of, as NCCL sees it.

    All machines must have as many GPUs, their ranks in a row; of links that differ the least counts. PCIe
    slots are the GPUs', or the cards' where GPUs have none. NVLinks count where they lead from each GPU
    of a machine to every other: elsewhere a ring is as slow as the PCIe that it must cross.
    """
    name, facts = name_of(graph), graph.graph
    capability, cpu = facts.get("compute_capability", DEVICES.get(facts.get("device", ""))), facts.get("cpu")
    if capability is None:
        raise TopologyError(
            f"NCCL's choices on {name} depend on its GPUs, which it does not tell; add for example "
            "device: a100 (or compute_capability: 80) and cpu: intel to its file, or take another library"
        )
    if cpu is not None and cpu not in CPUS:
        raise TopologyError(
            f"{name}: NCCL's constants for CPUs of {cpu} are not known; write one of {', '.join(CPUS)}"
        )
    machines, gpus = _machines(graph), ranks(graph)
    cards = [node for node, data in graph.nodes(data=True) if data["kind"] == "nic"]
    nvlink = min(_nvlink(graph, [gpu for gpu in gpus if gpu in machine]) for machine in machines)
    return System(
        name=name,
        compute_capability=capability,
        gpus=len(gpus) // len(machines),
        nics=min(sum(card in machine for card in cards) for machine in machines),
        nic=min(_ports(graph, cards), default=0.0),
        nvlink=nvlink_as_nccl_reckons(nvlink, capability),
        pcie=min(_out(graph, gpus, "pcie") or _out(graph, cards, "pcie"), default=0.0),
        socket=min(_out(graph, graph, "upi"), default=SOCKET[cpu or "intel"]),
        nvswitch=bool(nvlink) and any(data["kind"] == "nvswitch" for _, data in graph.nodes(data=True)),
        cpu=cpu or "intel",
        shared_switch=any(_is_shared(graph, node) for node in graph),
    )


def _machines(graph: Topology) -> list[set[Node]]:
    """The nodes of each machine: what hangs together without the network's switches."""
    name, machines = name_of(graph), num_machines(graph)
    inside = graph.subgraph([node for node, data in graph.nodes(data=True) if data["kind"] != "switch"])
    parts = {node: part for part in nx.weakly_connected_components(inside) for node in part}
    owners = [parts[node] for node in ranks(graph)]
    gpus = len(owners) // machines
    even = gpus * machines == len(owners) and all(
        owner is owners[rank - rank % gpus] for rank, owner in enumerate(owners)
    )
    if not even or len({id(owner) for owner in owners}) != machines:
        raise TopologyError(
            f"{name} says that it has machines: {machines}, but its {len(owners)} GPUs sit on "
            f"{len({id(owner) for owner in owners})}, not counting switches; NCCL's model "
            "needs as many GPUs on each, rank after rank"
        )
    return owners[::gpus]


def _nvlink(graph: Topology, gpus: list[Node]) -> float:
    """Bytes/s of the least GPU's NVLinks, one direction; 0 where they do not join all GPUs."""
    wires: nx.Graph[Node] = nx.Graph()
    wires.add_nodes_from(gpus)
    wires.add_edges_from((a, b) for a, b, link in graph.edges(data=True) if link["kind"] == "nvlink")
    if len(gpus) == 1 or not set(gpus) <= nx.node_connected_component(wires, gpus[0]):
        return 0.0
    return min(sum(_out(graph, [gpu], "nvlink")) for gpu in gpus)


def _out(graph: Topology, nodes: Iterable[Node], kind: str) -> list[float]:
    """Bytes/s of the links of a kind that lead out of some nodes."""
    links = (link for node in nodes for *_, link in graph.out_edges(node, data=True))
    return [link["bandwidth"] for link in links if link["kind"] == kind]


def _ports(graph: Topology, cards: list[Node]) -> list[float]:
    """Bytes/s of the cards' cables to and from the network."""
    return [
        link["bandwidth"]
        for card in cards
        for a, b, link in (*graph.out_edges(card, data=True), *graph.in_edges(card, data=True))
        if "switch" in (graph.nodes[a]["kind"], graph.nodes[b]["kind"])
    ]


def _is_shared(graph: Topology, node: Node) -> bool:
    """Whether it is a PCIe switch that several GPUs share with a card."""
    if graph.nodes[node]["kind"] != "pcie":
        return False
    kinds = [graph.nodes[neighbour]["kind"] for neighbour in graph.successors(node)]
    return "nic" in kinds and kinds.count("gpu") > 1
