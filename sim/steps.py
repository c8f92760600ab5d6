"""Parts of a schedule: transfers in steps, and their chunks; see `ringside.sim.schedule`."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ringside.sim.collective import Collective

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

Links = dict[int, dict[tuple[int, int], bool]]
"""Communicating pairs by channel, and whether the receiver adds its first data."""

CREDITS = 8
"""Chunks under way on one connection: the slots of NCCL's buffers (NCCL_STEPS, src/include/device.h)."""


class ScheduleError(ValueError):
    """A schedule that breaks its collective's promise; the message names the transfer."""


class Transfer(NamedTuple):
    """Neighbouring chunks on their way from one rank to another."""

    src: int
    dst: int
    chunks: range
    channel: int
    reduce: bool


@dataclass(frozen=True, slots=True)
class Step:
    """Transfers that do not wait for each other, as arrays of equal length.

    Transfer i carries chunks ``chunk[i]`` to ``chunk[i] + span[i] - 1`` from rank ``src[i]`` to rank
    ``dst[i]`` on ``channel[i]``; the receiver adds them where ``reduce[i]``, else overwrites.
    """

    src: Ints
    dst: Ints
    chunk: Ints
    span: Ints
    channel: Ints
    reduce: Bools

    def __len__(self) -> int:
        return len(self.src)

    def only(self, some: Bools) -> "Step":
        """Return the step without the other transfers."""
        src, dst, chunk, span, channel = (
            column[some] for column in (self.src, self.dst, self.chunk, self.span, self.channel)
        )
        return Step(src, dst, chunk, span, channel, self.reduce[some])

    def transfers(self) -> Iterator[Transfer]:
        """Yield its transfers one by one."""
        columns = (self.src, self.dst, self.chunk, self.chunk + self.span, self.channel, self.reduce)
        for src, dst, first, stop, channel, reduce in zip(*(c.tolist() for c in columns), strict=True):
            yield Transfer(src, dst, range(first, stop), channel, reduce)


def step(
    src: ArrayLike,
    dst: ArrayLike,
    chunk: ArrayLike,
    *,
    reduce: ArrayLike,
    span: ArrayLike = 1,
    channel: ArrayLike = 0,
) -> Step:
    """Return a step whose arguments are broadcast against each other."""
    *ints, reduces = np.broadcast_arrays(src, dst, chunk, span, channel, reduce)
    source, target, first, spans, channels = (np.atleast_1d(a).astype(np.int64) for a in ints)
    return Step(source, target, first, spans, channels, np.atleast_1d(reduces).astype(np.bool_))


class Chunks:
    """The chunks of the data: chunk c is bytes ``bounds[c]`` to ``bounds[c + 1]``, in block ``block[c]``."""

    def __init__(self, bounds: Ints, block: Ints) -> None:
        def cut() -> tuple[Ints, Ints]:
            return bounds, block

        self._count = len(block)
        self._cut: Callable[[], tuple[Ints, Ints]] = cut

    @classmethod
    def later(cls, count: int, cut: Callable[[], tuple[Ints, Ints]]) -> "Chunks":
        """Return ``count`` chunks, whose bounds and blocks are made on first access.

        A closed form over a billion chunks only counts them, and needs no memory for them.
        """
        chunks = cls.__new__(cls)
        chunks._count = count
        chunks._cut = cut
        return chunks

    def __len__(self) -> int:
        return self._count

    @property
    def bounds(self) -> Ints:
        """The offset at which each chunk begins, and the end of the last one."""
        return self._arrays[0]

    @property
    def block(self) -> Ints:
        """The block of each chunk."""
        return self._arrays[1]

    @cached_property
    def _arrays(self) -> tuple[Ints, Ints]:
        return self._cut()

    @cached_property
    def of_block(self) -> dict[int, range]:
        """The chunks of each block, which are neighbours."""
        blocks, first, count = np.unique(self.block, return_index=True, return_counts=True)
        return {int(b): range(int(f), int(f + n)) for b, f, n in zip(blocks, first, count, strict=True)}


def even_chunks(collective: Collective, per_block: int = 1) -> Chunks:
    """Cut every block into ``per_block`` equal chunks; where that is uneven they differ by one element."""
    blocks = collective.num_blocks

    def cut() -> tuple[Ints, Ints]:
        bounds = (_bounds if collective.splits is None else _split)(collective, blocks * per_block)
        return bounds, np.repeat(np.arange(blocks), per_block)

    return Chunks.later(blocks * per_block, cut)


def sized_chunks(collective: Collective, nbytes: int) -> Chunks:
    """Cut the only block into chunks of ``nbytes``; the last one is the remainder."""
    size = max(nbytes // collective.itemsize, 1) * collective.itemsize
    count = max(-(-collective.space // size), 1)

    def cut() -> tuple[Ints, Ints]:
        return np.append(np.arange(count) * size, collective.space), np.zeros(count, dtype=np.int64)

    return Chunks.later(count, cut)


def _bounds(collective: Collective, parts: int) -> Ints:
    each, rest = divmod(collective.space // collective.itemsize, parts)
    index = np.arange(parts + 1)
    # index * elements // parts; the product would exceed 2**63 for a pebibyte in a million parts
    bounds: Ints = (index * each + index * rest // parts) * collective.itemsize
    bounds[-1] = collective.space
    return bounds


def _split(collective: Collective, parts: int) -> Ints:
    """Cut blocks of the sizes in the splits."""
    sizes = np.array(collective.splits, dtype=np.int64).ravel()
    per_block = parts // len(sizes)
    first = np.cumsum(sizes) - sizes
    inside = sizes[:, None] * np.arange(per_block) // per_block
    bounds: Ints = np.append((first[:, None] + inside).ravel(), sizes.sum()) * collective.itemsize
    return bounds
