"""Whether a training fits into a GPU, and with what chance.

A GPU holds the driver's own memory, the CUDA context, NCCL's buffers, and what the allocator reserves. That
is more than is allocated, and allocated bytes differ from the predicted ones: the logarithms of both ratios
are taken as normal. The chance that a training fits is that the sum is no more than the GPU's memory.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp, hypot, log
from statistics import NormalDist
from typing import NamedTuple

from ringside.sim.workload.devices import MIB, Device

FITS, TIGHT, TOO_LARGE = "fits", "tight", "does not fit"
"""The possible verdicts."""

LIKELY, UNLIKELY = 0.9, 0.1
"""The chance from which a training fits, and under which it does not: one answer in ten is wrong at the edge,
far fewer away from it."""

DRIVER = 0.01
"""Share of the memory of a GPU that no process gets: torch finds 79.25 GiB of an A100's 80 and 39.50 of 40
(levihsu/OOTDiffusion#235, TianheWu/CoSeR#10)."""

CONTEXT = 1_060_000_000 - 256 * MIB
"""Bytes of a process beside torch's: those in use on 8 H100 before their first all-to-all (NVIDIA/nccl#1685),
less the buffer that NCCL has by then (`ringside.sim.libraries.nccl.buffers`). Kernels are most of it: a
context with few takes 300 MiB (pytorch/pytorch#107667)."""

RESERVED, RESERVED_SPREAD = 0.0446, 0.018
"""Mean and standard deviation of ln(reserved / allocated), each the largest of all ranks, of six trainings on
8 B200: 2.8 to 6.9 % more; their 48 ranks 0.7 to 7.5 %, 2.9 in the median (MooreThreads/SimuMax)."""

ALLOCATED_SPREAD: Mapping[str, float] = dict.fromkeys(("te", "megatron"), 0.02)
"""Standard deviation of ln(allocated / predicted) by stack: one in ten of 244 runs of Megatron-LM's
functional tests is more than 1.7 % off, three are more than 5 % (`ringside scorecard memory`)."""

UNJUDGED_SPREAD = 0.05
"""The same of stacks without measured peaks: with it one in fifty of Aleph Alpha's layouts that ran out of
memory is said to fit (`ringside.validation.published.training.aleph_alpha`)."""


@dataclass(frozen=True, slots=True)
class Room:
    """The memory of a GPU; ``reserve`` bytes of it must stay free beside the predicted allocations.

    ``beside`` are the bytes of driver, context and NCCL, ``spread`` is the standard deviation of
    ln(reserved / predicted).
    """

    memory: int
    reserve: int
    beside: int = CONTEXT
    spread: float = hypot(RESERVED_SPREAD, UNJUDGED_SPREAD)

    @property
    def usable(self) -> int:
        """Bytes up to which an allocation fits."""
        return self.memory - self.reserve

    def margin(self, nbytes: int) -> int:
        """Return the bytes left beside an allocation and the reserve, negative if there are too few."""
        return self.usable - nbytes

    def chance(self, nbytes: int) -> float:
        """Return the chance that a training of ``nbytes`` predicted bytes fits."""
        left = self.memory - self.beside
        if nbytes <= 0 or left <= 0:
            return float(left > 0)
        return NormalDist(RESERVED, self.spread).cdf(log(left / nbytes))

    def verdict(self, nbytes: int) -> str:
        """Return `FITS`, `TIGHT` if the reserve is needed, or `TOO_LARGE` if even that hardly suffices."""
        if nbytes <= self.usable:
            return FITS
        return TIGHT if nbytes <= self.memory and self.chance(nbytes) >= UNLIKELY else TOO_LARGE


class MemoryFit(NamedTuple):
    """How ``nbytes`` of a training fit into a GPU of ``memory`` bytes, less a free ``reserve``.

    ``margin`` are the bytes left, negative if there are too few; ``chance`` is that of fitting. ``nccl`` are
    the bytes of NCCL's buffers by communicator.
    """

    nbytes: int
    memory: int
    reserve: int
    margin: int
    verdict: str
    chance: float
    nccl: Mapping[str, int]

    @property
    def beside(self) -> dict[str, int]:
        """Bytes beside what is allocated, by purpose; ``allocator`` is the usual part of what it reserves."""
        return {
            "driver": int(DRIVER * self.memory),
            "context": CONTEXT,
            "nccl": sum(self.nccl.values()),
            "allocator": int(self.nbytes * (exp(RESERVED) - 1)),
        }


def fit_of(
    nbytes: int, gpu: Device, reserve: int | None, nccl: Mapping[str, int], stack: str | None
) -> MemoryFit:
    """Return the fit of a number of bytes into a GPU, beside NCCL's buffers by communicator."""
    room = room_of(gpu, reserve, sum(nccl.values()), stack)
    margin, verdict, chance = room.margin(nbytes), room.verdict(nbytes), room.chance(nbytes)
    return MemoryFit(nbytes, room.memory, room.reserve, margin, verdict, chance, nccl)


def room_of(gpu: Device, reserve: int | None = None, nccl: int = 0, stack: str | None = None) -> Room:
    """Return the room of a GPU beside ``nccl`` bytes of NCCL's buffers, for a training of a ``stack``.

    By default the ``reserve`` lets fit what does so with a chance of `LIKELY`.
    """
    beside = int(DRIVER * gpu.memory) + CONTEXT + nccl
    spread = hypot(RESERVED_SPREAD, ALLOCATED_SPREAD.get(stack or "", UNJUDGED_SPREAD))
    if reserve is None:
        most = exp(NormalDist(RESERVED, spread).inv_cdf(LIKELY))
        reserve = gpu.memory - max(0, int((gpu.memory - beside) / most))
    elif not 0 <= reserve < gpu.memory:
        raise ValueError(f"a reserve of {reserve} bytes on a GPU of {gpu.memory} bytes; write fewer")
    return Room(gpu.memory, reserve, beside, spread)
