"""One binary tree: sums flow up to the root while results already flow down, chunk by chunk.

The tree is NCCL's: in-order numbering, so that odd ranks are leaves and rank 0 is a root with one
child (NCCL src/graph/trees.cc, v2.30.7; the idea is Sanders, Speck and Träff's, "Two-tree
algorithms for full bandwidth broadcast, reduction and scan", Parallel Computing 35, 2009).
"""

from collections.abc import Iterator

import numpy as np

from ringside.sim.algorithms.pipeline import pipeline_chunks
from ringside.sim.collective import Collective
from ringside.sim.schedule import Chunks, Ints, Schedule, Step
from ringside.sim.streams import TransferStreams


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


def streams(
    parent: Ints, chunks: range, count: int, *, up: bool = True, down: bool = True, channel: int = 0
) -> TransferStreams:
    """Return the tree's transfers of some of ``count`` chunks, in an order that satisfies dependencies.

    A rank of height h passes sums up with lag h; the root of height H holds the result with lag H, so a rank
    at depth d receives it with lag H + d - 1.
    """
    child = np.flatnonzero(parent >= 0)
    height, depth = heights(parent), depths(parent)
    own = {"channel": channel, "first": chunks.start, "count": len(chunks), "chunks": count}
    rising = TransferStreams.of(child, parent[child], lag=height[child], sums=len(chunks), **own)
    lag = depth[child] - 1 + (height.max() if up else 0)
    falling = TransferStreams.of(parent[child], child, lag=lag, sums=0, **own)
    if up and down:
        return rising.beside(falling)
    return rising if up else falling


def waves(
    parent: Ints, chunks: range, *, up: bool = True, down: bool = True, channel: int = 0
) -> Iterator[Step]:
    """Return the steps of `streams`: wave w moves chunk ``w - lag``."""
    return streams(parent, chunks, chunks.stop, up=up, down=down, channel=channel)()


def _build(collective: Collective, chunks: Chunks, *, up: bool, down: bool) -> Schedule:
    # rotated so that the tree's root, rank 0, is the collective's
    parent = np.roll(parents(collective.ranks), collective.root)
    parent = np.where(parent >= 0, (parent + collective.root) % collective.ranks, -1)
    steps = streams(parent, range(len(chunks)), len(chunks), up=up, down=down)
    return Schedule(collective, "tree", chunks, steps)


def all_reduce(collective: Collective) -> Schedule:
    """Send up and down at once: the root's result of chunk c passes the sums of later chunks."""
    return _build(collective, pipeline_chunks(collective), up=True, down=True)


def reduce(collective: Collective) -> Schedule:
    """Send up only."""
    return _build(collective, pipeline_chunks(collective), up=True, down=False)


def broadcast(collective: Collective) -> Schedule:
    """Send down only."""
    return _build(collective, pipeline_chunks(collective), up=False, down=True)


BUILDS = {"all_reduce": all_reduce, "reduce": reduce, "broadcast": broadcast}
