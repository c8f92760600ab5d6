"""What a schedule is made of: transfers in steps, and the chunks that they carry.

`sim.schedule` says what it means; this is apart from it so that the proof can read what it proves.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sim.collective import Collective

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

Links = dict[int, dict[tuple[int, int], bool]]
"""By channel, the pairs that talk, and whether the receiver adds what it gets first."""

CREDITS = 8
"""Chunks on their way on one connection: the slots of NCCL's buffers (NCCL_STEPS, src/include/device.h)."""


class ScheduleError(ValueError):
    """A schedule that does not do what its collective promises; the message says which transfer is wrong."""


class Transfer(NamedTuple):
    """Some neighbouring chunks on their way from one rank to another."""

    src: int
    dst: int
    chunks: range
    channel: int
    reduce: bool


@dataclass(frozen=True, slots=True)
class Step:
    """Transfers that do not wait for each other, as arrays of one length.

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
        """The step without the other transfers."""
        src, dst, chunk, span, channel = (
            column[some] for column in (self.src, self.dst, self.chunk, self.span, self.channel)
        )
        return Step(src, dst, chunk, span, channel, self.reduce[some])

    def transfers(self) -> Iterator[Transfer]:
        """Its transfers one by one."""
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
    """A step whose arguments are broadcast against each other."""
    *ints, reduces = np.broadcast_arrays(src, dst, chunk, span, channel, reduce)
    source, target, first, spans, channels = (np.atleast_1d(a).astype(np.int64) for a in ints)
    return Step(source, target, first, spans, channels, np.atleast_1d(reduces).astype(np.bool_))


class Chunks:
    """How the data are cut: chunk c is bytes ``bounds[c]`` to ``bounds[c + 1]``, in block ``block[c]``."""

    def __init__(self, bounds: Ints, block: Ints) -> None:
        def cut() -> tuple[Ints, Ints]:
            return bounds, block

        self._count = len(block)
        self._cut: Callable[[], tuple[Ints, Ints]] = cut

    @classmethod
    def later(cls, count: int, cut: Callable[[], tuple[Ints, Ints]]) -> "Chunks":
        """So many chunks, whose bounds and blocks are made when one of them is first looked at.

        A closed form over a billion chunks only counts them, and needs no room for them.
        """
        chunks = cls.__new__(cls)
        chunks._count = count
        chunks._cut = cut
        return chunks

    def __len__(self) -> int:
        return self._count

    @property
    def bounds(self) -> Ints:
        """Where each chunk begins, and where the last one ends."""
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
    """Every block cut into ``per_block`` equal chunks; where that is uneven they differ by one element."""
    blocks = collective.num_blocks

    def cut() -> tuple[Ints, Ints]:
        return _bounds(collective, blocks * per_block), np.repeat(np.arange(blocks), per_block)

    return Chunks.later(blocks * per_block, cut)


def sized_chunks(collective: Collective, nbytes: int) -> Chunks:
    """The only block cut into chunks of ``nbytes``, the last one with what is left."""
    size = max(nbytes // collective.itemsize, 1) * collective.itemsize
    count = max(-(-collective.space // size), 1)

    def cut() -> tuple[Ints, Ints]:
        return np.append(np.arange(count) * size, collective.space), np.zeros(count, dtype=np.int64)

    return Chunks.later(count, cut)


def _bounds(collective: Collective, parts: int) -> Ints:
    each, rest = divmod(collective.space // collective.itemsize, parts)
    index = np.arange(parts + 1)
    # index * elements // parts, of which the product would pass 2**63 for a pebibyte in a million parts
    bounds: Ints = (index * each + index * rest // parts) * collective.itemsize
    bounds[-1] = collective.space
    return bounds


@dataclass(frozen=True)
class Plan:
    """One way to carry out one collective.

    ``steps()`` makes the steps anew, one after another, each time it is called: a schedule of a
    billion transfers takes no more memory than its widest step. ``after`` names pairs of ranks, source
    and destination, that send nothing to each other before all of another pair's transfers have
    arrived, as where a library announces receives behind its own data.

    ``switches`` are ends of transfers beside the ranks, numbered after them: places in switches that add
    what ranks send there, or pass it on to many, as NVLink SHARP and SHARP do. Each is named by the
    ranks that its switch joins. It begins with nothing, need not have anything in the end, sends to
    ranks only, and takes no time to add.
    """

    collective: Collective
    algorithm: str
    chunks: Chunks
    steps: Callable[[], Iterator[Step]]
    credits: int = CREDITS
    after: Mapping[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    switches: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        if self.credits < 1:
            raise ValueError(f"{self.credits} credits let nothing through; write 1 or more")

    @property
    def ranks(self) -> int:
        """The number of ranks."""
        return self.collective.ranks

    @property
    def ends(self) -> int:
        """The number of ranks and switches."""
        return self.collective.ranks + len(self.switches)

    def end(self, number: int) -> str:
        """What to call a rank or a switch."""
        return f"switch {number - self.ranks}" if self.ranks <= number < self.ends else f"rank {number}"

    def nbytes(self, moved: Step) -> Ints:
        """The bytes of each transfer of a step."""
        bounds = self.chunks.bounds
        nbytes: Ints = bounds[moved.chunk + moved.span] - bounds[moved.chunk]
        return nbytes

    def longer_than(self, transfers: int) -> bool:
        """Whether it has more than so many transfers; looks no further than it must."""
        seen = 0
        for moved in self.steps():
            seen += len(moved)
            if seen > transfers:
                return True
        return False

    def connections(self) -> dict[tuple[int, int, int], int]:
        """How many transfers each connection (source, destination, channel) has, in order of first use."""
        counts: Counter[tuple[int, int, int]] = Counter()
        for moved in self.steps():
            counts.update(zip(moved.src.tolist(), moved.dst.tolist(), moved.channel.tolist(), strict=True))
        return counts

    def traffic(self) -> dict[tuple[int, int], int]:
        """Bytes that each ordered pair of ranks moves in all."""
        moved_bytes: Counter[tuple[int, int]] = Counter()
        for moved in self.steps():
            pairs = zip(moved.src.tolist(), moved.dst.tolist(), strict=True)
            for pair, nbytes in zip(pairs, self.nbytes(moved).tolist(), strict=True):
                moved_bytes[pair] += nbytes
        return moved_bytes

    def links(self) -> Links:
        """Who sends to whom on each channel, in order of first use."""
        links: Links = {}
        for moved in self.steps():
            columns = (moved.channel, moved.src, moved.dst, moved.reduce)
            for channel, src, dst, adds in zip(*(c.tolist() for c in columns), strict=True):
                links.setdefault(channel, {}).setdefault((src, dst), adds)
        return dict(sorted(links.items()))

    def error(self, text: str) -> ScheduleError:
        """What is wrong with it, under its name."""
        return ScheduleError(f"{self.algorithm} {self.collective.kind} on {self.ranks} ranks: {text}")
