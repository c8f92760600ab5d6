"""What machines are made of: GPUs by name, what a link of a known kind carries, in bytes/s of one direction.

On a topology's graph stand, beside its links, ``device``, the GPU's name, one of `DEVICES`, from which its
compute capability follows, and from that the generation of its NVLinks (`nvlink`); ``cpu`` is who makes the
CPUs.
"""

from typing import TypedDict

DEVICES = {
    **{"v100": 70, "a100": 80, "a100-40gb": 80, "rtx3090": 86, "rtx4090": 89, "h100": 90},
    **{"h200": 90, "b200": 100, "h800": 90, "h20": 90, "mi300x": 94},
}
"""Compute capabilities by GPU, 90 for sm_90 (NVIDIA, CUDA GPU compute capability); 94 for AMD's gfx942."""

AMDS = frozenset({"mi300x"})
"""Those of `DEVICES` that are AMD's."""

PCIE_GTS = {"v100": 8.0, "a100": 16.0, "a100-40gb": 16.0, "h100": 32.0, "h200": 32.0, "b200": 32.0}
"""GT/s of a lane of a GPU's x16 slot: PCIe Gen 3, 4 or 5 (NVIDIA's data sheets)."""

_NVLINKS = {"v100": 6, "a100": 12, "a100-40gb": 12, "h100": 18, "h200": 18, "b200": 18}
"""NVLinks of a GPU in the SXM form (NVIDIA's data sheets)."""

NVLINK = {60: 20e9, 70: 25e9, 80: 25e9, 86: 14.0625e9, 90: 25e9, 100: 50e9}
"""One NVLink by the first compute capability it holds for: P100 to B200 (NVIDIA's white papers)."""

_PCIE_LANE = {2.5: 15, 5.0: 30, 8.0: 60, 16.0: 120, 32.0: 240, 64.0: 480}
"""Units of 1/80 GB/s that NCCL reckons for a lane, by GT/s: Gen 1 to 6 (src/graph/topo.cc, v2.30.7)."""

XGMI = {"gfx906": 46e9, "gfx908": 46e9, "gfx90a": 50e9, "gfx942": 64e9, "gfx950": 76.8e9}
"""One Infinity Fabric link between GPUs by AMD's name of the GPU: MI60, MI100, MI250X, MI300X, MI355X
(AMD's data sheets give both directions together: 92, 92, 100, 128 and 153.6 GB/s)."""


class Facts(TypedDict, total=False):
    """What stands on the graph."""

    device: str
    compute_capability: int
    cpu: str


def facts(device: str, cpu: str | None = None) -> Facts:
    """The facts about machines with these GPUs and CPUs."""
    found = Facts(device=device, compute_capability=DEVICES[device])
    if cpu is not None:
        found["cpu"] = cpu
    return found


def nvlink(compute_capability: int) -> float:
    """Bytes/s of one NVLink of a GPU such as 90 (sm_90)."""
    return NVLINK[max(first for first in NVLINK if first <= max(compute_capability, min(NVLINK)))]


def nvlink_of(device: str) -> float:
    """Bytes/s of all NVLinks of a GPU together, one direction."""
    return _NVLINKS[device] * nvlink(DEVICES[device])


def pcie(gigatransfers: float, lanes: int) -> float:
    """Bytes/s of a PCIe link as NCCL reckons it, a quarter under the signalling rate; unknown: Gen 3."""
    return lanes * _PCIE_LANE.get(gigatransfers, _PCIE_LANE[8.0]) / 80 * 1e9


def xgmi(gcn: str) -> float:
    """Bytes/s of one link of a GPU such as ``gfx942``, which older files write as 942."""
    name = gcn if gcn.startswith("gfx") else f"gfx{gcn}"
    return XGMI.get(name.partition(":")[0], XGMI["gfx908"])
