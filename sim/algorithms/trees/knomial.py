"""K-nomial trees: each holder sends the data to k-1 ranks at a distance, then at a k-th of the distance.

Every hop carries all data in one message: n = k^m ranks take m (alpha + (k-1) S beta). Open MPI's radix is 4
(coll_base_topo.c); a radix of 2 is the binomial tree.
"""

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np

from ringside.sim.collective import Collective
from ringside.sim.schedule import Ints, Schedule, Step, even_chunks, step

RADIX = 4


def read(text: str) -> dict[str, Any]:
    """Parse a radix."""
    if not text.isdecimal() or int(text) < 2:
        raise ValueError(f"{text!r} is not a radix; write 2 or more, for example knomial:{RADIX}")
    return {"radix": int(text)}


def hops(ranks: int, radix: int) -> Iterator[tuple[Ints, Ints]]:
    """Return parents and children of each round, furthest first; numbers count from the root."""
    distance = 1
    while distance < ranks:
        distance *= radix
    while distance > 1:
        parent = np.arange(0, ranks, distance)
        distance //= radix
        for number in range(1, min(radix, -(-ranks // distance))):
            near = parent[parent + number * distance < ranks]
            if len(near):
                yield near, near + number * distance


def tree(collective: Collective, algorithm: str, radix: int, *, up: bool, down: bool) -> Schedule:
    """Send sums to the root, or the root's data to all, or one after the other."""
    ranks, root = collective.ranks, collective.root

    def steps() -> Iterator[Step]:
        if up:
            for parent, child in list(hops(ranks, radix))[::-1]:
                yield step((child + root) % ranks, (parent + root) % ranks, 0, reduce=True)
        if down:
            for parent, child in hops(ranks, radix):
                yield step((parent + root) % ranks, (child + root) % ranks, 0, reduce=False)

    return Schedule(collective, algorithm, even_chunks(collective), steps)


def _named(collective: Collective, radix: int = RADIX, *, up: bool, down: bool) -> Schedule:
    return tree(collective, f"knomial:{radix}", radix, up=up, down=down)


BUILDS = {
    "broadcast": partial(_named, up=False, down=True),
    "reduce": partial(_named, up=True, down=False),
}
