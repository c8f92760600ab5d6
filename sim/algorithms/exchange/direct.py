"""Direct exchange: every rank sends to every other, beginning with its successor so that targets differ."""

from collections.abc import Iterator

import numpy as np

from ringside.sim.collective import Collective
from ringside.sim.schedule import Schedule, Step, even_chunks, step


def _to_owners(ranks: int) -> Iterator[Step]:
    rank = np.arange(ranks)
    for s in range(1, ranks):
        yield step(rank, (rank + s) % ranks, (rank + s) % ranks, reduce=True)


def _to_all(ranks: int) -> Iterator[Step]:
    rank = np.arange(ranks)
    for s in range(1, ranks):
        yield step(rank, (rank + s) % ranks, rank, reduce=False)


def all_reduce(collective: Collective) -> Schedule:
    """Collect and sum an n-th of the data on every rank, then send the sum to all."""

    def steps() -> Iterator[Step]:
        yield from _to_owners(collective.ranks)
        yield from _to_all(collective.ranks)

    return Schedule(collective, "direct", even_chunks(collective, collective.ranks), steps)


def reduce_scatter(collective: Collective) -> Schedule:
    """Collect and sum each rank's own part."""
    return Schedule(collective, "direct", even_chunks(collective), lambda: _to_owners(collective.ranks))


def all_gather(collective: Collective) -> Schedule:
    """Send each rank's part to all."""
    return Schedule(collective, "direct", even_chunks(collective), lambda: _to_all(collective.ranks))


def all_to_all(collective: Collective) -> Schedule:
    """Send every other rank its own part of the data."""
    ranks = collective.ranks
    rank = np.arange(ranks)

    def steps() -> Iterator[Step]:
        for s in range(1, ranks):
            peer = (rank + s) % ranks
            yield step(rank, peer, rank * ranks + peer, reduce=False)

    return Schedule(collective, "direct", even_chunks(collective), steps)


def broadcast(collective: Collective) -> Schedule:
    """Send everything from the root to every other rank, one after another."""
    ranks, root = collective.ranks, collective.root

    def steps() -> Iterator[Step]:
        for s in range(1, ranks):
            yield step(root, (root + s) % ranks, 0, reduce=False)

    return Schedule(collective, "direct", even_chunks(collective), steps)


def reduce(collective: Collective) -> Schedule:
    """Send everything to the root, which sums."""
    ranks, root = collective.ranks, collective.root
    others = (root + np.arange(1, ranks)) % ranks

    def steps() -> Iterator[Step]:
        yield step(others, root, 0, reduce=True)

    return Schedule(collective, "direct", even_chunks(collective), steps)


def gather(collective: Collective) -> Schedule:
    """Send each rank's part to the root."""
    ranks, root = collective.ranks, collective.root
    others = (root + np.arange(1, ranks)) % ranks

    def steps() -> Iterator[Step]:
        yield step(others, root, others, reduce=False)

    return Schedule(collective, "direct", even_chunks(collective), steps)


def scatter(collective: Collective) -> Schedule:
    """Send every other rank its part from the root, one after another."""
    ranks, root = collective.ranks, collective.root

    def steps() -> Iterator[Step]:
        for s in range(1, ranks):
            peer = (root + s) % ranks
            yield step(root, peer, peer, reduce=False)

    return Schedule(collective, "direct", even_chunks(collective), steps)


def sendrecv(collective: Collective) -> Schedule:
    """Send to the successor and receive from the predecessor, as nccl-tests' sendrecv does."""
    rank = np.arange(collective.ranks)

    def steps() -> Iterator[Step]:
        if collective.ranks > 1:
            yield step(rank, (rank + 1) % collective.ranks, rank, reduce=False)

    return Schedule(collective, "direct", even_chunks(collective), steps)


BUILDS = {
    "all_reduce": all_reduce,
    "reduce_scatter": reduce_scatter,
    "all_gather": all_gather,
    "broadcast": broadcast,
    "reduce": reduce,
    "gather": gather,
    "scatter": scatter,
    "all_to_all": all_to_all,
    "sendrecv": sendrecv,
}
