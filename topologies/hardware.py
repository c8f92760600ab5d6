"""GPUs by name, each described in a file of ``topologies/gpus``, and the bandwidths of links.

A topology's ``device`` names its GPU. The compute capability follows from it, and the generation of its
NVLinks from that (`nvlink`). Bandwidths are bytes/s of one direction.
"""

import re
from functools import cache
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, ValidationError

from ringside.topologies import strict_yaml
from ringside.topologies.names import Lazy
from ringside.topologies.units import Bytes, BytesPerSecond

FOLDER = Path(__file__).parent / "gpus"

NVLINK = {60: 20e9, 70: 25e9, 80: 25e9, 86: 14.0625e9, 90: 25e9, 100: 50e9}
"""Bandwidth of one NVLink by the first compute capability with it: P100 to B200 (NVIDIA's white papers)."""

_PCIE_LANE = {2.5: 15, 5.0: 30, 8.0: 60, 16.0: 120, 32.0: 240, 64.0: 480}
"""NCCL's bandwidth of a lane in units of 1/80 GB/s, by GT/s: Gen 1 to 6 (src/graph/topo.cc, v2.30.7)."""

XGMI = {"gfx906": 46e9, "gfx908": 46e9, "gfx90a": 50e9, "gfx942": 64e9, "gfx950": 76.8e9}
"""Bandwidth of one Infinity Fabric link, by AMD's name of the GPU: MI60, MI100, MI250X, MI300X, MI355X
(AMD's data sheets give the sum of both directions: 92, 92, 100, 128 and 153.6 GB/s)."""


class Gpu(BaseModel):
    """A GPU's figures from data sheets, drivers and measurements; ``sources`` names them.

    ``compute_capability`` is 90 for sm_90 (NVIDIA, CUDA GPU compute capability) and 94 for AMD's gfx942; the
    ``usual`` GPU stands for its capability if a topology names no GPU. ``nvlinks`` are those of the SXM form,
    ``pcie`` the GT/s of a lane of its x16 slot. ``in_logs`` is a pattern of its name in logs, in capitals.
    ``tflops`` are dense peaks in 10**12 FLOP/s by precision, of tensor cores if it has any; they require
    ``memory``, ``memory_bandwidth`` and ``multiprocessors``. ``memory`` is the capacity that the driver
    reports. ``power`` is the data sheet's in W,
    ``power_cap`` a lower limit.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    sources: str
    compute_capability: int = Field(ge=10, le=999)
    maker: Literal["nvidia", "amd"] = "nvidia"
    usual: bool = False
    nvlinks: int = 0
    pcie: PositiveFloat | None = None
    in_logs: re.Pattern[str] | None = None
    tflops: dict[Literal["fp32", "tf32", "bf16", "fp16", "fp8", "nvfp4"], PositiveFloat] = {}
    memory: Bytes = 0
    memory_bandwidth: BytesPerSecond = 0.0
    multiprocessors: PositiveInt = 1
    power: PositiveFloat | None = None
    power_cap: PositiveFloat | None = None


@cache
def names() -> tuple[str, ...]:
    """Return the names of all GPUs, in alphabetical order."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.yaml")))


@cache
def _read(name: str) -> Gpu:
    path = FOLDER / f"{name}.yaml"
    try:
        return Gpu(name=name, **strict_yaml.loads(path.read_text(encoding="utf-8")))
    except (ValidationError, yaml.YAMLError) as error:
        raise ValueError(f"{path}: {error}") from None


GPUS = Lazy(names, _read)
"""GPUs by name; a file is read when its GPU is looked up."""


def find_gpu(name: str) -> Gpu | None:
    """Return the GPU of that name, None if it has no file."""
    return GPUS.get(name)


def facts(device: str, cpu: str | None = None) -> dict[str, Any]:
    """Return the attributes of a graph of machines with these GPUs and CPUs."""
    attributes = {"device": device, "compute_capability": GPUS[device].compute_capability, "cpu": cpu}
    return {name: value for name, value in attributes.items() if value is not None}


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
