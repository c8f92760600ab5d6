"""GPUs as a roofline sees them: peak rates and sizes, from their data sheets.

Rates are dense (without 2:4 sparsity) and those of the tensor cores where there are any for the
precision. ``tfloat32`` is what PyTorch uses for convolutions of float32 tensors on A100 and later,
and for matrix products after ``torch.set_float32_matmul_precision("high")``.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from topologies import MAKERS, load, make
from topologies.catalogue import split

GIB = 2**30

STORED = {"float32": "float32", "tfloat32": "float32", "bfloat16": "bfloat16", "float16": "float16"}
"""The type in which activations are kept, by the precision that one computes in."""


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU: FLOP/s by precision, and the bandwidth (bytes/s) and size (bytes) of its memory."""

    name: str
    flops_per_s: Mapping[str, float]
    memory_bandwidth: float
    memory: int

    def peak(self, precision: str) -> float:
        """FLOP/s in ``precision``."""
        if precision not in self.flops_per_s:
            allowed = ", ".join(self.flops_per_s)
            raise ValueError(f"{self.name} has no peak for {precision!r}; write one of {allowed}")
        return self.flops_per_s[precision]


_A100 = {"float32": 19.5e12, "tfloat32": 156e12, "bfloat16": 312e12, "float16": 312e12}

DEVICES = {
    device.name: device
    for device in (
        # NVIDIA V100 data sheet (January 2020), SXM2 column: 32 GB
        Device("v100", {"float32": 15.7e12, "float16": 125e12}, 900e9, 32 * GIB),
        # NVIDIA A100 data sheet (June 2021), A100 80GB SXM column
        Device("a100", _A100, 2039e9, 80 * GIB),
        # NVIDIA A100 data sheet (first edition, 2020), A100 40GB SXM column
        Device("a100-40gb", _A100, 1555e9, 40 * GIB),
        # NVIDIA Ampere GA102 white paper (2021), table of GeForce RTX 3090, tensor cores adding up in float32
        Device(
            "rtx3090",
            {"float32": 35.6e12, "tfloat32": 35.6e12, "bfloat16": 71e12, "float16": 71e12},
            936e9,
            24 * GIB,
        ),
        # NVIDIA H100 data sheet (2022), SXM column, whose tensor-core rates are with sparsity: here half
        Device(
            "h100",
            {"float32": 67e12, "tfloat32": 494.5e12, "bfloat16": 989.5e12, "float16": 989.5e12},
            3.35e12,
            80 * GIB,
        ),
    )
}
"""Every known GPU by name."""

_BY_CAPABILITY = {70: "v100", 80: "a100", 86: "rtx3090", 90: "h100"}
"""The usual GPU of a compute capability, where a topology tells no more."""


def device(name: str) -> Device:
    """The GPU of that name."""
    if name not in DEVICES:
        raise ValueError(f"{name!r} is no known GPU; write one of {', '.join(DEVICES)}")
    return DEVICES[name]


def device_of(cluster: str, values: Mapping[str, str] | None = None) -> str:
    """The GPU that a cluster's machines have; plain networks, which have none, are given A100."""
    name, _ = split(cluster)
    graph = make(name, 1) if name in MAKERS else load(cluster, values)
    facts = graph.graph
    capability = facts.get("compute_capability")
    found = facts.get("device") or (_BY_CAPABILITY.get(capability, "") if capability else "a100")
    if found not in DEVICES:
        raise ValueError(f"the peak rates of {name}'s GPUs are not known; add --device, for example h100")
    return str(found)
