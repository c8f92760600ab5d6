"""Neighbour exchange: an even number of ranks, n/2 steps to the neighbours on both sides in turn.

The first step carries one part, each later one the two parts of the step before: n/2 alpha + (n-1)/n S beta
(Chen, Zhang, Zhang and Yuan, "Performance evaluation of allgather algorithms on terascale Linux cluster with
fast Ethernet", HPC Asia 2005). An odd number of ranks uses the ring, as in Open MPI (coll_base_allgather.c).
"""

from collections.abc import Iterator

import numpy as np

from ringside.sim.algorithms.rings import ring
from ringside.sim.collective import Collective
from ringside.sim.schedule import Schedule, Step, even_chunks, step


def all_gather(collective: Collective) -> Schedule:
    """Exchange with neighbours; even ranks begin with the rank after them, odd ones with the rank before."""
    ranks = collective.ranks
    if ranks % 2:
        return ring.all_gather(collective)
    rank = np.arange(ranks)
    side = 1 - 2 * (rank % 2)

    def steps() -> Iterator[Step]:
        yield step(rank, rank + side, rank, reduce=False)
        pair = rank // 2
        for number in range(1, ranks // 2):
            partner = (rank + (side if number % 2 == 0 else -side)) % ranks
            yield step(rank, partner, 2 * pair, span=2, reduce=False)
            pair = pair[partner]

    return Schedule(collective, "neighbor_exchange", even_chunks(collective), steps)


BUILDS = {"all_gather": all_gather}
