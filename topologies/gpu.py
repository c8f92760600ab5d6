"""GPUs by name, each described in a file of ``topologies/gpus`` with its sources."""

import re
from functools import cache
from pathlib import Path
from typing import Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, ValidationError

from ringside.topologies import strict_yaml
from ringside.topologies.lazy import Lazy
from ringside.topologies.units import Bytes, BytesPerSecond

FOLDER = Path(__file__).parent / "gpus"


class Gpu(BaseModel):
    """A GPU's figures from data sheets, drivers and measurements, which ``sources`` names.

    ``compute_capability`` is 90 for sm_90 (NVIDIA, CUDA GPU compute capability) and 94 for AMD's gfx942;
    the ``usual`` GPU stands for its capability if a topology names no GPU. ``nvlinks`` are those of the
    SXM form, ``pcie`` the GT/s of a lane of its x16 slot. ``in_logs`` is a pattern of its name in logs, in
    capitals. ``tflops`` are dense peaks in 10**12 FLOP/s by precision, of tensor cores if it has any;
    they require ``memory``, ``memory_bandwidth`` and ``multiprocessors``. ``memory`` is the capacity that
    the driver reports. The efficiencies are measured shares of the peaks that training reaches;
    ``wide_efficiency`` is that of the wide matrix products of decoders. Products in 8 bits reach
    ``narrower`` times the peaks.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    sources: str
    compute_capability: int = Field(ge=10, le=999)
    maker: Literal["nvidia", "amd"] = "nvidia"
    usual: bool = False
    nvlinks: int = 0
    pcie: PositiveFloat | None = None
    in_logs: re.Pattern[str] | None = None
    tflops: dict[Literal["fp32", "tf32", "bf16", "fp16"], PositiveFloat] = {}
    memory: Bytes = 0
    memory_bandwidth: BytesPerSecond = 0.0
    multiprocessors: PositiveInt = 1
    compute_efficiency: PositiveFloat | None = None
    memory_efficiency: PositiveFloat | None = None
    wide_efficiency: PositiveFloat | None = None
    narrower: PositiveFloat = 1.0


@cache
def names() -> tuple[str, ...]:
    """Return the names of all GPUs, in alphabetical order."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.yaml")))


@cache
def _read(name: str) -> Gpu:
    path = FOLDER / f"{name}.yaml"
    try:
        return Gpu(**strict_yaml.loads(path.read_text(encoding="utf-8")))
    except (ValidationError, yaml.YAMLError) as error:
        raise ValueError(f"{path}: {error}") from None


GPUS = Lazy(names, _read)
"""GPUs by name; a file is read when its GPU is looked up."""
