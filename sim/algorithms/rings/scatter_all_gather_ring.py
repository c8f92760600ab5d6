"""A broadcast as a binomial scatter and a ring all-gather, for any number of ranks.

(ceil(log2 n) + n-1) alpha + 2 (n-1)/n S beta at most (Barnett, Shuler, van de Geijn, Gupta, Payne and Watts,
"Interprocessor collective communication library", SHPCC 1994). Parts of its subtree that a rank holds from
the scatter are not sent to it again.
"""

from collections.abc import Iterator

import numpy as np

from ringside.sim.algorithms.trees.binomial import handed_down
from ringside.sim.collective import Collective
from ringside.sim.schedule import Schedule, Step, even_chunks, step


def broadcast(collective: Collective) -> Schedule:
    """Scatter, then pass each rank's parts around the ring."""
    ranks, root = collective.ranks, collective.root
    place = np.arange(ranks)
    # a place's lowest bit is the number of places below it; the root has everything
    has = np.where(place > 0, place & -place, ranks)

    def steps() -> Iterator[Step]:
        yield from handed_down(ranks, root)
        following = (place + 1) % ranks
        for number in range(ranks - 1):
            part = (place - number) % ranks
            lacks = (part < following) | (part >= following + has[following])
            src, dst, chunk = ((column[lacks] + root) % ranks for column in (place, following, part))
            if len(src):
                yield step(src, dst, chunk, reduce=False)

    return Schedule(collective, "scatter_all_gather_ring", even_chunks(collective, ranks), steps)


BUILDS = {"broadcast": broadcast}
