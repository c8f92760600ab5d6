"""What kernels cost on one GPU.

Products and attention have measured rates where a grid is shipped, else tiles in waves and data sheets.
"""

from dataclasses import dataclass, replace
from typing import Protocol

from ringside.sim.compute.grids import GroupedRates, Rates, attention_rates, product_rates
from ringside.sim.compute.kernels import Flash, Gemm, Kernel, Scores, Streaming
from ringside.sim.compute.stacks import STACKS, Stack
from ringside.sim.compute.waves import CAST_NBYTES, NBYTES, full_wave_share, wave_rate
from ringside.sim.workload.devices import (
    COMPUTE_EFFICIENCY,
    NARROW,
    Device,
    Roofline,
    check_share,
    short_name,
)

LAUNCH_S = 10e-6
"""Seconds of a memory-bound kernel beyond its bytes; published figures are 3 us (aiconfigurator) to 40 us
for a group of kernels (SimuMax)."""

ACCUMULATED = 0.955
"""Rate of a gradient's product that adds to float32 results, over that of a plain one.

SimuMax's medians are 0.707 over 0.741 on A100 and 0.476 over 0.494 on B200."""

BACKWARD = 2.9
"""Seconds of flash attention's backward over forward's.

2.5 times the FLOPs (Dao, arXiv:2307.08691) at 0.86 of the rate; SimuMax measured 2.9 on A100, 3.0 on B200."""

FLASH_2 = 335 / 173
"""Rate of FlashAttention-2 on Hopper and Blackwell over that on A100.

It has A100's instructions, which do not fill newer tensor cores. 16 causal heads of 128 and 16,384 tokens run
at 335 TFLOP/s on H100 (Shah et al., arXiv:2407.08608, figure 5) and, as vLLM's copy of the same kernel, at
173 on A100 (aiconfigurator-core 0.12.0)."""

ASYNCHRONOUS = range(90, 120)
"""Compute capabilities of GPUs with instructions that FlashAttention-2 lacks: Hopper's, and data-centre
Blackwell's. Blackwell's workstation GPUs have A100's."""

FLOPS_PER_JOULE = 1.1e12
"""FLOPs of 16-bit products for each joule of a GPU's power, at most.

An H100 of 700 W reaches 780 TFLOP/s in its grid at 8192 x 8192 x 8192, and power is its limit: under a cap it
is slower (`ringside.sim.workload.devices.STATIC`). Blackwell is made in the same process, and the products of
its grids, up to 2,000 TFLOP/s, are too short to be throttled: the longest that SimuMax measured on a B200 of
1,000 W run at 1,020 to 1,130. Fewer bits take far less energy."""

ATTENTION = 0.5
"""Share of the peak of flash attention on GPUs without a measured grid."""

LARGE = 8192
"""Sides of the product whose share of the peak an efficiency is."""

BATCHED = 0.6
"""Share of the peak of batched products of scores, in attention that writes them."""


class GemmRates(Protocol):
    """Measured rates of products."""

    def flops_per_s(self, m: int, n: int, k: int) -> float:
        """Return the FLOP/s of a product of m x k by k x n elements."""
        ...


class FlashRates(Protocol):
    """Measured rates of causal flash attention, forward."""

    def flops_per_s(self, heads: int, sequence: int, head_dim: int) -> float:
        """Return the FLOP/s on the half square, of ``heads`` heads of all sequences together."""
        ...


@dataclass(frozen=True, slots=True)
class Waves:
    """Rates of products on a GPU without a grid; fields are parameters of `wave_rate`."""

    peak: float
    multiprocessors: int
    bandwidth: float
    itemsize: float

    def flops_per_s(self, m: int, n: int, k: int) -> float:
        """Return the FLOP/s of a product of m x k by k x n elements."""
        return wave_rate(
            m, n, k, peak=self.peak, multiprocessors=self.multiprocessors, bandwidth=self.bandwidth,
            itemsize=self.itemsize,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Powered:
    """Rates of products that are at most ``most``, as the GPU's power allows."""

    rates: GemmRates
    most: float

    def flops_per_s(self, m: int, n: int, k: int) -> float:
        """Return the FLOP/s of a product of m x k by k x n elements."""
        return min(self.rates.flops_per_s(m, n, k), self.most)


@dataclass(frozen=True, slots=True)
class Scaled:
    """Rates of attention ``factor`` times as high as ``rates``."""

    rates: FlashRates
    factor: float

    def flops_per_s(self, heads: int, sequence: int, head_dim: int) -> float:
        """Return the FLOP/s on the half square, of ``heads`` heads of all sequences together."""
        return self.factor * self.rates.flops_per_s(heads, sequence, head_dim)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """The rates of kernels on one GPU; without more it is the ``roofline``.

    ``products``, ``grouped`` (several in one launch) and ``flash`` are measured rates; FlashAttention-2 is no
    faster than ``flash_2``. ``attention`` and ``batched`` are flat rates (FLOP/s) of flash attention and of
    products with scores, by default those of other products, ``speed`` the share of all rates that is
    reached. ``backward`` is the time of flash attention's backward over forward's. A memory-bound kernel
    takes ``launch_s`` besides its bytes. Rates of products include a cast of the first factor that moves
    ``cast_nbytes`` for each element; the product itself has ``full_wave`` FLOP/s where it fills the GPU.
    """

    roofline: Roofline
    products: GemmRates | None = None
    grouped: GroupedRates | None = None
    flash: FlashRates | None = None
    flash_2: FlashRates | None = None
    attention: float | None = None
    batched: float | None = None
    backward: float = 2.0
    launch_s: float = 0.0
    speed: float = 1.0
    cast_nbytes: float = 0.0
    full_wave: float = 0.0

    def seconds(self, kernel: Kernel) -> float:
        """Return the seconds of a kernel."""
        if isinstance(kernel, Streaming):
            return kernel.nbytes / self.roofline.bytes_per_s + kernel.launches * self.launch_s
        streamed = kernel.elements * self.roofline.itemsize / self.roofline.bytes_per_s
        if isinstance(kernel, Gemm):
            computed = kernel.flops / (self.speed * self._gemm_rate(kernel))
            return max(computed * (1 if kernel.casts else self._uncast(kernel)), streamed)
        if isinstance(kernel, Scores):
            return max(kernel.flops / (self.speed * (self.batched or self.roofline.flops_per_s)), streamed)
        computed = kernel.flops / (self.speed * self._flash_rate(kernel))
        return max(computed, streamed) * (self.backward if kernel.backward else 1.0)

    def _uncast(self, kernel: Gemm) -> float:
        """Return the share of a product's time without the cast of its first factor, in full waves."""
        cast_s = self.cast_nbytes * kernel.products * kernel.m * kernel.k / self.roofline.bytes_per_s
        return 1 / (1 + cast_s * self.full_wave / kernel.flops)

    def _gemm_rate(self, kernel: Gemm) -> float:
        if self.products is None:
            return self.roofline.flops_per_s
        if self.grouped is not None and kernel.products > 1:
            rate = self.grouped.flops_per_s(kernel.products, kernel.m, kernel.n, kernel.k)
        else:
            rate = self.products.flops_per_s(kernel.m * kernel.products, kernel.n, kernel.k)
        return rate * ACCUMULATED if kernel.accumulates else rate

    def _flash_rate(self, kernel: Flash) -> float:
        # a whole square has fewer blocks that a mask cuts, like a causal one of twice the length
        sizes = kernel.heads, kernel.sequence * (1 if kernel.causal else 2), kernel.scored // 2
        rate = self.attention or self.roofline.flops_per_s
        if self.flash is not None:
            rate = self.flash.flops_per_s(*sizes)
        if self.flash_2 is not None and kernel.version == 2:
            rate = min(rate, self.flash_2.flops_per_s(*sizes))
        return rate


def prices_on(
    gpu: Device,
    precision: str | None,
    *,
    efficiency: float | None = None,
    attention_efficiency: float | None = None,
    rates: Rates | None = None,
) -> Prices:
    """Return the prices on a GPU of products in ``precision``, and of all else in 16 bits.

    With an ``efficiency`` a large product runs at that share of the peak, and all other products, and
    attention, keep their proportions to it. An ``attention_efficiency`` is attention's own share of the peak.
    One's own ``rates`` go before those of shipped grids.
    """
    flat = gpu.roofline(precision, COMPUTE_EFFICIENCY if efficiency is None else efficiency)
    wide, attention = gpu.peak("bfloat16" if flat.precision in NARROW else flat.precision), None
    if attention_efficiency is not None:
        check_share("an attention", attention_efficiency)
        attention = wide * attention_efficiency
    has_grid = attention is None and flat.itemsize == 2
    if rates is not None and rates.streaming is not None:
        flat = replace(flat, bytes_per_s=rates.streaming)
    name = short_name(flat.precision)
    if rates is not None:
        name = rates.name_of(name)
    grid = rates.products[name] if rates else product_rates(gpu.name, name)
    waves = Waves(
        gpu.peak(flat.precision), gpu.multiprocessors, flat.bytes_per_s,
        NBYTES.get(flat.precision, flat.itemsize),
    )  # fmt: skip
    products: GemmRates = grid or waves
    if rates is None and gpu.power and name in ("bf16", "fp16"):
        products = Powered(products, FLOPS_PER_JOULE * gpu.power)
    speed = gpu.speed if rates is None else 1.0
    flash = (rates and rates.attention) or attention_rates(gpu.name) if has_grid else None
    older = attention_rates("a100") if has_grid and gpu.capability in ASYNCHRONOUS else None
    # a power cap slows only what draws more power
    flash_2 = Scaled(older, FLASH_2 / speed) if older and not (rates and rates.attention) else None
    if efficiency is not None:
        speed = flat.flops_per_s / products.flops_per_s(LARGE, LARGE, LARGE)
    return Prices(
        roofline=flat,
        products=products,
        grouped=rates.grouped.get(name) if rates else None,
        flash=flash,
        flash_2=flash_2,
        attention=attention / speed if attention else ATTENTION * wide,
        batched=BATCHED * wide,
        backward=BACKWARD,
        launch_s=(rates and rates.launch_s) or LAUNCH_S,
        speed=speed,
        cast_nbytes=CAST_NBYTES if rates is None and waves.itemsize < 2 else 0.0,
        full_wave=waves.peak * full_wave_share(waves.peak, waves.multiprocessors),
    )


@dataclass(frozen=True, slots=True)
class StackOnGpu:
    """How a GPU computes a model: the stack that launches kernels, and what they cost.

    ``overhead`` is the time of training over that of its kernels.
    """

    prices: Prices
    stack: Stack = STACKS["eager"]
    overhead: float = 1.0

    @property
    def roofline(self) -> Roofline:
        """The GPU's flat rates, and the size of an element."""
        return self.prices.roofline

    @property
    def itemsize(self) -> int:
        """Bytes of an element of activations."""
        return self.roofline.itemsize

    def seconds(self, *kernels: Kernel) -> float:
        """Return the seconds of kernels, one after another."""
        return self.overhead * sum(map(self.prices.seconds, kernels))

    def streamed_s(self, columns: float, nbytes: float, launches: float = 1.0) -> float:
        """Return the seconds that move ``nbytes`` bytes, counted for 16 bits, for each of some elements."""
        return self.seconds(Streaming(columns * nbytes * self.itemsize / 2, launches)) if nbytes else 0.0
