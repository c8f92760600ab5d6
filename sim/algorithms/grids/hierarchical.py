"""Reduce-scatter inside each node, all-reduce between the nodes, all-gather inside each node.

Each of the C ranks of a node sends only a C-th of the data across the network. Inside, ranks send directly to
each other; between nodes, ranks of one place in their nodes halve and double. R nodes on one switch take
2 (alpha + (C-1)/C S beta) + 2 log2(R) alpha + 2 (R-1)/R S/C beta for R = 2^k (Jia et al., "Highly scalable
deep learning training system with mixed-precision", arXiv 1807.11205, 2018, have the scheme with rings).
"""

from collections.abc import Iterator

import numpy as np

from ringside.sim.algorithms.doubling import halving_doubling
from ringside.sim.algorithms.doubling.fold import Fold
from ringside.sim.algorithms.exchange import direct
from ringside.sim.algorithms.grids.grid import Grid, grid_of, ranks_of
from ringside.sim.collective import Collective
from ringside.sim.schedule import Ints, Schedule, Step, even_chunks, step


def all_reduce(collective: Collective, grid: Grid | None = None) -> Schedule:
    """Treat each row of the grid as a node; with one node, or nodes of one rank, one level remains."""
    nodes, inside = grid = grid_of(collective, grid)
    if nodes == 1:
        return direct.all_reduce(collective)
    if inside == 1:
        return halving_doubling.all_reduce(collective)
    fold, rank = Fold(nodes), ranks_of(grid)
    place = np.arange(inside)
    first = place * fold.core

    def meet(some: Ints, others: Ints, *, reduce: bool) -> Step:
        chunk = np.broadcast_to(first, (fold.surplus, inside))
        return step(rank[some].ravel(), rank[others].ravel(), chunk.ravel(), span=fold.core, reduce=reduce)

    def steps() -> Iterator[Step]:
        for ahead in range(1, inside):
            peer = (place + ahead) % inside
            chunk = np.tile(first[peer], nodes)
            yield step(rank.ravel(), rank[:, peer].ravel(), chunk, span=fold.core, reduce=True)
        if fold.surplus:
            yield meet(fold.idle, fold.helper, reduce=True)
        yield from halving_doubling.halved(fold, rank[fold.rank].T, first[:, None])
        yield from halving_doubling.doubled(fold, rank[fold.rank].T, first[:, None])
        if fold.surplus:
            yield meet(fold.helper, fold.idle, reduce=False)
        for ahead in range(1, inside):
            peer = (place + ahead) % inside
            yield step(
                rank.ravel(), rank[:, peer].ravel(), np.tile(first, nodes), span=fold.core, reduce=False
            )

    name = f"hierarchical:{nodes}x{inside}"
    return Schedule(collective, name, even_chunks(collective, inside * fold.core), steps)


BUILDS = {"all_reduce": all_reduce}
