"""Ring algorithms: every rank talks to its two neighbours only.

All-reduce is a reduce-scatter followed by an all-gather, n-1 steps each, S/n bytes a step
(Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations",
J. Parallel Distrib. Comput. 69, 2009). Broadcast and reduce are pipelines along the ring.
"""

from collections.abc import Iterator

import numpy as np

from sim.algorithms.pipeline import pipeline_chunks
from sim.collective import Collective
from sim.schedule import Schedule, Step, even_chunks, step


def _rotations(ranks: int, first: int, *, reduce: bool) -> Iterator[Step]:
    """n-1 steps; in step s rank i passes chunk ``i + first - s`` to its successor."""
    rank = np.arange(ranks)
    successor = (rank + 1) % ranks
    for s in range(ranks - 1):
        yield step(rank, successor, (rank + first - s) % ranks, reduce=reduce)


def all_reduce(collective: Collective) -> Schedule:
    """Reduce-scatter, then all-gather, each chunk S/n."""

    def steps() -> Iterator[Step]:
        yield from _rotations(collective.ranks, 0, reduce=True)
        yield from _rotations(collective.ranks, 1, reduce=False)

    return Schedule(collective, "ring", even_chunks(collective, collective.ranks), steps)


def reduce_scatter(collective: Collective) -> Schedule:
    """The first half of the all-reduce, turned so that rank r ends with part r."""

    def steps() -> Iterator[Step]:
        return _rotations(collective.ranks, -1, reduce=True)

    return Schedule(collective, "ring", even_chunks(collective), steps)


def all_gather(collective: Collective) -> Schedule:
    """The second half of the all-reduce: every part travels once around."""

    def steps() -> Iterator[Step]:
        return _rotations(collective.ranks, 0, reduce=False)

    return Schedule(collective, "ring", even_chunks(collective), steps)


def broadcast(collective: Collective) -> Schedule:
    """A pipeline from the root along the ring: the rank at distance d passes chunk c on in step c + d."""
    chunks = pipeline_chunks(collective)
    ranks, root = collective.ranks, collective.root

    def steps() -> Iterator[Step]:
        for s in range(len(chunks) + ranks - 2):
            distance = np.arange(max(0, s - len(chunks) + 1), min(s + 1, ranks - 1))
            yield step((root + distance) % ranks, (root + distance + 1) % ranks, s - distance, reduce=False)

    return Schedule(collective, "ring", chunks, steps)


def reduce(collective: Collective) -> Schedule:
    """The broadcast run backwards: sums flow along the ring and end at the root."""
    chunks = pipeline_chunks(collective)
    ranks, root = collective.ranks, collective.root

    def steps() -> Iterator[Step]:
        for s in range(len(chunks) + ranks - 2):
            travelled = np.arange(max(0, s - len(chunks) + 1), min(s + 1, ranks - 1))
            src = (root + 1 + travelled) % ranks
            yield step(src, (src + 1) % ranks, s - travelled, reduce=True)

    return Schedule(collective, "ring", chunks, steps)


BUILDS = {
    "all_reduce": all_reduce,
    "reduce_scatter": reduce_scatter,
    "all_gather": all_gather,
    "broadcast": broadcast,
    "reduce": reduce,
}
