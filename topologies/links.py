"""What one link of a known kind carries, in bytes/s of one direction."""

NVLINK = {60: 20e9, 70: 25e9, 80: 25e9, 86: 14.0625e9, 90: 25e9, 100: 50e9}
"""One NVLink by the first compute capability it holds for: P100 to B200 (NVIDIA's white papers)."""

_PCIE_LANE = {2.5: 15, 5.0: 30, 8.0: 60, 16.0: 120, 32.0: 240, 64.0: 480}
"""Units of 1/80 GB/s that NCCL reckons for a lane, by GT/s: Gen 1 to 6 (src/graph/topo.cc, v2.30.7)."""


def nvlink(compute_capability: int) -> float:
    """Bytes/s of one NVLink of a GPU such as 90 (sm_90)."""
    return NVLINK[max(first for first in NVLINK if first <= max(compute_capability, min(NVLINK)))]


def pcie(gigatransfers: float, lanes: int) -> float:
    """Bytes/s of a PCIe link as NCCL reckons it, a quarter under the signalling rate; unknown: Gen 3."""
    return lanes * _PCIE_LANE.get(gigatransfers, _PCIE_LANE[8.0]) / 80 * 1e9
