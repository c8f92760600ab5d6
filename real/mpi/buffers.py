"""Test data in NumPy with exactly known results; `ringside.real.collective.buffers` has PyTorch's."""

import numpy as np
from numpy.typing import NDArray

from ringside.sim.collective import Collective
from ringside.sim.schedule import Chunks

Array = NDArray[np.generic]

_PERIOD, _UNSET = 4, 111


class Buffers:
    """One rank's view of a collective's data: all blocks in order, in elements of ``dtype``.

    Blocks in which the rank holds nothing yet are filled with a value that no result contains.
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
