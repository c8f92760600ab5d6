"""Whether a training fits into a GPU.

Not all memory is available. The CUDA context is allocated first, NCCL allocates buffers for each
communicator, the allocator loses bytes between its blocks, and a training allocates more than is counted
here, such as workspaces. The reserve covers all of these; an allocation that uses part of it may fail.
"""

from dataclasses import dataclass
from typing import NamedTuple

from ringside.sim.workload.devices import MIB, Device

FITS, TIGHT, TOO_LARGE = "fits", "tight", "does not fit"
"""The possible verdicts."""

CONTEXT = 300 * MIB
"""Bytes that a process uses before its first allocation (pytorch/pytorch#107667)."""

ONE_COMMUNICATOR = 1_600_000_000
"""Bytes of a GPU with one of NCCL's communicators after an all-reduce (NVIDIA/nccl#864)."""

SOME_COMMUNICATORS = CONTEXT + 3 * 688 * MIB
"""A context, and three communicators on A100 (NVIDIA/nccl#964)."""

ALL_CHANNELS = 4_340_000_000
"""Bytes of one of eight H100 after its first all-to-all, torch's tensors not counted (NVIDIA/nccl#1685)."""

BESIDE = {
    **dict.fromkeys(("a100", "a100-40gb"), SOME_COMMUNICATORS),
    **dict.fromkeys(("h100", "h100-96gb", "h200", "b200", "mi300x"), ALL_CHANNELS),
}
"""Bytes of context and NCCL by GPU; others have `ONE_COMMUNICATOR`."""

SLACK = 0.075
"""The allocator's overhead over allocated bytes, at most: 0.7 to 7.5 %, 2.9 in the median, of 48 ranks of
six trainings on 8 B200 (max_memory_reserved over max_memory_allocated; MooreThreads/SimuMax)."""

UNCOUNTED = 0.12
"""Allocated bytes over those counted here, at most: 2.9 % in the median of the four dense ones of these
trainings, 12 % in the worst."""


@dataclass(frozen=True, slots=True)
class Room:
    """The memory of a GPU: ``memory`` bytes, less the ``reserve`` that is kept free."""

    memory: int
    reserve: int

    @property
    def usable(self) -> int:
        """Bytes up to which an allocation certainly fits."""
        return self.memory - self.reserve

    def margin(self, nbytes: int) -> int:
        """Return the bytes left beside an allocation and the reserve, negative if there are too few."""
        return self.usable - nbytes

    def verdict(self, nbytes: int) -> str:
        """Return `FITS`, `TIGHT` if the reserve is needed, or `TOO_LARGE` if even that is too little."""
        if nbytes <= self.usable:
            return FITS
        return TIGHT if nbytes <= self.memory - min(CONTEXT, self.reserve) else TOO_LARGE


class MemoryFit(NamedTuple):
    """How ``nbytes`` of a training fit into a GPU of ``memory`` bytes, less a free ``reserve``.

    ``margin`` are the bytes left, negative if there are too few.
    """

    nbytes: int
    memory: int
    reserve: int
    margin: int
    verdict: str


def fit_of(nbytes: int, gpu: Device, reserve: int | None = None) -> MemoryFit:
    """Return the fit of a number of bytes into a GPU; ``reserve`` is `room_of`'s."""
    room = room_of(gpu, reserve)
    return MemoryFit(nbytes, room.memory, room.reserve, room.margin(nbytes), room.verdict(nbytes))


def room_of(gpu: Device, reserve: int | None = None) -> Room:
    """Return the room of a GPU; by default ``reserve`` covers the driver, NCCL and the allocator."""
    if reserve is None:
        allocated = gpu.memory - BESIDE.get(gpu.name, ONE_COMMUNICATOR)
        reserve = gpu.memory - int(allocated / ((1 + SLACK) * (1 + UNCOUNTED)))
    if not 0 <= reserve < gpu.memory:
        raise ValueError(f"a reserve of {reserve} bytes on a GPU of {gpu.memory} bytes; write fewer")
    return Room(gpu.memory, reserve)
