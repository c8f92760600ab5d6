"""The communicator: its ranks, their machines, and NCCL's settings."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

from pydantic import Field

from ringside.sim.libraries.nccl.constants import Constants
from ringside.sim.libraries.nccl.graph.graph import Graph, Graphs, PathClass
from ringside.sim.libraries.nccl.graph.search import graphs as known_graphs
from ringside.sim.libraries.nccl.graph.system import GB, SYSTEMS, System, listed_system
from ringside.sim.libraries.nccl.names import ALGORITHMS
from ringside.sim.libraries.nccl.pins import Pins
from ringside.sim.libraries.nccl.releases import DEFAULT_VERSION, RELEASES, constants, stand_in
from ringside.topologies import Topology

MAX_CHANNELS = 64

FEW_AND_FAST = 45 * GB
"""Bytes/s above which fewer than 16 channels are doubled again on Hopper and newer."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The release of NCCL, and the variables that change its choice; defaults are NCCL's.

    ``version`` is any version; if its release is not modelled, the nearest older one is used.
    ``net_overhead_us`` is NCCL_NET_OVERHEAD (which NCCL takes in ns), ``pat`` NCCL_PAT_ENABLE, ``nvls``
    NCCL_NVLS_ENABLE, ``collnet`` NCCL_COLLNET_ENABLE with a plugin that can do it, ``min_ctas`` and
    ``max_ctas`` NCCL_MIN_CTAS and NCCL_MAX_CTAS.
    """

    version: str = DEFAULT_VERSION
    pins: Pins = field(default_factory=Pins)
    net_overhead_us: float | None = None
    pat: bool | None = None
    nvls: bool = True
    collnet: bool = False
    collnet_node_threshold: int = 2
    min_ctas: int = 1
    max_ctas: int = MAX_CHANNELS

    def __post_init__(self) -> None:
        constants(self.version)
        if not 1 <= self.min_ctas <= MAX_CHANNELS or not 1 <= self.max_ctas <= MAX_CHANNELS:
            raise ValueError(
                f"NCCL_MIN_CTAS {self.min_ctas}, NCCL_MAX_CTAS {self.max_ctas}; allowed: 1 to {MAX_CHANNELS}"
            )


@dataclass(frozen=True, slots=True)
class Communicator:
    """``gpus`` ranks on each of ``nodes`` machines, rank r on machine r // gpus.

    They have a GPU each, unless the machine has several ranks on a GPU (`System.ranks_per_gpu`). ``network``
    is the cluster's topology if its machines are on a fabric, which is invisible to NCCL; otherwise the
    network is never the bottleneck. ``machines`` are the nodes' numbers there, by default the first ones.

    The other fields follow from these. ``constants`` are the tuner's tables of this release; ``generation``
    is their row for these GPUs (0 Volta, 1 Ampere, 2 Hopper, 3 Blackwell), ``scale`` their column (0 for one
    node, 1 for two, 2 for more). ``collnet``: the network reduces (SHARP), through ``collnet_heads`` GPUs of
    a node. ``usable`` are the graphs by algorithm, without those that the machine or the settings exclude.
    ``channels`` are those of rings and trees after the connect step, ``nvls_channels`` those of switch
    reductions (NVLS, NVLSTree), 0 without them. ``notes`` are assumptions, in sentences.
    """

    system: System
    nodes: int
    gpus: int
    graphs: Graphs
    settings: Settings
    network: "Topology | None" = None
    machines: tuple[int, ...] = ()
    ranks: int = field(init=False, repr=False, compare=False)
    notes: tuple[str, ...] = field(init=False, repr=False, compare=False)
    constants: Constants = field(init=False, repr=False, compare=False)
    generation: int = field(init=False, repr=False, compare=False)
    scale: int = field(init=False, repr=False, compare=False)
    collnet: bool = field(init=False, repr=False, compare=False)
    collnet_heads: int = field(init=False, repr=False, compare=False)
    usable: Mapping[str, Graph] = field(init=False, repr=False, compare=False)
    channels: int = field(init=False, repr=False, compare=False)
    nvls_channels: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        settings, direct = self.settings, self.graphs.collnet_direct
        self._set(
            ranks=self.nodes * self.gpus,
            notes=tuple(filter(None, (self.system.note, stand_in(settings.version)))),
            constants=constants(settings.version),
            generation=sum(self.system.compute_capability >= first for first in (80, 90, 100)),
            scale=min(self.nodes, 3) - 1,
            collnet=settings.collnet and self.nodes >= max(2, settings.collnet_node_threshold),
            collnet_heads=direct.channels if direct else 0,
        )
        graphs = {algorithm: self._graph(algorithm) for algorithm in ALGORITHMS}
        self._set(usable={algorithm: graph for algorithm, graph in graphs.items() if graph})
        self._set(channels=self.channel_counts[-1][0], nvls_channels=self._nvls_channels())

    def _set(self, **derived: Any) -> None:
        for name, value in derived.items():
            object.__setattr__(self, name, value)

    def _graph(self, algorithm: str) -> Graph | None:
        match algorithm:
            case "ring":
                return self.graphs.ring
            case "tree" | "pat":
                return self.graphs.tree
            case "collnet_direct":
                return self.graphs.collnet_direct if self.collnet else None
            case "collnet_chain":
                return self.graphs.collnet_chain if self.collnet else None
            case _:
                able = self.system.compute_capability >= 90 and self.system.nvswitch and self.gpus >= 2
                able = able and self.system.ranks_per_gpu == 1
                return self.graphs.nvls if able and self.settings.nvls else None

    @property
    def channel_counts(self) -> list[tuple[int, str]]:
        """The number of channels of rings and trees, step by step: counts, each with its reason.

        The search's own; two for each of those, one for each tree of the pair; twice that on Hopper
        and newer if the search ended with few fast channels; half as many again for CollNet
        whose intra-node links are faster than its network; the user's limits (src/graph/connect.cc, v2.30.7).
        """
        ring, chain = self.graphs.ring, self.graphs.collnet_chain
        counts = [(ring.channels, f"NCCL's search finds {ring.channels} of {self._speeds()}")]
        count = min(2 * ring.channels, MAX_CHANNELS)
        counts.append((count, "each is used twice, once for each of the two trees"))
        fast = ring.bw_intra > FEW_AND_FAST and count < 16
        if self.system.compute_capability >= 90 and self.nodes > 1 and fast:
            count *= 2
            counts.append((count, f"and twice again: few channels of over 45 GB/s on {self.nodes} nodes"))
        if self.collnet and chain and chain.bw_intra > chain.bw_inter and self.gpus > 1:
            count += count // 2
            counts.append((count, "half as many again for CollNet, faster inside nodes than between"))
        clamped = self._clamped(count)
        if clamped != count:
            limit = "NCCL_MAX_CTAS" if clamped < count else "NCCL_MIN_CTAS"
            counts.append((clamped, f"{limit} is {clamped}"))
        return counts

    def _nvls_channels(self) -> int:
        if "nvls" not in self.usable:
            return 0
        if self.system.compute_capability < 100:
            return self._clamped(16)
        return self._clamped(24 if self.nodes == 1 else 32)

    def _speeds(self) -> str:
        """Describe the bandwidth of the rings' search channels, and its limit."""
        ring, system = self.graphs.ring, self.system
        if self.nodes > 1:
            speed, room, what = ring.bw_inter, system.nics * system.nic_path, "a node's cards"
        else:
            speed, room, what = ring.bw_intra, system.nvlink or system.pcie, "a GPU's links"
        taken = f"{speed / GB:g} GB/s each"
        if self.nodes == system.ranks_per_gpu == 1 or self.nodes > 1:
            taken += f", {ring.channels * speed / GB:g} of the {room / GB:g} GB/s of {what}"
        return taken

    def _clamped(self, count: int) -> int:
        return max(self.settings.min_ctas, min(self.settings.max_ctas, count, MAX_CHANNELS))


@dataclass(frozen=True, slots=True)
class SiteFacts:
    """Facts between nodes that differ from site to site.

    ``ll128`` says whether LL128 is used where NCCL's rules allow it, ``channels`` how many channels rings and
    trees have after the connect step, ``None`` for the machine's preset.
    """

    ll128: bool = True
    channels: Annotated[int, Field(ge=1, le=MAX_CHANNELS)] | None = None

    def on(self, comm: Communicator) -> Communicator:
        """Return the communicator with the site's facts; one node's is unchanged."""
        if comm.nodes == 1:
            return comm
        graphs, settings = comm.graphs, comm.settings
        if not self.ll128:
            graphs = replace(graphs, ring=_without_order(graphs.ring), tree=_without_order(graphs.tree))
        if self.channels is not None:
            settings = replace(settings, min_ctas=self.channels, max_ctas=self.channels)
        return replace(comm, graphs=graphs, settings=settings)


def _without_order(graph: Graph) -> Graph:
    """Return the graph over a path that breaks the order of LL128's stores."""
    return replace(graph, type_inter=max(graph.type_inter, PathClass.PHB))


def communicator(
    system: System | str,
    nodes: int = 1,
    gpus: int | None = None,
    *,
    graphs: Graphs | None = None,
    settings: Settings | None = None,
) -> Communicator:
    """Return a communicator over ``nodes`` machines, with ranks on all their GPUs or ``gpus`` ranks on each.

    ``graphs`` are those of a dump or a log; by default NCCL's search finds them.
    """
    system = find_system(system) if isinstance(system, str) else system
    gpus = system.ranks if gpus is None else gpus
    if nodes < 1:
        raise ValueError(f"{nodes} nodes; write 1 or more")
    if not 1 <= gpus <= system.ranks:
        raise ValueError(
            f"{gpus} ranks a node, but {system.name} has room for {system.ranks}; allowed: 1 to "
            f"{system.ranks}, more with ranks_per_gpu"
        )
    settings = settings or Settings()
    if system.ranks_per_gpu > 1 and not constants(settings.version).shared_gpus:
        since = next(name for name, release in RELEASES.items() if release.shared_gpus)
        raise ValueError(f"NCCL {settings.version} refuses several ranks on one GPU; write version {since}")
    if nodes * gpus == 1:
        raise ValueError("1 rank has no peers, so NCCL chooses nothing; write 2 ranks or more")
    known = known_graphs(system, nodes, gpus, settings.version) if graphs is None else graphs
    for channel in known.ring.order:
        if sorted(channel.gpus) != list(range(gpus)):
            raise ValueError(
                f"the graphs are for {len(channel.gpus)} GPUs a node, but {gpus} are in use; write "
                f"graphs for {gpus}"
            )
    return Communicator(system, nodes, gpus, known, settings)


def find_system(name: str) -> System:
    """Return the machine of that name."""
    system = listed_system(name)
    if system is None:
        raise ValueError(
            f"no NCCL graphs for machine {name!r}; write one of {', '.join(SYSTEMS)}, "
            "or the name of a file: NCCL_TOPO_DUMP_FILE's, or a table of nvidia-smi topo -m"
        )
    return system
