"""Bruck's algorithms: ceil(log2 n) steps for any number of ranks, at distances 1, 2, 4, ...

An all-gather takes ceil(log2 n) alpha + (n-1)/n S beta; an all-to-all, whose parts go through others,
log2(n) (alpha + S/2 beta) for n = 2^k (Bruck, Ho, Kipnis, Upfal and Weathersby, "Efficient algorithms for
all-to-all communications in multiport message-passing systems", IEEE Trans. Parallel Distrib. Syst. 8, 1997).
The parts of a step are one message there, packed from all that the last step brought; here they go in turns.
"""

from collections.abc import Iterator

import numpy as np

from ringside.sim.algorithms.arcs import arcs
from ringside.sim.algorithms.turns import Turns
from ringside.sim.collective import Collective
from ringside.sim.schedule import Schedule, Step, even_chunks, step

MOST = 1 << 18
"""Parts of one step; more of a round go in further steps."""


def all_gather(collective: Collective) -> Schedule:
    """Every rank gives all parts that it has to the rank so far before it, at last what that still lacks."""
    ranks = collective.ranks
    rank = np.arange(ranks)

    def steps() -> Iterator[Step]:
        for distance in _distances(ranks):
            yield arcs(rank, (rank - distance) % ranks, rank, min(distance, ranks - distance), ranks)

    turns = Turns(ranks, [-distance for distance in _distances(ranks)])
    return Schedule(collective, "bruck", even_chunks(collective), steps, after=turns)


def all_to_all(collective: Collective) -> Schedule:
    """A part that has d ranks to go makes the steps of the bits of d; those of one step go together."""
    ranks = collective.ranks
    rank, ahead = np.arange(ranks)[:, None], np.arange(1, ranks)
    some = max(MOST // ranks, 1)

    def steps() -> Iterator[Step]:
        for distance in _distances(ranks):
            going = ahead[ahead & distance > 0]
            for first in range(0, len(going), some):
                now = going[first : first + some]
                origin = (rank - now % distance) % ranks  # smaller bits are behind it
                block = origin * ranks + (origin + now) % ranks
                src = np.broadcast_to(rank, block.shape).ravel()
                yield step(src, (src + distance) % ranks, block.ravel(), reduce=False)

    turns = Turns(ranks, _distances(ranks))
    return Schedule(collective, "bruck", even_chunks(collective), steps, credits=ranks, after=turns)


def _distances(ranks: int) -> list[int]:
    return [1 << k for k in range((ranks - 1).bit_length())]


BUILDS = {"all_gather": all_gather, "all_to_all": all_to_all}
