"""Binary trees of ranks: NCCL's in-order numbering, and the two trees that share the data.

Odd ranks are leaves and rank 0 is a root with one child (NCCL src/graph/trees.cc, v2.30.7; the idea is
Sanders, Speck and Träff's, "Two-tree algorithms for full bandwidth broadcast, reduction and scan", Parallel
Computing 35, 2009).
"""

import numpy as np

from ringside.sim.schedule import Ints


def parents(ranks: int) -> Ints:
    """Return the parent of each rank in NCCL's binary tree, -1 for the root 0.

    With b the lowest set bit of rank r, the parent is r with bit b cleared and bit 2b set, or, where that is
    no rank, r with bit b cleared.
    """
    rank = np.arange(ranks)
    low = rank & -rank
    up = (rank ^ low) | (low << 1)
    return np.where(rank == 0, -1, np.where(up < ranks, up, rank ^ low)).astype(np.int64)


def trees(ranks: int) -> tuple[Ints, Ints]:
    """Return the parents in both trees, -1 at a root.

    The second tree is the first one with the ranks shifted by one where their number is odd, and mirrored
    where it is even.
    """
    first = parents(ranks)
    rank = np.arange(ranks)
    place = (rank - 1) % ranks if ranks % 2 else ranks - 1 - rank
    moved = (first + 1) % ranks if ranks % 2 else ranks - 1 - first
    return first, np.where(first >= 0, moved, -1)[place]


def heights(parent: Ints) -> Ints:
    """Return the hops from each rank down to its furthest leaf."""
    height = np.zeros(len(parent), dtype=np.int64)
    child = np.flatnonzero(parent >= 0)
    while True:
        raised = height.copy()
        np.maximum.at(raised, parent[child], height[child] + 1)
        if (raised == height).all():
            return height
        height = raised


def depths(parent: Ints) -> Ints:
    """Return the hops from each rank up to the root."""
    depth = np.zeros(len(parent), dtype=np.int64)
    above = parent.copy()
    while (above >= 0).any():
        depth += above >= 0
        above = np.where(above >= 0, parent[above], -1)
    return depth
