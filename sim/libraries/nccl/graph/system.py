"""Machines as NCCL sees them: the facts from which it makes its choices, with their sources."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ringside.sim.libraries.nccl.graph.nodes import Nodes
from ringside.topologies.hardware import NVLINK

GB = 1e9
"""NCCL counts bandwidth in 10**9 bytes/s."""

CPUS = ("intel", "amd", "arm", "power", "zhaoxin", "other", "mixed")

NVLINK_GBPS = {60: 18.0, 70: 20.0, 80: 20.0, 86: 12.0, 90: 20.6, 100: 40.1}
"""GB/s that NCCL reckons for one NVLink, by the first compute capability it holds for (src/graph/topo.h)."""


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
