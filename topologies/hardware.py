"""Hardware facts on a topology's graph, and the bandwidths of links in bytes/s of one direction.

The graph's ``device`` names its GPU (`ringside.topologies.gpu`). The compute capability follows from it,
and the generation of its NVLinks from that (`nvlink`). ``cpu`` is the maker of the CPUs.
"""

from typing import TypedDict

from ringside.topologies.gpu import GPUS

NVLINK = {60: 20e9, 70: 25e9, 80: 25e9, 86: 14.0625e9, 90: 25e9, 100: 50e9}
"""Bandwidth of one NVLink by the first compute capability with it: P100 to B200 (NVIDIA's white papers)."""

_PCIE_LANE = {2.5: 15, 5.0: 30, 8.0: 60, 16.0: 120, 32.0: 240, 64.0: 480}
"""NCCL's bandwidth of a lane in units of 1/80 GB/s, by GT/s: Gen 1 to 6 (src/graph/topo.cc, v2.30.7)."""

XGMI = {"gfx906": 46e9, "gfx908": 46e9, "gfx90a": 50e9, "gfx942": 64e9, "gfx950": 76.8e9}
"""Bandwidth of one Infinity Fabric link, by AMD's name of the GPU: MI60, MI100, MI250X, MI300X, MI355X
(AMD's data sheets give the sum of both directions: 92, 92, 100, 128 and 153.6 GB/s)."""


class Facts(TypedDict, total=False):
    """Hardware attributes of the graph."""

    device: str
    compute_capability: int
    cpu: str


def facts(device: str, cpu: str | None = None) -> Facts:
    """Return the facts about machines with these GPUs and CPUs."""
    attributes = Facts(device=device, compute_capability=GPUS[device].compute_capability)
    if cpu is not None:
        attributes["cpu"] = cpu
    return attributes


def nvlink(compute_capability: int) -> float:
    """Return bytes/s of one NVLink, by a GPU's compute capability, such as 90 (sm_90)."""
    return NVLINK[max(first for first in NVLINK if first <= max(compute_capability, min(NVLINK)))]


def nvlink_of(device: str) -> float | None:
    """Return the total bytes/s of a GPU's NVLinks, one direction; None if its file has none."""
    gpu = GPUS[device]
    return gpu.nvlinks * nvlink(gpu.compute_capability) or None


def slot_of(device: str) -> float | None:
    """Return bytes/s of a GPU's x16 slot as NCCL computes it; None if its file does not name its PCIe."""
    gpu = GPUS[device]
    return gpu.pcie and pcie(gpu.pcie, 16)


def pcie(gigatransfers: float, lanes: int) -> float:
    """Return NCCL's bytes/s of a PCIe link, a quarter below the signalling rate; Gen 3 if unknown."""
    return lanes * _PCIE_LANE.get(gigatransfers, _PCIE_LANE[8.0]) / 80 * 1e9


def xgmi(gcn: str) -> float:
    """Return bytes/s of one link of a GPU such as ``gfx942``, which older files write as 942."""
    name = gcn if gcn.startswith("gfx") else f"gfx{gcn}"
    return XGMI.get(name.partition(":")[0], XGMI["gfx908"])
