"""One binary tree: sums flow up to the root while results already flow down, chunk by chunk.

The tree is NCCL's (`ringside.sim.trees`).
"""

from collections.abc import Iterator

import numpy as np

from ringside.sim.algorithms.pipeline import pipeline_chunks
from ringside.sim.collective import Collective
from ringside.sim.schedule import Chunks, Ints, Schedule, Step
from ringside.sim.streams import TransferStreams
from ringside.sim.trees import depths, heights, parents


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
