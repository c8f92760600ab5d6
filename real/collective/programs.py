"""One rank's part of a collective: a schedule's transfers, the backend's own call, or ping-pong."""

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import torch
import torch.distributed as dist

from ringside.sim.collective import Collective
from ringside.sim.schedule import Chunks, Schedule, Step

_PERIOD = 4  # sums of values 0 to 3 stay exact in bfloat16 up to 85 ranks


def contribution(rank: int, elements: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Return the contribution of ``rank``: small integers that differ by rank and along the buffer."""
    return _repeated(_pattern(rank, dtype, device), elements)


def _pattern(rank: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    return ((torch.arange(_PERIOD, device=device) + rank) % _PERIOD).to(dtype)


def _repeated(pattern: torch.Tensor, elements: int) -> torch.Tensor:
    return pattern.repeat(elements // _PERIOD + 1)[:elements]


class Buffers:
    """One rank's view of a collective's data: all blocks, and those of its expected result.

    ``data`` holds all blocks in order; blocks in which the rank holds nothing yet are filled with a value
    that no result contains.
    """

    def __init__(
        self, collective: Collective, chunks: Chunks, rank: int, dtype: torch.dtype, device: torch.device
    ) -> None:
        self._collective = collective
        self._rank = rank
        self._bounds = [int(bound) // collective.itemsize for bound in chunks.bounds]
        self._of_block = chunks.of_block
        elements = collective.space // collective.itemsize
        self.data = torch.empty(elements, dtype=dtype, device=device)
        self._start = torch.full_like(self.data, 255)
        for block, contributors in collective.start(rank):
            self._slice(self._start, block).copy_(self._sum(contributors, block))

    def reset(self) -> None:
        """Restore the rank's own contribution."""
        self.data.copy_(self._start)

    def chunk(self, chunks: range) -> torch.Tensor:
        """Return the elements of adjacent chunks."""
        return self.data[self._bounds[chunks.start] : self._bounds[chunks.stop]]

    def block(self, block: int) -> torch.Tensor:
        """Return the elements of one block."""
        return self._slice(self.data, block)

    def num_wrong(self) -> int:
        """Return the number of elements of the rank's result that differ from the exact answer."""
        return sum(
            int((self.block(block) != self._sum(contributors, block)).sum())
            for block, contributors in self._collective.goal(self._rank)
        )

    def _slice(self, data: torch.Tensor, block: int) -> torch.Tensor:
        chunks = self._of_block[block]
        return data[self._bounds[chunks.start] : self._bounds[chunks.stop]]

    def _sum(self, contributors: int, block: int) -> torch.Tensor:
        elements = self._slice(self.data, block)
        total = torch.zeros(_PERIOD, dtype=elements.dtype, device=elements.device)
        for rank in range(self._collective.ranks):
            if contributors >> rank & 1:
                total += _pattern(rank, elements.dtype, elements.device)
        return _repeated(total, len(elements))


class PingPong:
    """One rank's part: the even rank of a pair sends its block, the odd one answers with its own, in turn.

    Pairs are ranks 0 and 1, 2 and 3, and so on; the last of an odd number of ranks does nothing. All receives
    are posted before the first message, so no message waits until its receiver is ready, except the first,
    which meets the same conditions as a collective's first message.
    """

    MESSAGES = 4
    """One-way messages of one run, in sequence."""

    def __init__(self, rank: int, ranks: int, buffers: Buffers) -> None:
        self._side = rank % 2
        self._peer = rank ^ 1
        self._alone = self._peer >= ranks
        self._buffers = buffers

    def prepare(self) -> None:
        """Restore the rank's contribution; not timed."""
        self._buffers.reset()

    def run(self) -> None:
        """Carry out the rank's part once."""
        if self._alone:
            return
        own, other = self._buffers.block(self._side), self._buffers.block(1 - self._side)
        receives = [dist.irecv(other, self._peer) for _ in range(self.MESSAGES // 2)]
        sends = []
        for receive in receives:
            assert receive is not None
            if self._side == 0:
                sends.append(dist.isend(own, self._peer))
            receive.wait()
            if self._side == 1:
                sends.append(dist.isend(own, self._peer))
        for send in sends:
            assert send is not None
            send.wait()

    def collect(self) -> None:
        """Do nothing: the result is in the buffers already."""


class LibraryProgram:
    """One rank's part of a collective, carried out by torch.distributed's backend."""

    def __init__(self, collective: Collective, rank: int, buffers: Buffers) -> None:
        self._collective = collective
        self._rank = rank
        self._buffers = buffers
        self._call = getattr(self, f"_{collective.kind}")
        self._input = torch.empty(0)
        self._output = torch.empty(0)
        blocks = range(collective.num_blocks)
        ranks = collective.ranks
        match collective.kind:
            case "all_gather" | "sendrecv" | "gather":
                self._input = torch.empty_like(buffers.block(rank))
            case "reduce_scatter" | "scatter":
                self._input = torch.empty_like(buffers.data)
            case "all_to_all":
                self._input = torch.cat([buffers.block(b) for b in blocks[rank * ranks : (rank + 1) * ranks]])
                self._output = torch.empty_like(self._input)

    def prepare(self) -> None:
        """Restore the rank's contribution; not timed."""
        self._buffers.reset()
        match self._collective.kind:
            case "all_gather" | "sendrecv" | "gather":
                self._input.copy_(self._buffers.block(self._rank))
            case "reduce_scatter" | "scatter":
                self._input.copy_(self._buffers.data)
            case "all_to_all":
                own = range(self._rank * self._collective.ranks, (self._rank + 1) * self._collective.ranks)
                torch.cat([self._buffers.block(block) for block in own], out=self._input)

    def run(self) -> None:
        """Carry out the collective once."""
        self._call()

    def collect(self) -> None:
        """Copy the result to the buffers; not timed."""
        if self._collective.kind == "all_to_all":
            for src, piece in enumerate(self._output.chunk(self._collective.ranks)):
                self._buffers.block(src * self._collective.ranks + self._rank).copy_(piece)

    def _all_reduce(self) -> None:
        dist.all_reduce(self._buffers.data)

    def _broadcast(self) -> None:
        dist.broadcast(self._buffers.data, self._collective.root)

    def _reduce(self) -> None:
        dist.reduce(self._buffers.data, self._collective.root)

    def _all_gather(self) -> None:
        _named("all_gather_single", "all_gather_into_tensor")(self._buffers.data, self._input)

    def _reduce_scatter(self) -> None:
        _named("reduce_scatter_single", "reduce_scatter_tensor")(self._buffers.block(self._rank), self._input)

    def _all_to_all(self) -> None:
        dist.all_to_all_single(self._output, self._input)

    def _gather(self) -> None:
        root, ranks = self._collective.root, self._collective.ranks
        parts = [self._buffers.block(block) for block in range(ranks)] if self._rank == root else None
        dist.gather(self._input, parts, root)

    def _scatter(self) -> None:
        root, ranks = self._collective.root, self._collective.ranks
        parts = list(self._input.chunk(ranks)) if self._rank == root else None
        dist.scatter(self._buffers.block(self._rank), parts, root)

    def _sendrecv(self) -> None:
        ranks = self._collective.ranks
        src, dst = (self._rank - 1) % ranks, (self._rank + 1) % ranks
        if ranks > 1:
            operations = [
                dist.P2POp(dist.irecv, self._buffers.block(src), src),
                dist.P2POp(dist.isend, self._input, dst),
            ]
            for work in dist.batch_isend_irecv(operations):
                work.wait()


def _named(new: str, old: str) -> Callable[..., Any]:
    """Return torch's function under either name; 2.13 renamed two and warns about the old names."""
    function: Callable[..., Any] = getattr(dist, new, None) or getattr(dist, old)
    return function


@dataclass(slots=True)
class _Receive:
    """A receive of this rank: its destination, and the chunks that it updates."""

    chunks: range
    src: int
    channel: int
    reduce: bool
    beside: torch.Tensor | None
    work: dist.Work | None = None
    lock: Lock = field(default_factory=Lock)


@dataclass(frozen=True, slots=True)
class _Send:
    """A send of this rank, and the receives that must complete before it starts."""

    chunks: range
    dst: int
    channel: int
    needs: list[int]


class GlooProgram:
    """One rank's part of a schedule over Gloo's send and receive.

    Each connection runs its sends in order, in its own thread where there are several: each send waits for
    the receives of the chunks that it carries and, where ``credits`` sends are under way, for the oldest of
    them. All receives are posted before the first send, because Gloo announces a posted receive over the same
    socket that carries the bulk data.
    """

    def __init__(self, schedule: Schedule, rank: int, buffers: Buffers) -> None:
        self._buffers = buffers
        self._credits = schedule.credits
        self._receives: list[_Receive] = []
        self._ordered = False
        """Whether a chunk changes after it was sent; sends then go in order, from copies."""
        self._summing = Lock()
        into: dict[int, list[int]] = {}
        times_sent: dict[int, int] = {}
        sends: list[_Send] = []
        for moved in schedule.steps():
            own = _own_transfers(moved, rank)
            for src, dst, chunks, channel, _ in own:
                if src == rank:
                    needs = sorted({number for chunk in chunks for number in into.get(chunk, ())})
                    sends.append(_Send(chunks, dst, channel, needs))
                    for chunk in chunks:
                        times_sent[chunk] = times_sent.get(chunk, 0) + 1
            for src, dst, chunks, channel, reduce in own:
                if dst == rank:
                    # An overwriting chunk contains this rank's own part, so a chunk that was sent at most
                    # once has left before it can return. Otherwise it arrives in a separate buffer and waits
                    # its turn.
                    sent = max(times_sent.get(chunk, 0) for chunk in chunks)
                    aside = reduce or sent > 1
                    self._ordered |= sent > (0 if reduce else 1)
                    beside = torch.empty_like(buffers.chunk(chunks)) if aside else None
                    for chunk in chunks:
                        into.setdefault(chunk, []).append(len(self._receives))
                    self._receives.append(_Receive(chunks, src, channel, reduce, beside))
        self._lanes = [sends] if self._ordered else _by_connection(sends)
        self._threads = ThreadPoolExecutor(max(len(self._lanes) - 1, 1))

    def prepare(self) -> None:
        """Restore the rank's contribution; not timed."""
        self._buffers.reset()

    def run(self) -> None:
        """Carry out the rank's part once."""
        for receive in self._receives:
            landing = self._buffers.chunk(receive.chunks) if receive.beside is None else receive.beside
            receive.work = dist.irecv(landing, receive.src, tag=receive.channel)
        others = [self._threads.submit(self._walk, lane) for lane in self._lanes[1:]]
        for lane in self._lanes[:1]:
            self._walk(lane)
        for other in others:
            other.result()
        for receive in self._receives:
            self._take(receive)

    def collect(self) -> None:
        """Do nothing: the result is in the buffers already."""

    def _walk(self, sends: Sequence[_Send]) -> None:
        """Run the sends in order, each as soon as it may start, until all are complete."""
        under_way: dict[tuple[int, int], deque[dist.Work]] = {}
        for send in sends:
            for number in send.needs:
                self._take(self._receives[number])
            works = under_way.setdefault((send.dst, send.channel), deque())
            if len(works) == self._credits:
                works.popleft().wait()
            data = self._buffers.chunk(send.chunks)
            work = dist.isend(data.clone() if self._ordered else data, send.dst, tag=send.channel)
            assert work is not None
            works.append(work)
        for works in under_way.values():
            for work in works:
                work.wait()

    def _take(self, receive: _Receive) -> None:
        """Wait for a receive and update its chunks, once."""
        with receive.lock:
            if receive.work is None:
                return
            receive.work.wait()
            receive.work = None
            if receive.beside is not None:
                target = self._buffers.chunk(receive.chunks)
                with self._summing:
                    target.add_(receive.beside) if receive.reduce else target.copy_(receive.beside)


def _by_connection(sends: Sequence[_Send]) -> list[list[_Send]]:
    lanes: dict[tuple[int, int], list[_Send]] = {}
    for send in sends:
        lanes.setdefault((send.dst, send.channel), []).append(send)
    return list(lanes.values())


class NcclProgram:
    """One rank's part of a schedule over NCCL's send and receive: one group call per step.

    NCCL has no tags and orders the calls of one group by peer, so a step's transfers share a group; sums run
    on the same stream behind them.
    """

    def __init__(self, schedule: Schedule, rank: int, buffers: Buffers) -> None:
        self._buffers = buffers
        self._rank = rank
        self._steps = [own for moved in schedule.steps() if (own := _own_transfers(moved, rank))]
        self._beside = [
            torch.empty_like(buffers.chunk(chunks))
            for own in self._steps
            for _, dst, chunks, _, reduce in own
            if dst == rank and reduce
        ]

    def prepare(self) -> None:
        """Restore the rank's contribution; not timed."""
        self._buffers.reset()

    def run(self) -> None:
        """Queue the rank's part once on the current stream."""
        beside = iter(self._beside)
        for own in self._steps:
            operations, sums = [], []
            for src, dst, chunks, _, reduce in own:
                piece = self._buffers.chunk(chunks)
                if src == self._rank:
                    operations.append(dist.P2POp(dist.isend, piece, dst))
                    continue
                if reduce:
                    sums.append((piece, next(beside)))
                    piece = sums[-1][1]
                operations.append(dist.P2POp(dist.irecv, piece, src))
            for work in dist.batch_isend_irecv(operations):
                work.wait()
            for piece, landed in sums:
                piece.add_(landed)

    def collect(self) -> None:
        """Do nothing: the result is in the buffers already."""


def _own_transfers(moved: Step, rank: int) -> list[tuple[int, int, range, int, bool]]:
    """Return a step's transfers of ``rank``: source, destination, chunks, channel, whether they add."""
    own = (moved.src == rank) | (moved.dst == rank)
    columns = (moved.src, moved.dst, moved.chunk, moved.span, moved.channel, moved.reduce)
    return [
        (src, dst, range(chunk, chunk + span), channel, reduce)
        for src, dst, chunk, span, channel, reduce in zip(*(c[own].tolist() for c in columns), strict=True)
    ]
