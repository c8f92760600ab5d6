"""Test data with exactly known results, in every element type."""

import torch

from ringside.sim.collective import Collective
from ringside.sim.schedule import Chunks

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
