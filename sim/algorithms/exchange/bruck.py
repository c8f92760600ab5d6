"""Bruck's algorithms: ceil(log2 n) steps for any number of ranks, at distances 1, 2, 4, ...

An all-gather takes ceil(log2 n) alpha + (n-1)/n S beta; an all-to-all, whose parts go through other ranks,
log2(n) (alpha + S/2 beta) for n = 2^k (Bruck, Ho, Kipnis, Upfal and Weathersby, "Efficient algorithms for
all-to-all communications in multiport message-passing systems", IEEE Trans. Parallel Distrib. Syst. 8, 1997).
The paper packs all parts of a step into one message; here the parts are sent one after another.
"""

from collections.abc import Iterator

import numpy as np

from ringside.sim.algorithms.arcs import arcs
from ringside.sim.algorithms.exchange.turns import Turns
from ringside.sim.collective import Collective
from ringside.sim.schedule import Schedule, Step, even_chunks, step

MOST = 1 << 18
"""Maximum number of parts per step; a round with more takes further steps."""


def all_gather(collective: Collective) -> Schedule:
    """Send all parts held to the rank one distance before, in the last step only those that it lacks."""
    ranks = collective.ranks
    rank = np.arange(ranks)

    def steps() -> Iterator[Step]:
        for distance in _distances(ranks):
            yield arcs(rank, (rank - distance) % ranks, rank, min(distance, ranks - distance), ranks)

    turns = Turns(ranks, [-distance for distance in _distances(ranks)])
    return Schedule(collective, "bruck", even_chunks(collective), steps, after=turns)


def all_to_all(collective: Collective) -> Schedule:
    """Send a part that has d ranks to go in the steps of d's bits; parts of one step travel together."""
    ranks = collective.ranks
    rank, ahead = np.arange(ranks)[:, None], np.arange(1, ranks)
    some = max(MOST // ranks, 1)

    def steps() -> Iterator[Step]:
        for distance in _distances(ranks):
            going = ahead[ahead & distance > 0]
            for first in range(0, len(going), some):
                now = going[first : first + some]
                origin = (rank - now % distance) % ranks  # lower bits are done
                block = origin * ranks + (origin + now) % ranks
                src = np.broadcast_to(rank, block.shape).ravel()
                yield step(src, (src + distance) % ranks, block.ravel(), reduce=False)

    turns = Turns(ranks, _distances(ranks))
    return Schedule(collective, "bruck", even_chunks(collective), steps, credits=ranks, after=turns)


def _distances(ranks: int) -> list[int]:
    return [1 << k for k in range((ranks - 1).bit_length())]


BUILDS = {"all_gather": all_gather, "all_to_all": all_to_all}
