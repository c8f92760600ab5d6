"""Machines as NCCL sees them: the facts from which it makes its choices, with their sources."""

from dataclasses import dataclass, replace

from topologies.links import nvlink

GB = 1e9
"""NCCL counts bandwidth in 10**9 bytes/s."""

CPUS = ("intel", "amd", "arm", "power", "mixed")

NVLINK_GBPS = {60: 18.0, 70: 20.0, 80: 20.0, 86: 12.0, 90: 20.6, 100: 40.1}
"""GB/s that NCCL reckons for one NVLink, by the first compute capability it holds for (src/graph/topo.h)."""


@dataclass(frozen=True, slots=True)
class System:
    """One kind of machine; a cluster is many of it.

    All bandwidths are bytes/s of one direction, as NCCL reckons them, which is below the data
    sheet: ``nvlink`` of one GPU over all its links (0: none), ``pcie`` of one GPU's slot, ``nic`` of
    one network card, ``socket`` from one CPU to the other. ``compute_capability`` is 90 for sm_90.
    ``shared_switch`` says that two GPUs sit on the PCIe switch of each NIC.
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
    shared_switch: bool = False

    def __post_init__(self) -> None:
        for field in ("compute_capability", "gpus"):
            if getattr(self, field) < 1:
                raise ValueError(f"{self.name}: {field} is {getattr(self, field)}; write 1 or more")
        if self.nics < 0:
            raise ValueError(f"{self.name}: nics is {self.nics}; write 0 or more")
        for field in ("nic", "nvlink", "pcie", "socket"):
            if not getattr(self, field) >= 0:
                raise ValueError(f"{self.name}: {field} is {getattr(self, field)}; write bytes/s, 0 or more")
        if self.cpu not in CPUS:
            raise ValueError(f"{self.name}: cpu is {self.cpu!r}; write one of {', '.join(CPUS)}")

    @property
    def nic_path(self) -> float:
        """Bytes/s between a GPU and its NIC: the slower of the card and the slot."""
        return min(self.nic, self.pcie)


def nvlink_as_nccl_reckons(datasheet: float, compute_capability: int) -> float:
    """What NCCL makes of a GPU's NVLink bandwidth in a data sheet: bytes/s, one direction, over all links."""
    capability = max(compute_capability, min(NVLINK_GBPS))
    return datasheet * nvlink_link(capability) / nvlink(capability)


def nvlink_in_datasheet(reckoned: float, compute_capability: int) -> float:
    """The reverse: bytes/s of one direction as a data sheet has it."""
    capability = max(compute_capability, min(NVLINK_GBPS))
    return reckoned * nvlink(capability) / nvlink_link(capability)


def nvlink_link(compute_capability: int) -> float:
    """Bytes/s that NCCL reckons for one NVLink of a GPU, one direction."""
    known = [first for first in NVLINK_GBPS if first <= compute_capability]
    return NVLINK_GBPS[max(known)] * GB if known else 0.0


# 8 H100 behind NVSwitch, eight 400G NICs, Sapphire Rapids (NVIDIA DGX H100/H200 user guide)
_DGX_H100 = System("dgx-h100", 90, 8, 8, 50 * GB, 370.8 * GB, 48 * GB, 22 * GB, True, "intel")

SYSTEMS = {
    system.name: system
    for system in (
        # 8 V100, six NVLinks each in a hybrid cube mesh, a 100G NIC for every two GPUs, Broadwell
        # (NVIDIA DGX-1 with Tesla V100 system architecture, WP-08437-002, 2017)
        System("dgx1-v100", 70, 8, 4, 12.5 * GB, 120 * GB, 12 * GB, 6 * GB, False, "intel", True),
        # 16 V100 behind NVSwitch, eight 100G NICs, Skylake (NVIDIA DGX-2 user guide)
        System("dgx2-v100", 70, 16, 8, 12.5 * GB, 120 * GB, 12 * GB, 10 * GB, True, "intel", True),
        # 8 A100 behind NVSwitch, eight 200G NICs, two and two on a switch, Rome (NVIDIA DGX A100 user guide)
        System("dgx-a100", 80, 8, 8, 25 * GB, 240 * GB, 24 * GB, 16 * GB, True, "amd", True),
        _DGX_H100,
        # the same machine with 8 H200, whose larger memory NCCL does not look at
        replace(_DGX_H100, name="dgx-h200"),
        # 8 B200 behind NVSwitch, eight 400G NICs, Emerald Rapids (NVIDIA DGX B200 user guide)
        System("dgx-b200", 100, 8, 8, 50 * GB, 721.8 * GB, 48 * GB, 40 * GB, True, "intel"),
        # 18 trays of 4 GPUs in one NVLink domain, which NCCL counts as one node; a 400G NIC a GPU, Grace
        # (NVIDIA GB200 NVL72 data sheet, 2024)
        System("gb200-nvl72", 100, 72, 72, 50 * GB, 721.8 * GB, 48 * GB, 6 * GB, True, "arm"),
        # two A100 PCIe and one 100G NIC on each of two Ice Lake sockets, no NVLink
        System("a100-pcie4", 80, 4, 2, 12.5 * GB, 0, 24 * GB, 10 * GB, False, "intel"),
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
            f"{name!r} is no machine whose NCCL graphs are known; write one of {', '.join(SYSTEMS)}"
        )
    return SYSTEMS[name]
