"""GPUs for a roofline: peak rates and sizes, from their files in ``topologies/gpus``.

Rates are dense (without 2:4 sparsity) and those of the tensor cores if there are any for the precision.
``tfloat32`` is PyTorch's default for convolutions of float32 tensors on A100 and later
(``torch.backends.cudnn.allow_tf32``), and for matrix products after
``torch.set_float32_matmul_precision("high")``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil

from ringside.sim.collective import ITEMSIZE
from ringside.topologies.hardware import GPUS, Gpu, find_gpu
from ringside.topologies.load import gpu_of
from ringside.topologies.names import Lazy, one_of

GIB, MIB = 2**30, 2**20

NARROW = ("fp8", "mxfp8", "nvfp4")
"""Precisions of products alone; all else is in bfloat16."""

STORED = {
    "float32": "float32", "tfloat32": "float32", "bfloat16": "bfloat16", "float16": "float16",
    **dict.fromkeys(NARROW, "bfloat16"),
}  # fmt: skip
"""The type of stored activations, by compute precision."""

SHORT = {"fp32": "float32", "tf32": "tfloat32", "bf16": "bfloat16", "fp16": "float16", "half": "float16"}
"""Aliases of precisions and types."""


def full_name(text: str | None) -> str | None:
    """Return the full name of a precision or type: ``bf16``, ``bfloat16`` or None."""
    return None if text is None else SHORT.get(text, text)


def short_name(precision: str) -> str:
    """Return the short name of a precision: ``bf16`` for ``bfloat16``."""
    return next((short for short, full in SHORT.items() if full == precision), precision)


GRADIENTS = ("float32", "float64", "float16", "bfloat16")
"""Types in which a whole model may be stored."""


def stored(text: str | None) -> str | None:
    """Parse the type of parameters and gradients: ``bf16``, ``bfloat16`` or None."""
    name = full_name(text)
    if name is not None and name not in GRADIENTS:
        raise ValueError(f"unknown gradient type {name!r}; write {one_of(GRADIENTS, name)}")
    return name


COMPUTE_EFFICIENCY = 0.5
"""Share of peak FLOP/s that matrix products reach, a round figure: published utilisations of whole models
lie at 0.21 to 0.52 (PaLM, arXiv:2204.02311, table 3; Megatron-LM, arXiv:2104.04473, table 1)."""

MEMORY_EFFICIENCY = 0.75
"""Share of data-sheet memory bandwidth that memory-bound kernels reach in training.

SimuMax's system files have 0.75 of A100's (0.91 of 1,600 of 1,935 GB/s) and 0.67 of B200's
(github.com/MooreThreads/SimuMax)."""


@dataclass(frozen=True, slots=True)
class Roofline:
    """One GPU's rates in one precision: FLOP/s of products, bytes/s of reading and writing.

    ``itemsize`` are the bytes of an element in this ``precision``.
    """

    flops_per_s: float
    bytes_per_s: float
    itemsize: int
    precision: str = ""

    def seconds(self, flops: float = 0.0, elements: float = 0.0) -> float:
        """Return the time of ``flops`` on ``elements`` read or written: the slower of the two."""
        return max(flops / self.flops_per_s, elements * self.itemsize / self.bytes_per_s)


STATIC = 0.23
"""Share of a GPU's power that products do not use.

Under a cap they are as fast as the rest allows: H100 of 500 W reach 0.63 of the rates of 700 W, which seven
steps of pytorch/torchtitan (benchmarks/llama3_h100_202412_torchtitan.md) set."""

LEAST_SHARE = 1e-6
"""Share of a peak that every training exceeds."""


def check_share(what: str, share: float) -> None:
    """Raise ValueError for an invalid share of a peak."""
    if not LEAST_SHARE <= share <= 1:
        raise ValueError(f"{what} efficiency of {share}; write a share from {LEAST_SHARE:g} to 1")


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU: FLOP/s by precision, bandwidth (bytes/s) and size (bytes) of its memory, its multiprocessors.

    The size is the driver's; `ringside.sim.training.memory.room` keeps some of it free. ``power`` is the data
    sheet's in W, ``power_cap`` a lower limit. ``capability`` is CUDA's compute capability, 90 for sm_90, None
    of other makers' GPUs.
    """

    name: str
    flops_per_s: Mapping[str, float]
    memory_bandwidth: float
    memory: int
    multiprocessors: int
    power: float | None = None
    power_cap: float | None = None
    capability: int | None = None

    def capped(self, power_cap: float) -> "Device":
        """Return the GPU limited to ``power_cap`` W."""
        if self.power is None:
            raise ValueError(f"the power of {self.name} is unknown; leave `power_cap` out")
        if not self.power * STATIC < power_cap <= self.power:
            least = ceil(self.power * STATIC) + 1
            raise ValueError(
                f"`power_cap` {power_cap:g} of {self.name}, whose data sheet has {self.power:g} W; "
                f"write {least} to {self.power:g}"
            )
        return replace(self, power_cap=power_cap)

    @property
    def speed(self) -> float:
        """The share of their rates that products and attention reach under the power cap."""
        if self.power is None or self.power_cap is None:
            return 1.0
        return (self.power_cap / self.power - STATIC) / (1 - STATIC)

    @property
    def streaming(self) -> float:
        """The bytes/s of kernels that only read and write."""
        return self.memory_bandwidth * MEMORY_EFFICIENCY

    def peak(self, precision: str) -> float:
        """Return the FLOP/s in ``precision``."""
        if precision == "mxfp8" and "fp8" in self.flops_per_s:
            return self.flops_per_s["fp8"]
        if precision not in self.flops_per_s:
            raise ValueError(
                f"{self.name} has no peak for {precision!r}; write {one_of(self.flops_per_s, precision)}"
            )
        return self.flops_per_s[precision]

    @property
    def mixed(self) -> str:
        """The type in which torch.autocast computes on it."""
        return next(name for name in ("bfloat16", "float16", "float32") if name in self.flops_per_s)

    def roofline(self, precision: str | None, efficiency: float = COMPUTE_EFFICIENCY) -> Roofline:
        """Return the rates in a precision, by default that of torch.autocast, at a share of its peak."""
        precision = self.mixed if precision is None else SHORT.get(precision, precision)
        check_share("a compute", efficiency)
        return Roofline(
            self.peak(precision) * efficiency, self.streaming, ITEMSIZE[STORED[precision]], precision
        )


def device(name: str) -> Device:
    """Return the GPU of that name; raise ValueError if its peak rates are not known."""
    gpu = find_gpu(name)
    if gpu is None or not gpu.tflops:
        raise ValueError(f"unknown GPU {name!r}; write {one_of(DEVICES, name)}")
    return _device(gpu)


def device_of(cluster: str, values: Mapping[str, str] | None = None) -> Device:
    """Return the GPU of a cluster's machines; plain networks, which have none, get A100."""
    gpu = gpu_of(cluster, values)
    if gpu is None or not gpu.tflops:
        raise ValueError(f"the peak rates of {cluster}'s GPUs are unknown; add --device, for example h100")
    return _device(gpu)


def _device(gpu: Gpu) -> Device:
    return Device(
        gpu.name,
        {full_name(short) or short: rate * 1e12 for short, rate in gpu.tflops.items()},
        gpu.memory_bandwidth,
        gpu.memory,
        gpu.multiprocessors,
        gpu.power,
        gpu.power_cap,
        gpu.compute_capability if gpu.maker == "nvidia" else None,
    )


DEVICES = Lazy(lambda: [name for name, gpu in GPUS.items() if gpu.tflops], device)
"""The GPUs whose peak rates are known, by name."""
