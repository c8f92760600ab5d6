"""Recursive doubling: partners at distance 1, 2, 4, ... exchange all data they hold.

An all-reduce exchanges sums of the whole data, log2(n) (alpha + S (beta + gamma)) for n = 2^k; an all-gather
doubles the size each time, log2(n) alpha + (n-1)/n S beta (Thakur, Rabenseifner and Gropp, Int. J. High
Perform. Comput. Appl. 19, 2005). Surplus ranks send their data to a neighbour first and get the result from
it.
"""

from collections.abc import Iterator

from ringside.sim.algorithms.doubling.fold import Fold
from ringside.sim.collective import Collective
from ringside.sim.schedule import Schedule, Step, even_chunks, step


def all_reduce(collective: Collective) -> Schedule:
    """Exchange copies of each pair's sums, and add the partner's."""
    fold = Fold(collective.ranks)

    def steps() -> Iterator[Step]:
        if fold.surplus:
            yield step(fold.idle, fold.helper, 0, reduce=True)
        for distance in fold.doubling:
            yield step(fold.rank, fold.rank[fold.place ^ distance], 0, reduce=True)
        if fold.surplus:
            yield step(fold.helper, fold.idle, 0, reduce=False)

    return Schedule(collective, "recursive_doubling", even_chunks(collective), steps, copies=True)


def all_gather(collective: Collective) -> Schedule:
    """Exchange all parts held within each pair."""
    fold = Fold(collective.ranks)

    def steps() -> Iterator[Step]:
        if fold.surplus:
            yield step(fold.idle, fold.helper, fold.idle, reduce=False)
        for distance in fold.doubling:
            begin = fold.place // distance * distance
            first, stop = fold.edges[begin], fold.edges[begin + distance]
            partner = fold.rank[fold.place ^ distance]
            yield step(fold.rank, partner, first, span=stop - first, reduce=False)
        # all except the idle rank's own part, which precedes its helper's
        if fold.surplus > 1:
            others = fold.idle[1:]
            yield step(others + 1, others, 0, span=others, reduce=False)
        if fold.surplus:
            rest = collective.ranks - fold.helper
            yield step(fold.helper, fold.idle, fold.helper, span=rest, reduce=False)

    return Schedule(collective, "recursive_doubling", even_chunks(collective), steps)


BUILDS = {"all_reduce": all_reduce, "all_gather": all_gather}
