"""The proof that a schedule does what its collective promises.

A chunk is right if each of its transfers, step after step, brings what it should, every rank ends with what
it must hold, and no legal order of transfers gives any other result.

Counting contributions settles both for algorithms that sum every part once and then distribute the sums, as
all here do. Chunks that counting leaves in doubt are carried out with sets of contributions (`_execute`) and
searched for races (`ringside.sim.races`).
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from ringside.sim.collective import KINDS
from ringside.sim.plan import Plan
from ringside.sim.races import refuse_deadlock, refuse_races
from ringside.sim.steps import Bools, Ints, Step

PARTS_COUNTED = 1 << 24
"""Parts, pairs of a rank and a chunk, that are counted together: about 200 MB."""

PARTS_EXECUTED = 1 << 12
"""Parts whose sets of contributions are tracked together."""


def prove(schedule: Plan) -> None:
    """Prove that every rank ends with what the collective promises, in any order of transfers.

    Raise `ScheduleError` that names the rank, the chunk and the contribution where a transfer sends what its
    source does not hold, adds a contribution twice, brings nothing new or destroys something, or where a rank
    lacks a contribution at the end. For a race it names both transfers, for a deadlock the pairs of ranks.
    """
    _check_blocks(schedule)
    together = max(PARTS_COUNTED // schedule.ends, 1)
    chunks = range(len(schedule.chunks))
    doubtful = [
        chunk
        for first in chunks[::together]
        for chunk in _doubtful(schedule, chunks[first : first + together])
    ]
    together = max(PARTS_EXECUTED // schedule.ends, 1)
    for first in range(0, len(doubtful), together):
        some = doubtful[first : first + together]
        _execute(schedule, some)
        refuse_races(schedule, some)
    refuse_deadlock(schedule)


def _doubtful(schedule: Plan, chunks: range) -> list[int]:
    """Return the chunks that counting cannot prove."""
    parts = _Parts(schedule, chunks)
    for number, moved in enumerate(schedule.steps()):
        if not chunks.start:  # once is enough
            _check_inside(schedule, number, moved)
        parts.take(moved)
    parts.finish()
    return (chunks.start + np.flatnonzero(parts.doubtful)).tolist()


class _Parts:
    """Each rank's part of some chunks, and the number of contributions it holds.

    A part is *alive* until it is sent to be added to another. While live parts are only added to live parts
    no contribution is in two of them, so the numbers add up, and a part with the full number has everything
    and is the last one alive. A transfer is then right if it adds a live part to a live part, or brings
    everything to a part that has less.

    It is right in any order, too. A live part that lacks something was never sent, so no transfer reads it
    too late when something is added. A part that is overwritten with everything had the rank's own
    contribution, which left the rank in one transfer only, the one that ended the part's life: the overwrite
    comes after that transfer, which came after all additions.

    A switch's part begins alive with a count of 0. Nothing may leave it until it has received something, so
    it too is overwritten either first, and dead from then on, or after its own sum has left.
    """

    def __init__(self, schedule: Plan, chunks: range) -> None:
        self.doubtful: Bools = np.zeros(len(chunks), dtype=np.bool_)
        self._schedule = schedule
        self._chunks = chunks
        self._block = schedule.chunks.block[chunks.start : chunks.stop]
        alive = np.ones((schedule.ends, len(chunks)), dtype=np.bool_)
        for rank in range(schedule.ranks):
            alive[rank] = self._in(schedule.collective.blocks_before(rank))
        self._alive = alive.ravel()
        self._count = self._alive.astype(np.int32)
        self._count[schedule.ranks * len(chunks) :] = 0
        # a sum of all ranks, or what its only owner has
        self._everything = schedule.ranks if KINDS[schedule.collective.kind].reduces else 1
        # the last transfer of a step to change a part; not reset between steps
        self._last: NDArray[np.int32] = np.empty(alive.size, dtype=np.int32)

    def take(self, moved: Step) -> None:
        """Carry out one step for chunks that counting can still prove."""
        src, dst, reduce = self._ends(moved)
        last, alive, count = self._last, self._alive, self._count
        last[dst] = -1
        last[src] = np.arange(len(src))
        good = last[dst] < 0  # else the part is sent in the step that changes it
        sums, copies = np.flatnonzero(reduce), np.flatnonzero(~reduce)
        good[sums] &= alive[src[sums]] & alive[dst[sums]] & (last[src[sums]] == sums)
        if self._schedule.switches:
            good[sums] &= count[src[sums]] > 0
        last[dst[copies]] = copies
        good[copies] &= count[src[copies]] == self._everything
        good[copies] &= (count[dst[copies]] < self._everything) & (last[dst[copies]] == copies)
        if self._schedule.switches:
            # an empty part of a switch is alive: it may be added to or overwritten, but not both
            good[np.isin(dst, np.intersect1d(dst[sums], dst[copies]))] = False
        self.doubtful[dst[~good] % len(self._chunks)] = True
        sums, copies = sums[good[sums]], copies[good[copies]]
        np.add.at(count, dst[sums], count[src[sums]])
        alive[src[sums]] = False
        count[dst[copies]] = self._everything
        if self._schedule.switches:
            alive[dst[copies]] = False  # a switch's part; a rank's is dead already

    def finish(self) -> None:
        """Mark the chunks to which a rank's contribution is missing at the end."""
        needed = self._schedule.is_needed(self._chunks)
        held_by_rank = self._count.reshape(-1, len(self._chunks))[: self._schedule.ranks]
        for rank, held in enumerate(held_by_rank):
            wanted = self._in(self._schedule.collective.blocks_after(rank))
            self.doubtful |= wanted & needed & (held < self._everything)

    def _in(self, blocks: range) -> Bools:
        """Return which chunks are in any of the blocks."""
        offset = self._block - blocks.start
        inside: Bools = (offset >= 0) & (self._block < blocks.stop) & (offset % blocks.step == 0)
        return inside

    def _ends(self, moved: Step) -> tuple[Ints, Ints, Bools]:
        """Return for every moved chunk the part read, the part written, and whether it adds."""
        first = np.maximum(moved.chunk, self._chunks.start)
        spans = np.maximum(np.minimum(moved.chunk + moved.span, self._chunks.stop) - first, 0)
        transfer = np.repeat(np.arange(len(moved)), spans)
        place = np.arange(len(transfer)) - np.repeat(np.cumsum(spans) - spans, spans)
        column = first[transfer] + place - self._chunks.start
        width = len(self._chunks)
        return (
            moved.src[transfer] * width + column,
            moved.dst[transfer] * width + column,
            moved.reduce[transfer],
        )


def _check_blocks(schedule: Plan) -> None:
    """Refuse chunks that omit a block, or are not in the order of the blocks."""
    block, blocks = schedule.chunks.block, schedule.collective.num_blocks
    present = np.unique(block)
    if len(present) != blocks or present[0] != 0 or present[-1] != blocks - 1 or (np.diff(block) < 0).any():
        raise schedule.error(f"its chunks do not cover blocks 0 to {blocks - 1} in order")


def _check_inside(schedule: Plan, number: int, moved: Step) -> None:
    """Refuse transfers between ranks or of chunks that do not exist, and from switch to switch."""
    ranks, ends, chunks = schedule.ranks, schedule.ends, len(schedule.chunks)
    stop = moved.chunk + moved.span
    inside = (moved.src >= 0) & (moved.src < ends) & (moved.dst >= 0) & (moved.dst < ends)
    inside &= (moved.src < ranks) | (moved.dst < ranks)
    inside &= (moved.src != moved.dst) & (moved.chunk >= 0) & (moved.span > 0) & (stop <= chunks)
    if not inside.all():
        i = int(np.argmin(inside))
        raise schedule.error(
            f"step {number} sends chunks {moved.chunk[i]} to {stop[i] - 1} from {schedule.end(moved.src[i])} "
            f"to {schedule.end(moved.dst[i])}; there are ranks 0 to {ranks - 1} and chunks 0 to {chunks - 1}"
            + (f", and switches 0 to {ends - ranks - 1}, which send to ranks only" if ends > ranks else "")
        )


def _execute(schedule: Plan, chunks: Sequence[int]) -> None:
    """Carry out some chunks of a schedule with sets of contributions in place of numbers.

    A set is an integer whose bit r is rank r, as in `Collective.start`.
    """
    collective = schedule.collective
    block = {chunk: int(schedule.chunks.block[chunk]) for chunk in chunks}
    held = {
        (rank, chunk): 1 << rank
        for rank in range(schedule.ranks)
        for chunk in chunks
        if block[chunk] in collective.blocks_before(rank)
    }
    for number, moved in enumerate(_touching(schedule, chunks)):
        carried = [
            (transfer, chunk, held.get((transfer.src, chunk), 0))
            for transfer in moved.transfers()
            for chunk in transfer.chunks
            if chunk in block
        ]
        for (src, dst, _, _, reduce), chunk, new in carried:
            old = held.get((dst, chunk), 0)
            complaint = _complaint(old, new, reduce, switch=dst >= schedule.ranks)
            if complaint:
                raise schedule.error(
                    f"step {number}, chunk {chunk}, {schedule.end(src)} to {schedule.end(dst)}: {complaint}"
                )
            held[dst, chunk] = old | new
    for rank in range(schedule.ranks):
        for chunk in chunks:
            if (
                block[chunk] in collective.blocks_after(rank)
                and schedule.is_needed(range(chunk, chunk + 1))[0]
            ):
                lacking = collective.contributors(block[chunk]) & ~held.get((rank, chunk), 0)
                if lacking:
                    raise schedule.error(
                        f"at the end rank {rank} lacks the contribution of rank {_lowest(lacking)} "
                        f"to chunk {chunk}"
                    )


def _touching(schedule: Plan, chunks: Sequence[int]) -> Iterator[Step]:
    """Yield the steps, reduced to the transfers of some chunks."""
    chosen = np.zeros(len(schedule.chunks) + 1, dtype=np.int64)
    chosen[np.array(chunks) + 1] = 1
    before = np.cumsum(chosen)
    for moved in schedule.steps():
        yield moved.only(before[moved.chunk + moved.span] > before[moved.chunk])


def _complaint(old: int, new: int, reduce: bool, *, switch: bool) -> str | None:
    """Return the complaint about ``new`` contributions arriving where ``old`` ones are held, if any.

    A switch, other than a rank, may add to nothing.
    """
    if not new:
        return "the sender holds no contribution to it yet"
    if reduce and not old and not switch:
        return "the receiver holds no contribution to it that this could be added to"
    if reduce:
        return f"the contribution of rank {_lowest(old & new)} would be added twice" if old & new else None
    if old == new:
        return f"the receiver already holds it, the contribution of rank {_lowest(new)} included"
    if old & ~new:
        return f"the receiver would lose the contribution of rank {_lowest(old & ~new)}"
    return None


def _lowest(contributions: int) -> int:
    return (contributions & -contributions).bit_length() - 1
