"""Recursive halving, then recursive doubling: S/2, S/4, ... to ever closer partners, and back.

Rabenseifner's all-reduce and reduce (Thakur, Rabenseifner and Gropp, "Optimization of collective
communication operations in MPICH", Int. J. High Perform. Comput. Appl. 19, 2005). Where the number of ranks
is no power of two, the surplus ranks first send all their data to a neighbour and get the result from it.
"""

from collections.abc import Iterator

from ringside.sim.algorithms.doubling.fold import Fold
from ringside.sim.collective import Collective
from ringside.sim.schedule import Ints, Schedule, Step, even_chunks, step


def halved(fold: Fold, rank: Ints, first: Ints | int = 0) -> Iterator[Step]:
    """Return the steps that sum chunk ``first + p`` at place p, on ``rank[..., p]``."""
    for distance in fold.halving:
        partner = fold.place ^ distance
        begin = partner // distance * distance
        yield _step(rank, rank[..., partner], first + begin, distance, reduce=True)


def doubled(fold: Fold, rank: Ints, first: Ints | int = 0) -> Iterator[Step]:
    """Return the steps that send each place's sums to all places."""
    for distance in fold.doubling:
        partner = fold.place ^ distance
        begin = fold.place // distance * distance
        yield _step(rank, rank[..., partner], first + begin, distance, reduce=False)


def _step(src: Ints, dst: Ints, chunk: Ints, span: int, *, reduce: bool) -> Step:
    return step(src.ravel(), dst.ravel(), chunk.ravel(), span=span, reduce=reduce)


def all_reduce(collective: Collective) -> Schedule:
    """Reduce-scatter by halving, all-gather by doubling, over the largest power of two of the ranks."""
    fold = Fold(collective.ranks)

    def steps() -> Iterator[Step]:
        if fold.surplus:
            yield step(fold.idle, fold.helper, 0, span=fold.core, reduce=True)
        yield from halved(fold, fold.rank)
        yield from doubled(fold, fold.rank)
        if fold.surplus:
            yield step(fold.helper, fold.idle, 0, span=fold.core, reduce=False)

    return Schedule(collective, "halving_doubling", even_chunks(collective, fold.core), steps)


def reduce(collective: Collective) -> Schedule:
    """Reduce-scatter by halving; then gather the sums at the root by a binomial tree."""
    fold = Fold(collective.ranks)
    turn = collective.root - fold.rank[0]
    rank = fold.turned(collective.root)

    def steps() -> Iterator[Step]:
        if fold.surplus:
            idle, helper = ((ranks + turn) % collective.ranks for ranks in (fold.idle, fold.helper))
            yield step(idle, helper, 0, span=fold.core, reduce=True)
        yield from halved(fold, rank)
        for distance in fold.doubling:
            sender = fold.place[distance :: 2 * distance]
            yield step(rank[sender], rank[sender - distance], sender, span=distance, reduce=False)

    return Schedule(collective, "halving_doubling", even_chunks(collective, fold.core), steps)


BUILDS = {"all_reduce": all_reduce, "reduce": reduce}
