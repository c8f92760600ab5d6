"""Binomial trees: each holder sends the data to the rank half of the ranks away, in ceil(log2 n) rounds.

For n = 2^k a broadcast or reduce takes log2(n) (alpha + S beta), as every hop carries all data. A scatter or
gather takes log2(n) alpha + (n-1)/n S beta, as a hop carries only its subtree's data (Thakur, Rabenseifner
and Gropp, Int. J. High Perform. Comput. Appl. 19, 2005). An all-reduce is a reduce and a broadcast.
"""

from collections.abc import Iterator
from functools import partial

import numpy as np

from ringside.sim.algorithms.arcs import arcs
from ringside.sim.algorithms.trees.knomial import hops, tree
from ringside.sim.collective import Collective
from ringside.sim.schedule import Ints, Schedule, Step, even_chunks


def gather(collective: Collective) -> Schedule:
    """Send each subtree's data up to the root."""
    ranks, root = collective.ranks, collective.root

    def steps() -> Iterator[Step]:
        for parent, child in list(hops(ranks, 2))[::-1]:
            first, span = child + root, _subtree(parent, child, ranks)
            yield arcs(first % ranks, (parent + root) % ranks, first, span, ranks)

    return Schedule(collective, "binomial", even_chunks(collective), steps)


def scatter(collective: Collective) -> Schedule:
    """Send each child its subtree's data."""
    ranks, root = collective.ranks, collective.root
    return Schedule(collective, "binomial", even_chunks(collective), partial(handed_down, ranks, root))


def handed_down(ranks: int, root: int) -> Iterator[Step]:
    """Return the steps of a scatter of one chunk per rank."""
    for parent, child in hops(ranks, 2):
        first, span = child + root, _subtree(parent, child, ranks)
        yield arcs((parent + root) % ranks, first % ranks, first, span, ranks)


def _subtree(parent: Ints, child: Ints, ranks: int) -> Ints:
    """Count the ranks below each child, itself included."""
    below: Ints = np.minimum(child - parent, ranks - child)
    return below


BUILDS = {
    "all_reduce": partial(tree, algorithm="binomial", radix=2, up=True, down=True),
    "reduce": partial(tree, algorithm="binomial", radix=2, up=True, down=False),
    "broadcast": partial(tree, algorithm="binomial", radix=2, up=False, down=True),
    "gather": gather,
    "scatter": scatter,
}
