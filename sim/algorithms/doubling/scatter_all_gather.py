"""A broadcast as a scatter and an all-gather: about 2 S beta, where a tree takes log2(n) S beta.

The scatter is a binomial tree's, the all-gather recursive doubling: one after the other 2 log2(n) alpha +
2 (n-1)/n S beta for n = 2^k (Thakur, Rabenseifner and Gropp, Int. J. High Perform. Comput. Appl. 19, 2005).
Parts of its subtree that a rank holds from the scatter are not sent to it again. The root holds everything,
so it does not wait between the two: its last all-gather message may precede later ones of the scatter.
"""

from collections.abc import Iterator

from ringside.sim.algorithms.doubling.fold import Fold
from ringside.sim.algorithms.trees.binomial import handed_down
from ringside.sim.collective import Collective
from ringside.sim.schedule import Schedule, Step, even_chunks, step


def broadcast(collective: Collective) -> Schedule:
    """Work on the largest power of two of the ranks; surplus ranks get everything at the end."""
    fold = Fold(collective.ranks)
    rank = fold.turned(collective.root)

    def steps() -> Iterator[Step]:
        for moved in handed_down(fold.core, 0):
            yield step(rank[moved.src], rank[moved.dst], moved.chunk, span=moved.span, reduce=False)
        for distance in fold.doubling:
            lacks = fold.place[(fold.place ^ distance) % (2 * distance) > 0]
            begin = lacks // distance * distance
            yield step(rank[lacks], rank[lacks ^ distance], begin, span=distance, reduce=False)
        if fold.surplus:
            turn = rank[0] - fold.rank[0]
            idle, helper = ((ranks + turn) % collective.ranks for ranks in (fold.idle, fold.helper))
            yield step(helper, idle, 0, span=fold.core, reduce=False)

    return Schedule(collective, "scatter_all_gather", even_chunks(collective, fold.core), steps)


BUILDS = {"broadcast": broadcast}
