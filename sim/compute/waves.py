"""Rates of products on GPUs without a measured grid: output tiles, in waves over the multiprocessors.

NVIDIA's "Matrix Multiplication Background User's Guide" (docs.nvidia.com, 2023) describes tile and wave
quantization: a library computes one tile of the output on each multiprocessor at a time, so the last wave
takes as long as a full one. Products that need many bytes for their FLOPs are as slow as memory.

The shares of the peak are fitted to the shipped grids: ``python -m ringside.validation.published.waves``
prints them, beside the errors on each GPU with the shares that the other GPUs imply.
"""

from math import ceil

TILE = 128
"""Rows and columns of an output tile; with tiles of 128 x 256 the errors are the same within a point."""

SLOW_SHARE = 0.89
"""Share of the peak that a full wave reaches where multiprocessors are slow."""

LIMIT = 72e12
"""FLOP/s that add to a multiprocessor's: one of peak p takes as long as at ``SLOW_SHARE`` p and at this.

The faster its tensor cores, the more it waits for its operands, and the more often power is the limit."""

BLOCK_SHARE = 0.68
"""Share of the peak of a full wave in ``fp8_block``, where each block of 128 has a scale."""

CAST_NBYTES = 5
"""Bytes that casting moves per 16-bit activation: a read for its scale, a read, and a byte written.

The measured grids include it: 8192 x 128 x 7168 takes 180 us in FP8 on H100, and 44 in bfloat16."""

NBYTES = {"bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "fp8_block": 1.0, "mxfp8": 1.0, "nvfp4": 0.5}
"""Bytes of a factor's element by precision, without scales."""


def full_wave_share(peak: float, multiprocessors: int) -> float:
    """Return the share of its peak (FLOP/s) that a GPU reaches while all multiprocessors compute."""
    return 1 / (1 / SLOW_SHARE + peak / multiprocessors / LIMIT)


def wave_rate(
    m: int, n: int, k: int,
    *, peak: float, multiprocessors: int, bandwidth: float, itemsize: float, share: float | None = None,
) -> float:  # fmt: skip
    """Return the FLOP/s of a product of m x k by k x n elements, written in 16 bits.

    ``peak`` are FLOP/s in the precision of the factors, of ``itemsize`` bytes an element, which are cast
    first if they have fewer than 16 bits. ``bandwidth`` are the bytes/s that kernels reach. A full wave
    reaches a ``share`` of the peak, by default that of `full_wave_share`.
    """
    waves = ceil(ceil(m / TILE) * ceil(n / TILE) / multiprocessors)
    full = peak * (share or full_wave_share(peak, multiprocessors))
    computed = waves * multiprocessors * 2.0 * TILE * TILE * k / full
    streamed = (itemsize * (m * k + n * k) + 2.0 * m * n) / bandwidth
    cast = CAST_NBYTES * m * k / bandwidth if itemsize < 2 else 0.0
    return 2.0 * m * n * k / (max(computed, streamed) + cast)
