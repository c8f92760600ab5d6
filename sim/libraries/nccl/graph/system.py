"""Machines as NCCL sees them: the facts on which its choices depend, with their sources."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import combinations
from math import isfinite
from typing import Any

from ringside.sim.libraries.nccl.graph.graph import Nodes
from ringside.topologies.graph import Hardware, Node, Topology, TopologyError, hardware_of
from ringside.topologies.hardware import NVLINK
from ringside.topologies.machine import nvidia_machine, nvidia_machines
from ringside.topologies.names import Lazy
from ringside.topologies.units import format_rate

GB = 1e9
"""NCCL counts bandwidth in 10**9 bytes/s."""

CPUS = ("intel", "amd", "arm", "power", "zhaoxin", "other", "mixed")

NVLINK_GBPS = {60: 18.0, 70: 20.0, 80: 20.0, 86: 12.0, 90: 20.6, 100: 40.1}
"""NCCL's GB/s of one NVLink, by the first compute capability with it (src/graph/topo.h)."""

SOCKET = {
    **{"intel": 10 * GB, "amd": 16 * GB, "arm": 6 * GB, "power": 32 * GB},
    **{"zhaoxin": 6 * GB, "other": 5000 * GB},
}
"""Bytes/s from CPU to CPU if their link is not given; Intel's is Skylake's (src/graph/topo.h)."""

RATES = ("nvlink", "nic", "pcie", "socket")
"""The figures of a machine that can be set."""


@dataclass(frozen=True, slots=True)
class System:
    """One kind of machine; a cluster is many of it.

    All bandwidths are bytes/s of one direction, at NCCL's rates, which are below the data
    sheet: ``nvlink`` of one GPU over all its links (0: none), ``pcie`` of one GPU's slot, ``nic`` of
    one network card, ``socket`` from one CPU to the other, ``c2c`` from a GPU to its Grace.
    ``compute_capability`` is 90 for sm_90. GPUs and cards are spread evenly over ``sockets`` CPUs, on
    PCIe switches with ``gpus_per_switch`` GPUs each, or straight on the CPU (0); ``beside`` names the GPU
    beside each card if they are not spread evenly. ``hosts`` of them, each with its share
    of the CPUs, are one node if one NVSwitch domain joins them.

    ``ranks_per_gpu`` ranks share each GPU (NCCL 2.30 and later, NCCL_MULTI_RANK_GPU_ENABLE=1).

    Without NVSwitch, ``mesh`` has the number of NVLinks between each two GPUs and ``cpu_links``
    the number to the GPU's own CPU; without a mesh a GPU's links are spread evenly over the others.
    ``cabling`` is the real mesh, if NCCL was given another as ``mesh``.
    ``nodes`` is the whole drawing of a machine from a file; the figures are then
    a summary: the least if GPUs or cards differ. ``note`` states assumptions.

    ``ranks`` are those of one machine with all its GPUs in use, ``nic_path`` the bytes/s between a GPU and
    its card: the slower of the card and the slot. ``nvlink_rate`` is
    one NVLink's bytes/s as NCCL reckons, ``nvlink_datasheet_rate`` the data sheet's.
    """

    name: str
    compute_capability: int
    gpus: int
    nics: int
    nic: float
    nvlink: float
    pcie: float
    socket: float
    nvswitch: bool
    cpu: str
    gpus_per_switch: int = 1
    sockets: int = 2
    mesh: tuple[tuple[int, int, int], ...] = ()
    cabling: tuple[tuple[int, int, int], ...] = ()
    cpu_links: int = 0
    c2c: float = 0.0
    hosts: int = 1
    ranks_per_gpu: int = 1
    beside: tuple[int, ...] = ()
    nodes: Nodes | None = field(default=None, repr=False)
    note: str = field(default="", compare=False)
    ranks: int = field(init=False, repr=False, compare=False)
    nic_path: float = field(init=False, repr=False, compare=False)
    nvlink_rate: float = field(init=False, repr=False, compare=False)
    nvlink_datasheet_rate: float = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for name in ("compute_capability", "gpus", "sockets", "hosts", "ranks_per_gpu"):
            if getattr(self, name) < 1:
                raise ValueError(f"{self.name}: {name} is {getattr(self, name)}; write 1 or more")
        for name in ("nics", "gpus_per_switch", "cpu_links"):
            if getattr(self, name) < 0:
                raise ValueError(f"{self.name}: {name} is {getattr(self, name)}; write 0 or more")
        for name in ("nic", "nvlink", "pcie", "socket", "c2c"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{self.name}: {name} is {getattr(self, name)}; write bytes/s, 0 or more")
        if self.cpu not in CPUS:
            raise ValueError(f"{self.name}: cpu is {self.cpu!r}; write one of {', '.join(CPUS)}")
        object.__setattr__(self, "ranks", self.gpus * self.ranks_per_gpu)
        object.__setattr__(self, "nic_path", min(self.nic, self.pcie))
        object.__setattr__(self, "nvlink_rate", nvlink_link(self.compute_capability))
        object.__setattr__(self, "nvlink_datasheet_rate", _of(NVLINK, self.compute_capability))


def nvlink_as_nccl_reckons(datasheet: float, compute_capability: int) -> float:
    """Return NCCL's rate for a GPU's data-sheet NVLink bandwidth: bytes/s, one direction, over all links."""
    return datasheet * nvlink_link(compute_capability) / _of(NVLINK, compute_capability)


def nvlink_in_datasheet(reckoned: float, compute_capability: int) -> float:
    """Return the reverse: a data sheet's bytes/s of one direction."""
    return reckoned * _of(NVLINK, compute_capability) / nvlink_link(compute_capability)


def nvlink_link(compute_capability: int) -> float:
    """Return NCCL's bytes/s of one NVLink of a GPU, one direction."""
    return _of(NVLINK_GBPS, compute_capability) * GB


def _of(table: Mapping[int, float], compute_capability: int) -> float:
    """Return a GPU's entry in a table by first compute capability; older GPUs have the first entry."""
    return table[max(first for first in table if first <= max(compute_capability, min(table)))]


def nics_used(system: System, gpus: int) -> int:
    """Return the number of NICs of one node near the ``gpus`` GPUs used."""
    return min(system.nics, -(-system.nics * gpus // system.ranks))


def system_of_graph(graph: Topology) -> System:
    """Return the machine that a topology is made of, as NCCL sees it.

    All machines must have equally many GPUs, on consecutive ranks; the least of differing links counts. PCIe
    slots are the GPUs', or the cards' if GPUs have none. Without CPUs in the topology there are two.
    """
    hardware = hardware_of(graph)
    name, capability, cpu = hardware.name, hardware.compute_capability, hardware.cpu
    if hardware.is_amd:
        raise TopologyError(
            f"{name}: RCCL runs on AMD's GPUs, not NCCL; write another library, such as ideal"
        )
    if capability is None or hardware.nvlink is None:
        raise TopologyError(
            f"NCCL's choices on {name} depend on its GPUs, which it does not state; add for example "
            "device: a100 (or compute_capability: 80) and cpu: intel to its file, or write a machine's "
            "name or another library"
        )
    if cpu is not None and cpu not in SOCKET:
        raise TopologyError(
            f"{name}: NCCL's constants for CPUs of {cpu} are unknown; write one of {', '.join(SOCKET)}"
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
            f"{hardware.name} states machines: {count}, but its {len(gpus)} GPUs are on "
            f"{len(machines)}, not counting switches; NCCL's model needs equally many GPUs on each, "
            "rank after rank; write another library, such as ideal"
        )


def _mesh(graph: Topology, gpus: list[Node], link: float) -> tuple[tuple[int, int, int], ...]:
    """Return the number of NVLinks of ``link`` bytes/s of each pair of GPUs; empty if spread evenly."""
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


def time_ratio(now: System, before: System, now_s: float, before_s: float) -> float | None:
    """Return the ratio of a pair's time to that ``before``, by the tuner; ``None`` if it lacks one.

    The ratio is bounded by the rate that fell most and the one that rose most. NCCL's search finds other
    channels for other rates, and the tuner's estimates then sometimes contain latencies and limits that no
    rate explains.
    """
    if not (isfinite(now_s) and isfinite(before_s)):
        return None
    rates: list[tuple[float, float]] = [(getattr(now, name), getattr(before, name)) for name in RATES]
    grown = [new / old for new, old in rates if new and old]
    least, most = 1 / max(1.0, *grown), 1 / min(1.0, *grown)
    return min(max(now_s / before_s, least), most)


def changed_rates(now: System, before: System) -> str:
    """Describe the changed rates."""
    rates = {name: getattr(now, name) for name in RATES if getattr(now, name) != getattr(before, name)}
    if "nvlink" in rates:
        rates["nvlink"] = nvlink_in_datasheet(rates["nvlink"], now.compute_capability)
    return ", ".join(f"{name} {format_rate(rate, 4)}" for name, rate in rates.items())
