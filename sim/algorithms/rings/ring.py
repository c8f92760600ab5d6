"""Ring algorithms: every rank communicates with its two neighbours only.

All-reduce is a reduce-scatter followed by an all-gather, n-1 steps each, S/n bytes per step (Patarasuk and
Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", J. Parallel Distrib. Comput. 69,
2009). Broadcast and reduce are pipelines along the ring.
"""

import numpy as np

from ringside.sim.algorithms.pipeline import pipeline_chunks
from ringside.sim.collective import Collective
from ringside.sim.schedule import Schedule, even_chunks
from ringside.sim.streams import TransferStreams


def _turning(ranks: int, first: int, count: int, sums: int) -> TransferStreams:
    """Pass chunk ``i + first - s`` from rank i to its successor in step s; the first ``sums`` add it."""
    rank = np.arange(ranks)
    return TransferStreams.of(
        rank, (rank + 1) % ranks, first=(rank + first) % ranks, count=count, sums=sums, chunks=ranks, turn=-1
    )


def all_reduce(collective: Collective) -> Schedule:
    """Reduce-scatter, then all-gather, each chunk S/n; data received in one step are sent on in the next."""
    ranks = collective.ranks
    steps = _turning(ranks, 0, count=2 * (ranks - 1), sums=ranks - 1)
    return Schedule(collective, "ring", even_chunks(collective, ranks), steps)


def reduce_scatter(collective: Collective) -> Schedule:
    """Run the first half of the all-reduce, rotated so that rank r ends with part r."""
    ranks = collective.ranks
    steps = _turning(ranks, -1, count=ranks - 1, sums=ranks - 1)
    return Schedule(collective, "ring", even_chunks(collective), steps)


def all_gather(collective: Collective) -> Schedule:
    """Run the second half of the all-reduce: every part travels once around."""
    ranks = collective.ranks
    return Schedule(collective, "ring", even_chunks(collective), _turning(ranks, 0, count=ranks - 1, sums=0))


def broadcast(collective: Collective) -> Schedule:
    """Pipeline from the root along the ring: the rank at distance d passes chunk c on in step c + d."""
    return _line(collective, collective.root, reduce=False)


def reduce(collective: Collective) -> Schedule:
    """Run the broadcast backwards: sums flow along the ring and end at the root."""
    return _line(collective, collective.root + 1, reduce=True)


def _line(collective: Collective, begin: int, *, reduce: bool) -> Schedule:
    chunks, ranks = pipeline_chunks(collective), collective.ranks
    distance, count = np.arange(ranks - 1), len(chunks)
    src = (begin + distance) % ranks
    steps = TransferStreams.of(
        src, (src + 1) % ranks, lag=distance, first=0, count=count, sums=count * reduce, chunks=count
    )
    return Schedule(collective, "ring", chunks, steps)


BUILDS = {
    "all_reduce": all_reduce,
    "reduce_scatter": reduce_scatter,
    "all_gather": all_gather,
    "broadcast": broadcast,
    "reduce": reduce,
}
