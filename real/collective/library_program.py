"""A backend's own collectives, with the same three methods as a schedule's program."""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from ringside.real.collective.buffers import Buffers
from ringside.sim.collective import Collective


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
