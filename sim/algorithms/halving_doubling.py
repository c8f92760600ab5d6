"""Recursive halving, then recursive doubling: S/2, S/4, ... to partners ever closer, and back.

Rabenseifner's all-reduce (Thakur, Rabenseifner and Gropp, "Optimization of collective communication
operations in MPICH", Int. J. High Perform. Comput. Appl. 19, 2005). Where the rank count is no power
of two, the surplus ranks first hand all their data to a neighbour and get the result from it at the end.
"""

from collections.abc import Iterator

import numpy as np

from sim.collective import Collective
from sim.schedule import Schedule, Step, even_chunks, step


def all_reduce(collective: Collective) -> Schedule:
    """Reduce-scatter by halving, all-gather by doubling, over the largest power of two of the ranks."""
    ranks = collective.ranks
    core = 1 << ranks.bit_length() - 1
    surplus = ranks - core
    place = np.arange(core)
    # the first 2 * surplus ranks pair up: the odd one of each pair works for both
    rank_at = np.where(place < surplus, 2 * place + 1, place + surplus)
    idle, helper = 2 * np.arange(surplus), 2 * np.arange(surplus) + 1

    def steps() -> Iterator[Step]:
        if surplus:
            yield step(idle, helper, 0, span=core, reduce=True)
        distances = [core >> k for k in range(1, core.bit_length())]
        for distance in distances:
            partner = place ^ distance
            yield step(rank_at, rank_at[partner], partner // distance * distance, span=distance, reduce=True)
        for distance in reversed(distances):
            partner = place ^ distance
            yield step(rank_at, rank_at[partner], place // distance * distance, span=distance, reduce=False)
        if surplus:
            yield step(helper, idle, 0, span=core, reduce=False)

    return Schedule(collective, "halving_doubling", even_chunks(collective, core), steps)


BUILDS = {"all_reduce": all_reduce}
