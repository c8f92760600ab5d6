"""Memory of one GPU: optimizers' states, the peak of a step, and whether a training fits.

Not all memory is available. The CUDA context is allocated first, NCCL allocates buffers for each
communicator, the allocator loses bytes between its blocks, and a training allocates more than is counted
here, such as workspaces. The reserve covers all of these; an allocation that uses part of it may fail.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ringside.sim.program import Operation
from ringside.sim.workload.devices import MIB, Device
from ringside.topologies.names import one_of


@dataclass(frozen=True, slots=True)
class Optimizer:
    """An optimizer by its memory: ``states`` numbers per parameter, of the parameter's dtype.

    ``again`` is the number of further passes of a fused step over the parameters' bytes, beyond reading
    gradients and reading and writing parameters and state.
    """

    name: str
    states: int
    again: int = 0

    def seconds(self, nbytes: int, memory_bandwidth: float) -> float:
        """Return the seconds of one fused step on ``nbytes`` bytes of parameters."""
        return nbytes * (1 + 2 * (1 + self.states) + self.again) / memory_bandwidth


OPTIMIZERS = {
    optimizer.name: optimizer
    for optimizer in (
        Optimizer("sgd", 0),
        Optimizer("momentum", 1),
        Optimizer("adam", 2),
        Optimizer("lamb", 2, again=6),
    )
}
"""torch.optim's SGD without and with momentum, Adam or AdamW, and apex's FusedLAMB: it reads gradients for
their norm first, writes updates, reads them and the parameters for two norms, and both again to step."""


def find_optimizer(name: str) -> Optimizer:
    """Return the optimizer of that name."""
    if name not in OPTIMIZERS:
        raise ValueError(f"unknown optimizer {name!r}; write {one_of(OPTIMIZERS, name)}")
    return OPTIMIZERS[name]


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


@dataclass(frozen=True, slots=True)
class Peak:
    """A rank's peak: bytes by pool and in total, its begin (s), and the operation that begins then.

    Without allocations it is the constant part.
    """

    by_pool: Mapping[str, int]
    nbytes: int
    moment_s: float
    operation: str


def peak(
    held: Mapping[str, int],
    operations: Sequence[Operation],
    begins: Sequence[float] | None = None,
    ends: Sequence[float] | None = None,
) -> Peak:
    """Return the peak of a rank that holds ``held`` bytes throughout and runs these operations.

    Without times operations run one after another, as listed: the peak of a step before it is simulated.
    """
    changes: Iterator[tuple[float, int, str, int, str]] = (
        (
            *((2.0 * place + (nbytes < 0), 0) if begins is None or ends is None
              else (begins[place], 2 * place) if nbytes > 0 else (ends[place], 2 * place + 1)),
            pool, nbytes, operation.name,
        )
        for place, operation in enumerate(operations)
        for pool, nbytes in operation.memory
    )  # fmt: skip
    now, total, most = dict(held), sum(held.values()), sum(held.values())
    peak_ = Peak(dict(held), total, 0.0, "")
    for moment, _, pool, nbytes, name in sorted(changes):
        now[pool] = now.get(pool, 0) + nbytes
        total += nbytes
        if total > most:
            most, peak_ = total, Peak(dict(now), total, moment, name)
    return peak_
