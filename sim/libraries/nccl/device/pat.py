"""PAT, parallel aggregated trees, as steps: all-gather and reduce-scatter over one binomial tree per rank.

Of n ranks, a block goes from its owner to the rank s places before it over the nodes of a binomial tree: s
comes from s without its lowest bit, so that far ranks have it first. Reduce-scatter is the same backwards.
All owners' trees do the same at once, and blocks whose next hop is of one length travel together: all
those of the tree's top, whose places are multiples of n / a, and then, place by place below n / a
in the tree's own order, depth first, those of a parts of the tree. So few blocks are under way at
once, and small ones take a logarithm of messages (S. Jeaugey, "PAT: a new algorithm for all-gather
and reduce-scatter operations at scale", arXiv:2506.20252, 2025; the numbers a are those of
src/include/collectives.h, v2.30.7).
"""

from collections.abc import Iterator

import numpy as np

from ringside.sim.libraries.nccl.chunks import STEPS, Chunking
from ringside.sim.schedule import Step, step


def aggregated(ranks: int, nbytes: int, cuts: Chunking) -> tuple[int, int]:
    """Return the number of small blocks per slot, and of the parts of a tree that move in such slots.

    A channel carries ``nbytes`` of each block and has `STEPS` slots.
    """
    together = 1
    while cuts.chunk // (max(nbytes, 1) * together) >= 2 and together < ranks // 2:
        together *= 2
    parts, slots = together, STEPS
    while slots > 1 and parts < ranks // 2:
        slots //= 2
        parts *= 2
    return together, parts


def loops(
    ranks: int, kind: str, parts: int, channel: int, count: int, first: int, per_block: int
) -> Iterator[Step]:
    """Yield a channel's loops over ``count`` pieces of a block, beginning with ``first`` of ``per_block``."""
    gathers = kind == "all_gather"
    order = [now for now in places(ranks, parts) if now]
    owner = np.arange(ranks)[:, None]
    for piece in range(first, first + count):
        for now in order if gathers else reversed(order):
            place = np.array(now)
            near, far = (owner - place) % ranks, (owner - (place & (place - 1))) % ranks
            src, dst = (far, near) if gathers else (near, far)
            chunk = np.broadcast_to(owner * per_block + piece, near.shape)
            yield step(src.ravel(), dst.ravel(), chunk.ravel(), reduce=not gathers, channel=channel)


def places(ranks: int, parts: int) -> Iterator[list[int]]:
    """Return places of the tree in the order in which they receive a block, simultaneous ones in one list."""
    apart = (1 << (ranks - 1).bit_length()) // parts
    stride = parts * apart
    while stride > apart:
        yield list(range(stride // 2, ranks, stride))
        stride //= 2
    for place in _below(0, apart):
        yield list(range(place, ranks, apart))


def _below(place: int, span: int) -> Iterator[int]:
    """Yield a binomial tree below a place, depth first, the widest branch first."""
    while span > 1:
        span //= 2
        yield place + span
        yield from _below(place + span, span)
