"""Any number of ranks folded to a power of two, for algorithms that pair ranks at distances 1, 2, 4, ...

Each surplus rank has a neighbour that works for both (Thakur, Rabenseifner and Gropp, "Optimization of
collective communication operations in MPICH", Int. J. High Perform. Comput. Appl. 19, 2005).
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from ringside.sim.steps import Ints


@dataclass(frozen=True)
class Fold:
    """Places for the largest power of two of ``ranks``; even ones of the first 2 * surplus ranks have none.

    Each of the even ones, ``idle``, has a ``helper`` that works for it. Place p stands for the parts from
    ``edges[p]`` to ``edges[p + 1]``, its rank's and its idle neighbour's.
    """

    ranks: int

    @property
    def core(self) -> int:
        """The number of places."""
        return 1 << self.ranks.bit_length() - 1

    @property
    def surplus(self) -> int:
        """The number of ranks without a place."""
        return self.ranks - self.core

    @cached_property
    def place(self) -> Ints:
        """All places."""
        return np.arange(self.core)

    @cached_property
    def rank(self) -> Ints:
        """The rank at each place."""
        place = self.place
        return np.where(place < self.surplus, 2 * place + 1, place + self.surplus).astype(np.int64)

    @property
    def idle(self) -> Ints:
        """The ranks without a place."""
        return 2 * np.arange(self.surplus)

    @property
    def helper(self) -> Ints:
        """The rank that works for each idle one."""
        return self.idle + 1

    @cached_property
    def edges(self) -> Ints:
        """The first part of each place, and the end of the last one's."""
        place = np.arange(self.core + 1)
        return place + np.minimum(place, self.surplus)

    @property
    def doubling(self) -> list[int]:
        """The distances 1, 2, 4, ... of partners."""
        return [1 << k for k in range(self.core.bit_length() - 1)]

    @property
    def halving(self) -> list[int]:
        """The same distances, the furthest first."""
        return self.doubling[::-1]

    def turned(self, root: int) -> Ints:
        """Return the rank at each place if ``root`` has the first place."""
        turned: Ints = (self.rank - self.rank[0] + root) % self.ranks
        return turned
