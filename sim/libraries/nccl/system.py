"""Machines as NCCL sees them: the facts from which it makes its choices, with their sources."""

from dataclasses import dataclass, field, replace

from sim.libraries.nccl.nodes import Nodes
from topologies.links import nvlink
from topologies.machines import CUBE_MESH

GB = 1e9
"""NCCL counts bandwidth in 10**9 bytes/s."""

CPUS = ("intel", "amd", "arm", "power", "zhaoxin", "other", "mixed")

NVLINK_GBPS = {60: 18.0, 70: 20.0, 80: 20.0, 86: 12.0, 90: 20.6, 100: 40.1}
"""GB/s that NCCL reckons for one NVLink, by the first compute capability it holds for (src/graph/topo.h)."""


@dataclass(frozen=True, slots=True)
class System:
    """One kind of machine; a cluster is many of it.

    All bandwidths are bytes/s of one direction, as NCCL reckons them, which is below the data
    sheet: ``nvlink`` of one GPU over all its links (0: none), ``pcie`` of one GPU's slot, ``nic`` of
    one network card, ``socket`` from one CPU to the other, ``c2c`` from a GPU to its Grace.
    ``compute_capability`` is 90 for sm_90. GPUs and cards are spread evenly over ``sockets`` CPUs, on
    PCIe switches with ``gpus_per_switch`` GPUs each, or straight on the CPU (0). ``hosts`` of them, each
    with its share of the CPUs, are one node where one NVSwitch domain joins them.

    ``ranks_per_gpu`` ranks share each GPU (NCCL 2.30 and later, NCCL_MULTI_RANK_GPU_ENABLE=1).

    Where there is no NVSwitch, ``mesh`` tells how many NVLinks join which two GPUs and ``cpu_links``
    how many go to the GPU's own CPU; without a mesh a GPU's links are spread evenly over the others.
    ``cabling`` is the mesh that is really there, where ``mesh`` is what NCCL was told.
    ``nodes`` is the whole drawing of a machine that a file describes, beside which the figures are
    a summary: the least where GPUs or cards differ. ``note`` says what had to be taken on trust.
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
    nodes: Nodes | None = field(default=None, repr=False)
    note: str = ""

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

    @property
    def ranks(self) -> int:
        """Ranks of one machine with all its GPUs in use."""
        return self.gpus * self.ranks_per_gpu

    @property
    def nic_path(self) -> float:
        """Bytes/s between a GPU and its NIC: the slower of the card and the slot."""
        return min(self.nic, self.pcie)


def nvlink_as_nccl_reckons(datasheet: float, compute_capability: int) -> float:
    """What NCCL makes of a GPU's NVLink bandwidth in a data sheet: bytes/s, one direction, over all links."""
    capability = max(compute_capability, min(NVLINK_GBPS))
    return datasheet * nvlink_link(capability) / nvlink(capability)


def nvlink_link(compute_capability: int) -> float:
    """Bytes/s that NCCL reckons for one NVLink of a GPU, one direction."""
    known = [first for first in NVLINK_GBPS if first <= compute_capability]
    return NVLINK_GBPS[max(known)] * GB if known else 0.0


# 8 H100 behind NVSwitch, eight 400G NICs, Sapphire Rapids (NVIDIA DGX H100/H200 user guide)
_DGX_H100 = System("dgx-h100", 90, 8, 8, 50 * GB, 370.8 * GB, 48 * GB, 22 * GB, True, "intel")

_CUBE_MESH = (
    *((0, 1, 1), (0, 2, 1), (0, 3, 2), (0, 4, 2), (1, 2, 2), (1, 3, 1), (1, 5, 2), (2, 3, 1)),
    *((2, 6, 2), (3, 7, 2), (4, 5, 1), (4, 6, 1), (4, 7, 2), (5, 6, 2), (5, 7, 1), (6, 7, 1)),
)
"""NVLinks of a DGX-1 with V100 as in the description from which NCCL's own channels were printed. The pairs
are those of `topologies.machines.CUBE_MESH`, which is what ``nvidia-smi`` shows; there 2-3, 6-7 are the double
ones in place of 2-6 and 3-7. Speeds and channel counts are the same on both."""

SYSTEMS = {
    system.name: system
    for system in (
        # 8 V100, six NVLinks each in a hybrid cube mesh, a 100G NIC for every two GPUs, Broadwell
        # (NVIDIA DGX-1 with Tesla V100 system architecture, WP-08437-002, 2017)
        System(
            *("dgx1-v100", 70, 8, 4, 12.5 * GB, 120 * GB, 12 * GB, 6 * GB, False, "intel"),
            gpus_per_switch=2,
            mesh=_CUBE_MESH,
            cabling=tuple((a, b, links) for (a, b), links in CUBE_MESH.items()),
        ),
        # 16 V100 behind NVSwitch, eight 100G NICs, Skylake (NVIDIA DGX-2 user guide)
        System("dgx2-v100", 70, 16, 8, 12.5 * GB, 120 * GB, 12 * GB, 10 * GB, True, "intel", 2),
        # 8 A100 behind NVSwitch, eight 200G NICs, two and two on a switch, Rome (NVIDIA DGX A100 user guide)
        System("dgx-a100", 80, 8, 8, 25 * GB, 240 * GB, 24 * GB, 16 * GB, True, "amd", 2),
        _DGX_H100,
        # the same machine with 8 H200, whose larger memory NCCL does not look at
        replace(_DGX_H100, name="dgx-h200"),
        # 8 B200 behind NVSwitch, eight 400G NICs, Emerald Rapids (NVIDIA DGX B200 user guide)
        System("dgx-b200", 100, 8, 8, 50 * GB, 721.8 * GB, 48 * GB, 40 * GB, True, "intel"),
        # 18 trays of 4 GPUs in one NVLink domain, which NCCL counts as one node; a 400G NIC a GPU, Grace
        # (NVIDIA GB200 NVL72 data sheet, 2024)
        System(
            *("gb200-nvl72", 100, 72, 72, 50 * GB, 721.8 * GB, 48 * GB, 6 * GB, True, "arm"),
            gpus_per_switch=0,
            sockets=36,
            c2c=450 * GB,
            hosts=18,
        ),
        # two A100 PCIe and one 100G NIC on a PCIe switch of each of two Ice Lake sockets, no NVLink
        System("a100-pcie4", 80, 4, 2, 12.5 * GB, 0, 24 * GB, 10 * GB, False, "intel", 2),
        # one H100 and one 400G NIC
        System("h100-1gpu", 90, 1, 1, 50 * GB, 370.8 * GB, 48 * GB, 22 * GB, False, "intel"),
    )
}
"""Machines by name. Each figure is NCCL's reckoning (src/graph/topo.h, v2.30.7): NVLink links x speed of
one, PCIe lanes x rate / 80, NIC speed / 8, and the CPU interconnect by processor model."""


def find_system(name: str) -> System:
    """The machine of that name."""
    if name not in SYSTEMS:
        raise ValueError(
            f"{name!r} is no machine whose NCCL graphs are known; write one of {', '.join(SYSTEMS)}, "
            "or the name of a file: NCCL_TOPO_DUMP_FILE's, or a table of nvidia-smi topo -m"
        )
    return SYSTEMS[name]
