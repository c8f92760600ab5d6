"""GPUs by name, as far as links and libraries look at them."""

from topologies.links import nvlink

DEVICES = {
    **{"v100": 70, "a100": 80, "a100-40gb": 80, "rtx3090": 86, "rtx4090": 89, "h100": 90},
    **{"h200": 90, "b200": 100, "h800": 90, "h20": 90, "mi300x": 94},
}
"""Compute capabilities by GPU, 90 for sm_90 (NVIDIA, CUDA GPU compute capability); 94 for AMD's gfx942."""

PCIE_GTS = {"v100": 8.0, "a100": 16.0, "a100-40gb": 16.0, "h100": 32.0, "h200": 32.0, "b200": 32.0}
"""GT/s of a lane of a GPU's x16 slot: PCIe Gen 3, 4 or 5 (NVIDIA's data sheets)."""

_NVLINKS = {"v100": 6, "a100": 12, "a100-40gb": 12, "h100": 18, "h200": 18, "b200": 18}
"""NVLinks of a GPU in the SXM form (NVIDIA's data sheets)."""


def nvlink_of(device: str) -> float:
    """Bytes/s of all NVLinks of a GPU together, one direction."""
    return _NVLINKS[device] * nvlink(DEVICES[device])
