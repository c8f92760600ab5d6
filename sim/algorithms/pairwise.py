"""Pairwise exchange: one peer after another, each rank sending so far ahead and receiving from so far behind.

A rank begins with its next peer when it has heard from the last one: (n-1) (alpha + S/n beta) (Thakur,
Rabenseifner and Gropp, Int. J. High Perform. Comput. Appl. 19, 2005). `direct` sends to all at once.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from sim.algorithms import direct
from sim.collective import Collective
from sim.schedule import Schedule


@dataclass(frozen=True)
class _Turns(Mapping[tuple[int, int], tuple[int, int]]):
    """What each rank's message to each of its peers but the first waits for; made as it is asked for."""

    ranks: int

    def __getitem__(self, pair: tuple[int, int]) -> tuple[int, int]:
        src, dst = pair
        if (dst - src) % self.ranks < 2:
            raise KeyError(pair)
        return (src - (dst - src) + 1) % self.ranks, src

    def __iter__(self) -> Iterator[tuple[int, int]]:
        for ahead in range(2, self.ranks):
            for src in range(self.ranks):
                yield src, (src + ahead) % self.ranks

    def __len__(self) -> int:
        return self.ranks * max(self.ranks - 2, 0)


def all_to_all(collective: Collective) -> Schedule:
    """What everybody has for everybody, in n-1 turns."""
    plan = direct.all_to_all(collective)
    return replace(plan, algorithm="pairwise", after=_Turns(collective.ranks))


BUILDS = {"all_to_all": all_to_all}
