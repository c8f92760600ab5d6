"""Recursive halving: partners at distance n/2, n/4, ... exchange the half that the other is to hold.

log2(n) alpha + (n-1)/n S (beta + gamma) for n = 2^k (Thakur, Rabenseifner and Gropp, Int. J. High Perform.
Comput. Appl. 19, 2005). Surplus ranks send all their data to a neighbour first, and get their part from it.
"""

from collections.abc import Iterator

from ringside.sim.algorithms.doubling.fold import Fold
from ringside.sim.collective import Collective
from ringside.sim.schedule import Schedule, Step, even_chunks, step


def reduce_scatter(collective: Collective) -> Schedule:
    """Send half of the remaining data in each step, and add the partner's to the other half."""
    fold = Fold(collective.ranks)

    def steps() -> Iterator[Step]:
        if fold.surplus:
            yield step(fold.idle, fold.helper, 0, span=collective.ranks, reduce=True)
        for distance in fold.halving:
            partner = fold.place ^ distance
            begin = partner // distance * distance
            first, stop = fold.edges[begin], fold.edges[begin + distance]
            yield step(fold.rank, fold.rank[partner], first, span=stop - first, reduce=True)
        if fold.surplus:
            yield step(fold.helper, fold.idle, fold.idle, reduce=False)

    return Schedule(collective, "recursive_halving", even_chunks(collective), steps)


BUILDS = {"reduce_scatter": reduce_scatter}
