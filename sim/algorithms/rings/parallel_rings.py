"""Several rings at once, on machines with a link between every two GPUs: each link, and each card, has one.

In one machine they are link-disjoint directed Hamiltonian cycles, n-1 of them for n GPUs, fewer for 4
and 6 (Tillson, "A Hamiltonian decomposition of K*_2m, 2m >= 8", J. Combin. Theory B 29, 1980). Over several,
each ring enters a machine at another GPU, visits the others in Walecki's zigzag, and leaves by the card of
the last, beside which it enters the next machine. Each ring carries its share of the data as `ring` does.
"""

from collections.abc import Iterator

import numpy as np

from ringside.sim.collective import Collective
from ringside.sim.schedule import Schedule, Step, even_chunks, step
from ringside.sim.steps import Ints

KINDS = ("all_reduce", "reduce_scatter", "all_gather")
"""The collectives that are shared out over the rings."""


def schedule(collective: Collective, machines: int) -> Schedule:
    """Return the schedule on equally many ranks of each machine; all-reduce is the other two in turn."""
    ranks, kind = collective.ranks, collective.kind
    order = orders(machines, ranks // machines)
    rings = np.arange(len(order))[:, None]
    source, target = order, np.roll(order, -1, axis=1)
    sums = 0 if kind == "all_gather" else ranks - 1
    first, count = (-1, sums) if kind == "reduce_scatter" else (0, sums + ranks - 1)

    def steps() -> Iterator[Step]:
        for number in range(count):
            part = np.roll(order, number - first, axis=1)
            chunk = part * len(order) + rings
            columns = (np.ravel(column) for column in np.broadcast_arrays(source, target, chunk, rings))
            src, dst, chunks, channel = columns
            yield step(src, dst, chunks, channel=channel, reduce=number < sums)

    per_block = len(order) * ranks // collective.num_blocks
    return Schedule(collective, "parallel_rings", even_chunks(collective, per_block), steps)


def orders(machines: int, gpus: int) -> Ints:
    """Return the ranks of each ring in order, a row a ring."""
    if machines == 1:
        return np.array(cycles(gpus))
    zigzag = [(place + 1) // 2 * (1 if place % 2 else -1) for place in range(gpus)]
    entry = np.arange(gpus)[:, None] + np.arange(machines) * zigzag[-1]
    inside = (entry[:, :, None] + np.array(zigzag)) % gpus
    ranks: Ints = (inside + gpus * np.arange(machines)[:, None]).reshape(gpus, -1)
    return ranks


def cycles(count: int) -> list[tuple[int, ...]]:
    """Return link-disjoint directed Hamiltonian cycles of ``count`` points: all that the search finds."""
    best: list[tuple[int, ...]] = []
    left = [10_000]

    def search(rings: list[tuple[int, ...]], used: frozenset[tuple[int, int]], path: tuple[int, ...]) -> bool:
        nonlocal best
        left[0] -= 1
        if len(path) == count and (path[-1], 0) not in used:
            rings, used, path = [*rings, path], used | {(path[-1], 0)}, (0,)
            best = max(best, rings, key=len)
        if len(best) == count - 1 or left[0] < 0:
            return True
        following = range(1, count) if len(path) > 1 else range(len(rings) + 1, min(len(rings) + 2, count))
        free = (point for point in following if point not in path and (path[-1], point) not in used)
        return any(search(rings, used | {(path[-1], point)}, (*path, point)) for point in free)

    search([], frozenset(), (0,))
    return best
