"""GPUs as a roofline sees them: peak rates and sizes, from their data sheets.

Rates are dense (without 2:4 sparsity) and those of the tensor cores where there are any for the
precision. ``tfloat32`` is what PyTorch uses unasked for convolutions of float32 tensors on A100 and later
(``torch.backends.cudnn.allow_tf32``), and for matrix products after
``torch.set_float32_matmul_precision("high")``.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from ringside.sim.collective import ITEMSIZE
from ringside.topologies import MAKERS, load, make
from ringside.topologies.catalogue import split
from ringside.topologies.words import one_of

GIB, MIB = 2**30, 2**20

STORED = {"float32": "float32", "tfloat32": "float32", "bfloat16": "bfloat16", "float16": "float16"}
"""The type in which activations are kept, by the precision that one computes in."""

SHORT = {"fp32": "float32", "tf32": "tfloat32", "bf16": "bfloat16", "fp16": "float16", "half": "float16"}
"""Other words for precisions and types."""


def full_name(text: str | None) -> str | None:
    """The precision or type that ``bf16``, ``bfloat16`` or nothing names."""
    return None if text is None else SHORT.get(text, text)


GRADIENTS = ("float32", "float64", "float16", "bfloat16")
"""The types that a model is stored in as a whole."""


def stored(text: str | None) -> str | None:
    """The type of parameters and gradients that ``bf16``, ``bfloat16`` or nothing names."""
    name = full_name(text)
    if name is not None and name not in GRADIENTS:
        raise ValueError(f"{name!r} is no type of gradients; write {one_of(GRADIENTS, name)}")
    return name


COMPUTE_EFFICIENCY = 0.5
"""Share of peak FLOP/s that matrix products reach, a round figure: published utilisations of whole models
lie at 0.21 to 0.52 (PaLM, arXiv:2204.02311, table 3; Megatron-LM, arXiv:2104.04473, table 1)."""

MEMORY_EFFICIENCY = 0.8
"""Share of data-sheet memory bandwidth that streaming kernels reach, a round figure."""


@dataclass(frozen=True, slots=True)
class Roofline:
    """What one GPU reaches in one precision: FLOP/s of products, bytes/s of reading and writing.

    ``itemsize`` are the bytes of an element as the precision keeps it.
    """

    flops_per_s: float
    bytes_per_s: float
    itemsize: int

    def seconds(self, flops: float = 0.0, elements: float = 0.0) -> float:
        """Time of so many FLOPs on so many elements, read or written: the slower of the two."""
        return max(flops / self.flops_per_s, elements * self.itemsize / self.bytes_per_s)


LEAST_SHARE = 1e-6
"""Of a peak: nothing that trains reaches less."""


def check_share(what: str, share: float, most: float = 1.0) -> None:
    """Refuse what is no share of a peak."""
    if not LEAST_SHARE <= share <= most:
        raise ValueError(f"{what} of {share}; write a share from {LEAST_SHARE:g} to {most:g}")


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU: FLOP/s by precision, bandwidth (bytes/s) and size (bytes) of its memory, its multiprocessors.

    The size is what its driver offers; of that `ringside.sim.training.room` leaves something free. The
    efficiencies are the shares of both that training usually reaches; ``wide_efficiency`` is that of the wide
    products of decoders, where it is known. Products in 8 bits reach ``narrower`` times the peaks of others,
    a share of which may so be above 1.
    """

    name: str
    flops_per_s: Mapping[str, float]
    memory_bandwidth: float
    memory: int
    multiprocessors: int
    compute_efficiency: float = COMPUTE_EFFICIENCY
    memory_efficiency: float = MEMORY_EFFICIENCY
    wide_efficiency: float | None = None
    narrower: float = 1.0

    def peak(self, precision: str) -> float:
        """FLOP/s in ``precision``."""
        if precision not in self.flops_per_s:
            raise ValueError(
                f"{self.name} has no peak for {precision!r}; write {one_of(self.flops_per_s, precision)}"
            )
        return self.flops_per_s[precision]

    def check_efficiency(self, what: str, share: float) -> None:
        """Refuse what is no share of its peak that ``what`` could reach."""
        check_share(f"{what} efficiency", share, self.narrower)

    @property
    def mixed(self) -> str:
        """What torch.autocast is told to compute in on it."""
        return next(name for name in ("bfloat16", "float16", "float32") if name in self.flops_per_s)

    def roofline(
        self,
        precision: str,
        compute_efficiency: float | None = None,
        memory_efficiency: float | None = None,
    ) -> Roofline:
        """What it reaches in ``precision`` with these shares of its peaks, or the usual ones."""
        computes = self.compute_efficiency if compute_efficiency is None else compute_efficiency
        streams = self.memory_efficiency if memory_efficiency is None else memory_efficiency
        self.check_efficiency("a compute", computes)
        check_share("a memory efficiency", streams)
        return Roofline(
            self.peak(precision) * computes, self.memory_bandwidth * streams, ITEMSIZE[STORED[precision]]
        )

    @property
    def streaming(self) -> float:
        """Bytes/s that kernels reach which do nothing but read and write."""
        return self.memory_bandwidth * self.memory_efficiency


def _rates(**tera: float) -> dict[str, float]:
    return {SHORT[short]: rate * 1e12 for short, rate in tera.items()}


_A100 = _rates(fp32=19.5, tf32=156, bf16=312, fp16=312)
_HOPPER = _rates(fp32=67, tf32=494.5, bf16=989.5, fp16=989.5)

_AMPERE_WIDE, _HOPPER_WIDE = 0.65, 0.52
"""The median of what llm-foundry's steps on one machine imply for models of a billion parameters and more
(validation/published/training/llm_foundry.py; tests/validation/published/test_published_training.py asks it
again)."""

# what H100 reached of its peaks in training with mixed precision: 2,616 to 2,791 images/s of ResNet-50, which
# waits for memory, and 301 to 311 sequences/s of BERT-large, which computes, where the usual shares would
# have made 4,416 and 467 (NVIDIA, Deep Learning Training Performance, tables of one H100)
_HOPPER_COMPUTES, _HOPPER_STREAMS = 0.33, 0.49
_HOPPER_SHARES = _HOPPER_COMPUTES, _HOPPER_STREAMS, _HOPPER_WIDE, 2.0

# memory is what nvidia-smi prints, in MiB: of A100, A10, H100, L40S and T4 as modal-labs/modal-client#2797
# lists it, of the others as logs show it (P40 with ECC; TITAN RTX by
# lambdal/lambda-tensorflow-benchmark#11, H100 of 96 GB in proportion to 80); of MI300X what rocm-smi prints
DEVICES = {
    device.name: device
    for device in (
        # NVIDIA Tesla P40 data sheet (2017); its float16 is slower than its float32
        Device("p40", _rates(fp32=12), 346e9, 22919 * MIB, 30),
        # NVIDIA Tesla P100 data sheet (2016), SXM2 column
        Device("p100", _rates(fp32=10.6, fp16=21.2), 732e9, 16384 * MIB, 56),
        # NVIDIA V100 data sheet (January 2020), SXM2 column: 32 GB
        Device("v100", _rates(fp32=15.7, fp16=125), 900e9, 32510 * MIB, 80),
        # NVIDIA T4 data sheet (2019)
        Device("t4", _rates(fp32=8.1, fp16=65), 320e9, 15360 * MIB, 40),
        # NVIDIA TITAN RTX data sheet (2018), float16 adding up in float16
        Device("titan-rtx", _rates(fp32=16.3, fp16=130), 672e9, 24219 * MIB, 72),
        # NVIDIA A100 data sheet (June 2021), A100 80GB SXM column
        Device("a100", _A100, 2039e9, 81920 * MIB, 108, wide_efficiency=_AMPERE_WIDE),
        # NVIDIA A100 data sheet (first edition, 2020), A100 40GB SXM column
        Device("a100-40gb", _A100, 1555e9, 40960 * MIB, 108, wide_efficiency=_AMPERE_WIDE),
        # NVIDIA A10 data sheet (2021)
        Device("a10", _rates(fp32=31.2, tf32=62.5, bf16=125, fp16=125), 600e9, 23028 * MIB, 72),
        # NVIDIA Ampere GA102 white paper (2021), table of GeForce RTX 3090, tensor cores adding up in float32
        Device("rtx3090", _rates(fp32=35.6, tf32=35.6, bf16=71, fp16=71), 936e9, 24576 * MIB, 82),
        # NVIDIA Ada GPU architecture white paper (2022), table of GeForce RTX 4090, adding up in float32
        Device("rtx4090", _rates(fp32=82.6, tf32=82.6, bf16=165.2, fp16=165.2), 1008e9, 24564 * MIB, 128),
        # NVIDIA L40S data sheet (2023), tensor-core rates without sparsity
        Device("l40s", _rates(fp32=91.6, tf32=183, bf16=362, fp16=362), 864e9, 46068 * MIB, 142),
        # NVIDIA H100 data sheet (2022), SXM column, whose tensor-core rates are with sparsity: here half
        Device("h100", _HOPPER, 3.35e12, 81559 * MIB, 132, *_HOPPER_SHARES),
        # pytorch/torchtitan, benchmarks/llama3_h100_202412_torchtitan.md: H100 of 96 GB HBM2e, 2.4 TB/s
        Device(
            "h100-96gb", _HOPPER, 2.4e12, 97871 * MIB, 132, _HOPPER_COMPUTES, _HOPPER_STREAMS, _HOPPER_WIDE
        ),
        # NVIDIA H200 data sheet (2023), SXM column: an H100 with another memory
        Device("h200", _HOPPER, 4.8e12, 143771 * MIB, 132, *_HOPPER_SHARES),
        # NVIDIA DGX B200 data sheet (2024), an eighth of it, tensor-core rates without sparsity
        Device("b200", _rates(fp32=75, tf32=1125, bf16=2250, fp16=2250), 8e12, 183359 * MIB, 148),
        # AMD Instinct MI300X data sheet (2023), matrix rates without sparsity
        Device("mi300x", _rates(fp32=163.4, tf32=653.7, bf16=1307.4, fp16=1307.4), 5.3e12, 206141652992, 304),
    )
}
"""Every known GPU by name."""

_BY_CAPABILITY = {60: "p100", 61: "p40", 70: "v100", 75: "t4", 80: "a100", 86: "rtx3090", 89: "rtx4090",
                  90: "h100", 94: "mi300x", 100: "b200"}  # fmt: skip
"""The usual GPU of a compute capability, where a topology tells no more."""


def device(name: str) -> Device:
    """The GPU of that name."""
    if name not in DEVICES:
        raise ValueError(f"{name!r} is no known GPU; write {one_of(DEVICES, name)}")
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
