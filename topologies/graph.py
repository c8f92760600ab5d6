"""The contract of a topology: a plain ``networkx.DiGraph``, which users can build themselves.

=======  ===========  ==========================================================================
where    attribute    meaning
=======  ===========  ==========================================================================
node     ``kind``     one of `NODE_KINDS`; every rank is a ``gpu`` node, also a process on a CPU
node     ``rank``     gpu nodes only: 0 .. ranks-1, each once
node     ``tier``     optional: 0 at the ranks, rising with each layer of switches; routes use it
edge     ``kind``     one of `LINK_KINDS`
edge     ``bandwidth``  bytes/s, one direction, `units.MIN_RATE` to `units.MAX_RATE`
edge     ``latency``  seconds that a message's head spends on the link, 0 to `units.MAX_DURATION`
graph    ``name``     its name in outputs
graph    ``nodes``    optional: the number of machines (default 1)
graph    ``settings``  optional: the catalogue's settings that were changed, by name
graph    ``recipe``   optional: how to make it again, `ringside.topologies.file`; files keep it
graph    ``structure``  optional: how it was built, `ringside.topologies.fabrics.structure`; gives the routes
graph    ``device``   optional: the GPU in the machines, such as ``a100``
graph    ``compute_capability``  optional: the lowest of the GPUs, 90 for sm_90
graph    ``cpu``      optional: the maker of the machines' CPUs, one of `CPUS`
graph    ``nccl``     optional: what NCCL sees differently, `ringside.topologies.machine_file.NcclView`
graph    ``segment``  optional, with ``window``: bytes of a segment of a message, as in TCP
graph    ``window``   most bytes in flight from one rank to another, ``segment`` or more
=======  ===========  ==========================================================================

A full-duplex cable is two edges.
"""

from dataclasses import dataclass
from typing import TypeAlias

import networkx as nx

from ringside.topologies.hardware import GPUS, nvlink
from ringside.topologies.units import MAX_DURATION, MAX_RATE, MIN_RATE

Node = str
Hop = tuple[Node, Node]
Topology: TypeAlias = "nx.DiGraph[Node]"

NODE_KINDS = ("gpu", "nvswitch", "pcie", "cpu", "nic", "switch")
LINK_KINDS = ("nvlink", "xgmi", "pcie", "ib", "ethernet", "c2c", "upi", "memory")
CPUS = ("intel", "amd", "arm", "power", "zhaoxin", "other")

MAX_CAPABILITY = 999
"""The highest compute capability allowed; a larger one is a typing error."""


class TopologyError(ValueError):
    """A topology that breaks the contract; the message lists every violation, one per line."""


def ranks(graph: Topology) -> list[Node]:
    """Return the gpu nodes; index r holds rank r."""
    nodes = {data["rank"]: node for node, data in graph.nodes(data=True) if data.get("kind") == "gpu"}
    return [nodes[rank] for rank in range(len(nodes))]


def name_of(graph: Topology) -> str:
    """Return the topology's name in outputs."""
    return str(graph.graph.get("name", "topology"))


def num_machines(graph: Topology) -> int:
    """Return the number of machines in the topology."""
    return int(graph.graph.get("nodes", 1))


@dataclass(frozen=True, eq=False, slots=True)
class Hardware:
    """The machines of a topology and their hardware, as the graph states them.

    ``machines`` are the nodes of each machine with ranks, in order of its first rank; ``num_machines`` is the
    stated number, which may differ. ``gpus`` are in order of their ranks. ``nvlink`` is the bytes/s of one
    NVLink of these GPUs. GPUs are AMD's by their name, or if xGMI joins them.
    """

    name: str
    num_machines: int
    machines: list[set[Node]]
    gpus: list[Node]
    is_amd: bool
    compute_capability: int | None
    cpu: str | None
    nvlink: float | None


def hardware_of(graph: Topology) -> Hardware:
    """Return the machines of a topology and their hardware."""
    gpu = GPUS.get(str(graph.graph.get("device")))
    capability = graph.graph.get("compute_capability", gpu and gpu.compute_capability)
    has_xgmi = any(link["kind"] == "xgmi" for *_, link in graph.edges(data=True))
    return Hardware(
        name=name_of(graph),
        num_machines=num_machines(graph),
        machines=machine_nodes(graph),
        gpus=ranks(graph),
        is_amd=has_xgmi or (gpu is not None and gpu.maker == "amd"),
        compute_capability=capability,
        cpu=graph.graph.get("cpu"),
        nvlink=None if capability is None else nvlink(capability),
    )


def machine_nodes(graph: Topology) -> list[set[Node]]:
    """Return the nodes of each machine with ranks, joined without the network's switches, by first rank."""
    inside = graph.subgraph([node for node, data in graph.nodes(data=True) if data["kind"] != "switch"])
    machine_of = {node: nodes for nodes in nx.weakly_connected_components(inside) for node in nodes}
    machines = {id(machine_of[gpu]): machine_of[gpu] for gpu in ranks(graph)}
    return list(machines.values())


def add_cable(graph: Topology, a: Node, b: Node, *, kind: str, bandwidth: float, latency: float) -> None:
    """Join ``a`` and ``b`` by a full-duplex link: one edge each way, each with the full ``bandwidth``."""
    graph.add_edge(a, b, kind=kind, bandwidth=float(bandwidth), latency=float(latency))
    graph.add_edge(b, a, kind=kind, bandwidth=float(bandwidth), latency=float(latency))


def check(graph: Topology) -> None:
    """Raise one `TopologyError` that lists every violation of the contract."""
    if not isinstance(graph, nx.DiGraph) or graph.is_multigraph():
        raise TopologyError(f"a topology is a networkx.DiGraph, not a {type(graph).__name__}")
    complaints = [
        *_node_complaints(graph),
        *_rank_complaints(graph),
        *_edge_complaints(graph),
        *_hardware_complaints(graph),
        *_transport_complaints(graph),
    ]
    if not complaints:
        complaints = _reach_complaints(graph)
    if complaints:
        raise TopologyError("\n".join(f"{name_of(graph)}: {complaint}" for complaint in complaints))


def _node_complaints(graph: Topology) -> list[str]:
    return [
        f"node {node!r} has kind {data.get('kind')!r}; allowed: {', '.join(NODE_KINDS)}"
        for node, data in graph.nodes(data=True)
        if data.get("kind") not in NODE_KINDS
    ]


def _rank_complaints(graph: Topology) -> list[str]:
    gpus = {node: data.get("rank") for node, data in graph.nodes(data=True) if data.get("kind") == "gpu"}
    if not gpus:
        return ["no node of kind 'gpu', so there is no rank"]
    complaints: list[str] = []
    seen: dict[int, Node] = {}
    for node, rank in gpus.items():
        if not isinstance(rank, int) or isinstance(rank, bool) or not 0 <= rank < len(gpus):
            complaints.append(f"gpu {node!r} has rank {rank!r}; allowed: 0 to {len(gpus) - 1}")
        elif seen.setdefault(rank, node) != node:
            complaints.append(f"gpus {seen[rank]!r} and {node!r} both have rank {rank}")
    machines = graph.graph.get("nodes", 1)
    if not isinstance(machines, int) or isinstance(machines, bool) or machines < 1:
        complaints.append(f"the number of machines is {machines!r}; write 1 or more")
    return complaints


def _edge_complaints(graph: Topology) -> list[str]:
    complaints = []
    for a, b, data in graph.edges(data=True):
        link = f"link {a!r} -> {b!r}"
        if data.get("kind") not in LINK_KINDS:
            complaints.append(f"{link} has kind {data.get('kind')!r}; allowed: {', '.join(LINK_KINDS)}")
        if not _between(MIN_RATE, data.get("bandwidth"), MAX_RATE):
            complaints.append(
                f"{link} has bandwidth {data.get('bandwidth')!r}; "
                f"write bytes/s from {MIN_RATE:g} to {MAX_RATE:g}"
            )
        if not _between(0, data.get("latency"), MAX_DURATION):
            complaints.append(
                f"{link} has latency {data.get('latency')!r}; write seconds from 0 to {MAX_DURATION:g}"
            )
        if a == b:
            complaints.append(f"{link} joins a node to itself")
    return complaints


def _hardware_complaints(graph: Topology) -> list[str]:
    complaints = []
    device = graph.graph.get("device")
    if device is not None and not (isinstance(device, str) and device):
        complaints.append(f"the device is {device!r}; write a GPU's name, for example a100")
    capability = graph.graph.get("compute_capability")
    if capability is not None and not (
        isinstance(capability, int)
        and not isinstance(capability, bool)
        and 10 <= capability <= MAX_CAPABILITY
    ):
        complaints.append(
            f"the compute_capability is {capability!r}; write 10 to {MAX_CAPABILITY}, 90 for sm_90"
        )
    known = GPUS[str(device)].compute_capability if device in GPUS else capability
    if capability not in (None, known):
        complaints.append(
            f"the compute_capability is {capability!r}, but that of {device} is {known}; remove one of them"
        )
    cpu = graph.graph.get("cpu")
    if cpu is not None and cpu not in CPUS:
        complaints.append(f"the cpu is {cpu!r}; allowed: {', '.join(CPUS)}")
    return complaints


def _transport_complaints(graph: Topology) -> list[str]:
    segment, window = graph.graph.get("segment"), graph.graph.get("window")
    if (segment, window) == (None, None):
        return []
    if not (isinstance(segment, int) and isinstance(window, int) and 0 < segment <= window):
        return [f"segment is {segment!r} B, window {window!r} B; write 1 B or more, window at least segment"]
    return []


def _reach_complaints(graph: Topology) -> list[str]:
    first, *others = ranks(graph)
    reached, reaching = nx.descendants(graph, first), nx.ancestors(graph, first)
    return [
        f"no path {'to' if node not in reached else 'from'} gpu {node!r} "
        f"{'from' if node not in reached else 'to'} gpu {first!r}"
        for node in others
        if node not in reached or node not in reaching
    ]


def _between(least: float, value: object, most: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most
