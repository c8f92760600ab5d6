"""One rank's part of a collective over MPI: a schedule's transfers, or the library's own call."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringside.sim.collective import Collective
from ringside.sim.schedule import Chunks, Schedule
from ringside.sim.steps import Transfer

Array = NDArray[np.generic]

_PERIOD, _UNSET = 4, 111


class MpiBuffers:
    """One rank's view of a collective's data: all blocks in order, in elements of ``dtype``.

    Blocks in which the rank holds nothing yet are filled with a value that no result contains. Data are in
    NumPy; `ringside.real.collective.programs` has PyTorch's.
    """

    def __init__(self, collective: Collective, chunks: Chunks, rank: int) -> None:
        assert collective.dtype
        self._collective = collective
        self._rank = rank
        self._bounds = [int(bound) // collective.itemsize for bound in chunks.bounds]
        self._of_block = chunks.of_block
        self.data: Array = np.empty(collective.space // collective.itemsize, dtype=collective.dtype)
        self._start = np.full_like(self.data, _UNSET)
        for block, contributors in collective.start(rank):
            where = self._where(block)
            self._start[where] = self._sum(contributors, where)

    def reset(self) -> None:
        """Restore the rank's own contribution."""
        self.data[:] = self._start

    def chunk(self, chunks: range) -> Array:
        """Return the elements of adjacent chunks."""
        return self.data[self._bounds[chunks.start] : self._bounds[chunks.stop]]

    def block(self, block: int) -> Array:
        """Return the elements of one block."""
        return self.data[self._where(block)]

    def num_wrong(self) -> int:
        """Return the number of elements of the rank's result that differ from the exact answer."""
        goals = ((self._where(block), who) for block, who in self._collective.goal(self._rank))
        return sum(int(np.sum(self.data[where] != self._sum(who, where))) for where, who in goals)

    def _where(self, block: int) -> slice:
        chunks = self._of_block[block]
        return slice(self._bounds[chunks.start], self._bounds[chunks.stop])

    def _sum(self, contributors: int, where: slice) -> Array:
        """Return the sum of the contributions: small integers that differ by rank and along the buffer."""
        pattern = np.zeros(_PERIOD, dtype=np.int64)
        for rank in range(self._collective.ranks):
            if contributors >> rank & 1:
                pattern += (np.arange(_PERIOD) + rank) % _PERIOD
        return np.resize(pattern, where.stop - where.start).astype(self.data.dtype)


class ScheduleProgram:
    """A schedule over MPI's sends and receives, step by step.

    All of a step's receives and sends are in flight together; data to be added, or that overwrites what this
    rank sends in the same step, arrives in a separate buffer and is applied after the step.
    """

    def __init__(self, communicator: Any, schedule: Schedule, buffers: MpiBuffers) -> None:
        self._communicator = communicator
        self._buffers = buffers
        self._rank = communicator.rank
        own = (
            moved.only((moved.src == self._rank) | (moved.dst == self._rank)) for moved in schedule.steps()
        )
        self._steps = [[*moved.transfers()] for moved in own if len(moved)]

    def run(self) -> None:
        """Carry out the rank's part once."""
        for transfers in self._steps:
            self._carry_out(transfers)

    def collect(self) -> None:
        """Do nothing: the result is in the buffers already."""

    def _carry_out(self, transfers: list[Transfer]) -> None:
        sent = {chunk for one in transfers if one.src == self._rank for chunk in one.chunks}
        requests, beside = [], list[tuple[Array, Array, bool]]()
        for one in transfers:
            piece = self._buffers.chunk(one.chunks)
            if one.dst != self._rank:
                requests.append(self._communicator.Isend(piece, one.dst, one.channel))
                continue
            if one.reduce or not sent.isdisjoint(one.chunks):
                beside.append((piece, np.empty_like(piece), one.reduce))
                piece = beside[-1][1]
            requests.append(self._communicator.Irecv(piece, one.src, one.channel))
        for request in requests:
            request.Wait()
        for piece, landed, adds in beside:
            if adds:
                np.add(piece, landed, out=piece)
            else:
                piece[:] = landed


class MpiLibraryProgram:
    """A collective as the MPI library carries it out."""

    def __init__(self, communicator: Any, collective: Collective, buffers: MpiBuffers) -> None:
        self._communicator = communicator
        self._collective = collective
        self._buffers = buffers
        self._own: Array = np.empty(0)
        self._landed: Array = np.empty(0)

    def prepare(self) -> None:
        """Prepare the call's arguments from restored buffers; not timed."""
        kind, data, rank = self._collective.kind, self._buffers.data, self._communicator.rank
        if kind in ("all_reduce", "reduce", "reduce_scatter", "scatter"):
            self._own = data.copy()
        elif kind in ("all_gather", "gather", "sendrecv"):
            self._own = self._buffers.block(rank).copy()
        elif kind == "all_to_all":
            blocks = range(rank * self._collective.ranks, (rank + 1) * self._collective.ranks)
            self._own = np.concatenate([self._buffers.block(block) for block in blocks])
            self._landed = np.empty_like(self._own)

    def run(self) -> None:
        """Carry out the collective once."""
        comm, root, data = self._communicator, self._collective.root, self._buffers.data
        at_root = comm.rank == root
        match self._collective.kind:
            case "all_reduce":
                comm.Allreduce(self._own, data)
            case "broadcast":
                comm.Bcast(data, root)
            case "reduce":
                comm.Reduce(self._own, data if at_root else None, root=root)
            case "all_gather":
                comm.Allgather(self._own, data)
            case "reduce_scatter":
                block = self._buffers.block(comm.rank)
                comm.Reduce_scatter(self._own, block, [block.size] * comm.size)
            case "gather":
                comm.Gather(self._own, data if at_root else None, root)
            case "scatter":
                comm.Scatter(self._own if at_root else None, self._buffers.block(comm.rank), root)
            case "all_to_all":
                comm.Alltoall(self._own, self._landed)
            case "sendrecv":
                before, after = (comm.rank - 1) % comm.size, (comm.rank + 1) % comm.size
                if comm.size > 1:
                    comm.Sendrecv(self._own, after, recvbuf=self._buffers.block(before), source=before)

    def collect(self) -> None:
        """Copy the result to the buffers; not timed."""
        if self._collective.kind == "all_to_all":
            ranks = self._collective.ranks
            for src, piece in enumerate(np.split(self._landed, ranks)):
                self._buffers.block(src * ranks + self._communicator.rank)[:] = piece
