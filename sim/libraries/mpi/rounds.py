"""Open MPI's algorithms as rounds: sends, receives and additions of the rank that ends last, in order.

A schedule lists all messages; its rounds are the few numbers that determine its time in closed form, so that
2,048 ranks cost no more than two. The algorithms are those of Open MPI's ``coll/base`` (Pjesivac-Grbovic et
al., "Performance analysis of MPI collective operations", 2007; Thakur, Rabenseifner and Gropp, "Optimization
of collective communication operations in MPICH", 2005). Sizes are `Collective`'s.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ringside.sim.collective import Collective


@dataclass(frozen=True, slots=True)
class Round:
    """Messages that leave together, ``times`` times.

    Each has ``nbytes`` and goes ``distance`` ranks far; the busiest rank sends ``peers`` at once, ``queued``
    one after another, or ``inward`` receives them. ``exchange`` says that a rank sends to the
    rank it receives from. ``added`` bytes are reduced afterwards.
    """

    nbytes: float
    distance: int = 1
    times: int = 1
    peers: int = 1
    exchange: bool = False
    queued: bool = False
    inward: bool = False
    added: float = 0.0


@dataclass(frozen=True, slots=True)
class Scratch:
    """Memory that every call allocates: the largest block, all blocks, and the part that is written."""

    largest: float = 0.0
    total: float = 0.0
    touched: float = 0.0


@dataclass(frozen=True, slots=True)
class Rounds:
    """The timed parts of an algorithm: its rounds, the bytes each rank copies, and its scratch memory."""

    rounds: tuple[Round, ...]
    copied: float = 0.0
    scratch: Scratch = Scratch()


def _levels(ranks: int) -> int:
    """Return the rounds in which doubling reaches all ranks."""
    return (ranks - 1).bit_length()


def _floor(ranks: int) -> int:
    """Return the largest power of two that is at most ``ranks``."""
    return 1 << (ranks.bit_length() - 1)


def _halves(nbytes: float, ranks: int) -> Iterator[tuple[int, float]]:
    """Yield distance and bytes of each round of recursive halving over a power of two of ranks."""
    distance = ranks // 2
    while distance:
        yield distance, nbytes * distance / ranks
        distance //= 2


def _doubling_all_reduce(c: Collective) -> Rounds:
    base, size = _floor(c.ranks), float(c.nbytes)
    folded = [Round(size, added=size)] if base < c.ranks else []
    extra = [Round(size)] if base < c.ranks else []
    main = [Round(size, d, exchange=True, added=size) for d, _ in _halves(size, base)][::-1]
    return Rounds((*folded, *main, *extra), size)


def _rabenseifner_all_reduce(c: Collective) -> Rounds:
    base, size = _floor(c.ranks), float(c.nbytes)
    uneven = base < c.ranks
    folded = [Round(size / 2, exchange=True, added=size / 2), Round(size / 2)] if uneven else []
    extra = [Round(size)] if uneven else []
    halves = list(_halves(size, base))[::-1]
    down = [
        Round(part, d, exchange=True, added=part)
        for (d, _), (_, part) in zip(halves, halves[::-1], strict=True)
    ]
    up = [Round(r.nbytes, r.distance, exchange=True) for r in reversed(down)]
    return Rounds((*folded, *down, *up, *extra), size)


def _ring_all_reduce(c: Collective) -> Rounds:
    part, steps = c.nbytes / c.ranks, c.ranks - 1
    pair = c.ranks == 2
    return Rounds(
        (Round(part, times=steps, exchange=pair, added=part), Round(part, times=steps, exchange=pair)),
        float(c.nbytes),
    )


def _linear_all_reduce(c: Collective) -> Rounds:
    return _joined(_linear_reduce(c), _linear_broadcast(c))


def _nonoverlapping_all_reduce(c: Collective) -> Rounds:
    return _joined(_binomial_reduce(c), _binomial_broadcast(c))


def _ring_all_gather(c: Collective) -> Rounds:
    return Rounds((Round(c.nbytes / c.ranks, times=c.ranks - 1, exchange=c.ranks == 2),))


def _neighbor_all_gather(c: Collective) -> Rounds:
    if c.ranks % 2:
        return _ring_all_gather(c)
    part = c.nbytes / c.ranks
    rest = [Round(2 * part, times=c.ranks // 2 - 1, exchange=True)] if c.ranks > 2 else []
    return Rounds((Round(part, exchange=True), *rest))


def _doubling_all_gather(c: Collective) -> Rounds:
    if c.ranks & (c.ranks - 1):
        return _bruck_all_gather(c)
    return Rounds(tuple(Round(part, d, exchange=True) for d, part in _halves(c.nbytes, c.ranks))[::-1])


def _bruck_all_gather(c: Collective) -> Rounds:
    part = c.nbytes / c.ranks
    hops = [1 << level for level in range(_levels(c.ranks))]
    return Rounds(
        tuple(Round(part * min(d, c.ranks - d), d, exchange=2 * d == c.ranks) for d in hops),
        float(c.nbytes),
    )


def _linear_all_gather(c: Collective) -> Rounds:
    whole = Collective("broadcast", c.ranks, c.nbytes)
    return _joined(_linear_gather(c), _linear_broadcast(whole))


def _ring_reduce_scatter(c: Collective) -> Rounds:
    size, part = float(c.nbytes), c.nbytes / c.ranks
    return Rounds(
        (Round(part, times=c.ranks - 1, exchange=c.ranks == 2, added=part),),
        size,
        Scratch(size, size + 2 * part, size + 2 * part),
    )


def _halving_reduce_scatter(c: Collective) -> Rounds:
    base, size = _floor(c.ranks), float(c.nbytes)
    uneven = base < c.ranks
    folded = [Round(size, added=size)] if uneven else []
    extra = [Round(size / c.ranks)] if uneven else []
    main = [Round(part, d, exchange=True, added=part) for d, part in _halves(size, base)]
    return Rounds((*folded, *main, *extra), size, Scratch(size, 2 * size, 1.5 * size))


def _butterfly_reduce_scatter(c: Collective) -> Rounds:
    base, size = _floor(c.ranks), float(c.nbytes)
    uneven = base < c.ranks
    folded = [Round(size, added=size)] if uneven else []
    halves = list(_halves(size, base))
    main = [
        Round(part, d, exchange=True, added=part)
        for (_, part), (d, _) in zip(halves, halves[::-1], strict=True)
    ]
    swap = [Round(size / c.ranks, max(base // 2, 1))] if c.ranks > 2 else []
    return Rounds((*folded, *main, *swap), 2 * size, Scratch(size, 2 * size, 2 * size))


def _nonoverlapping_reduce_scatter(c: Collective) -> Rounds:
    return _joined(_binomial_reduce(c), _linear_scatter(c))


def _linear_all_to_all(c: Collective) -> Rounds:
    return Rounds((Round(c.nbytes / c.ranks, _middle(c), peers=c.ranks - 1),))


def _pairwise_all_to_all(c: Collective) -> Rounds:
    return Rounds((Round(c.nbytes / c.ranks, _middle(c), times=c.ranks - 1, exchange=c.ranks == 2),))


def _bruck_all_to_all(c: Collective) -> Rounds:
    part = c.nbytes / c.ranks
    hops = [1 << level for level in range(_levels(c.ranks))]
    counts = [sum(1 for block in range(c.ranks) if block & d) for d in hops]
    size = float(c.nbytes)
    return Rounds(
        tuple(Round(part * many, d, exchange=2 * d == c.ranks) for d, many in zip(hops, counts, strict=True)),
        2 * size + sum(counts) * part,
        Scratch(size, 2 * size, 2 * size),
    )


def _binomial_broadcast(c: Collective) -> Rounds:
    levels = _levels(c.ranks)
    return Rounds(tuple(Round(c.nbytes, 1 << (levels - k), peers=k) for k in range(levels, 0, -1)))


def _knomial_broadcast(c: Collective) -> Rounds:
    """Return the rounds of radix 4; a node sends to its children of each level at once."""
    masks = [4**level for level in range(16) if 4**level < c.ranks]
    children = [min(3, -(-c.ranks // mask) - 1) for mask in masks]
    return Rounds(
        tuple(
            Round(c.nbytes, mask, peers=sum(children[: place + 1]))
            for place, mask in reversed(list(enumerate(masks)))
        )
    )


def _binary_broadcast(c: Collective) -> Rounds:
    return Rounds(tuple(_binary_levels(c, float(c.nbytes))))


def _split_binary_broadcast(c: Collective) -> Rounds:
    if c.ranks <= 2:
        return _binary_broadcast(c)
    half = c.nbytes / 2
    return Rounds((*_binary_levels(c, half), Round(half, max(c.ranks // 4, 1), exchange=True)))


def _binary_levels(c: Collective, nbytes: float) -> Iterator[Round]:
    """Return the levels of a tree in which every rank has up to two children."""
    placed, width, left = 1, 2, c.ranks - 1
    while left > 0:
        yield Round(nbytes, placed, peers=min(2, left))
        left -= width
        placed, width = placed + width, 2 * width


def _linear_broadcast(c: Collective) -> Rounds:
    return Rounds((Round(c.nbytes, _middle(c), peers=c.ranks - 1),))


def _chain_broadcast(c: Collective) -> Rounds:
    return Rounds((Round(c.nbytes, times=c.ranks - 1),))


def _scatter_all_gather_broadcast(c: Collective) -> Rounds:
    return _in_place(_joined(_binomial_scatter(c), _doubling_all_gather(c)))


def _scatter_ring_broadcast(c: Collective) -> Rounds:
    return _in_place(_joined(_binomial_scatter(c), _ring_all_gather(c)))


def _binomial_reduce(c: Collective) -> Rounds:
    size = float(c.nbytes)
    levels = range(_levels(c.ranks))
    return Rounds(
        tuple(Round(size, 1 << k, added=size) for k in levels), size, Scratch(size, 2 * size, 2 * size)
    )


def _binary_reduce(c: Collective) -> Rounds:
    size = float(c.nbytes)
    levels = list(_binary_levels(c, size))[::-1]
    return Rounds(
        tuple(Round(size, r.distance, peers=r.peers, added=r.peers * size) for r in levels),
        size,
        Scratch(size, 2 * size, 2 * size),
    )


def _linear_reduce(c: Collective) -> Rounds:
    size = float(c.nbytes)
    others = c.ranks - 1
    return Rounds(
        (Round(size, _middle(c), peers=others, inward=True, added=others * size),),
        size,
        Scratch(size, size, size),
    )


def _chain_reduce(c: Collective) -> Rounds:
    size = float(c.nbytes)
    return Rounds((Round(size, times=c.ranks - 1, added=size),), size, Scratch(size, 2 * size, 2 * size))


def _rabenseifner_reduce(c: Collective) -> Rounds:
    base, size = _floor(c.ranks), float(c.nbytes)
    folded = [Round(size / 2, exchange=True, added=size / 2), Round(size / 2)] if base < c.ranks else []
    halves = list(_halves(size, base))
    down = [
        Round(part, d, exchange=True, added=part)
        for (_, part), (d, _) in zip(halves, halves[::-1], strict=True)
    ]
    up = [Round(r.nbytes, r.distance) for r in reversed(down)]
    return Rounds((*folded, *down, *up), size, Scratch(size, 2 * size, 1.5 * size))


def _binomial_gather(c: Collective) -> Rounds:
    part = c.nbytes / c.ranks
    hops = [1 << level for level in range(_levels(c.ranks))]
    size = c.nbytes / 2
    return Rounds(
        tuple(Round(part * min(d, c.ranks - d), d) for d in hops), scratch=Scratch(size, size, size)
    )


def _linear_gather(c: Collective) -> Rounds:
    return Rounds((Round(c.nbytes / c.ranks, _middle(c), peers=c.ranks - 1, inward=True),))


def _linear_sync_gather(c: Collective) -> Rounds:
    part = c.nbytes / c.ranks
    return Rounds((Round(0.0, _middle(c), times=c.ranks - 1), Round(part, _middle(c), times=c.ranks - 1)))


def _binomial_scatter(c: Collective) -> Rounds:
    gather = _binomial_gather(c)
    return Rounds(gather.rounds[::-1], gather.copied, gather.scratch)


def _linear_scatter(c: Collective) -> Rounds:
    return Rounds((Round(c.nbytes / c.ranks, _middle(c), peers=c.ranks - 1, queued=True),))


def _linear_nb_scatter(c: Collective) -> Rounds:
    return Rounds((Round(c.nbytes / c.ranks, _middle(c), peers=c.ranks - 1),))


def _ring_sendrecv(c: Collective) -> Rounds:
    return Rounds((Round(c.nbytes, exchange=c.ranks == 2),))


def _middle(c: Collective) -> int:
    """Return the mean distance of partners in an exchange with every rank."""
    return max(c.ranks // 2, 1)


def _in_place(rounds: Rounds) -> Rounds:
    return Rounds(rounds.rounds)


def _joined(*parts: Rounds) -> Rounds:
    return Rounds(tuple(r for part in parts for r in part.rounds), parts[0].copied, parts[0].scratch)


ROUNDS: dict[str, dict[str, Callable[[Collective], Rounds]]] = {
    "all_reduce": {
        "linear": _linear_all_reduce,
        "nonoverlapping": _nonoverlapping_all_reduce,
        "recursive_doubling": _doubling_all_reduce,
        "ring": _ring_all_reduce,
        "rabenseifner": _rabenseifner_all_reduce,
    },
    "all_gather": {
        "linear": _linear_all_gather,
        "bruck": _bruck_all_gather,
        "recursive_doubling": _doubling_all_gather,
        "ring": _ring_all_gather,
        "neighbor": _neighbor_all_gather,
    },
    "reduce_scatter": {
        "nonoverlapping": _nonoverlapping_reduce_scatter,
        "recursive_halving": _halving_reduce_scatter,
        "ring": _ring_reduce_scatter,
        "butterfly": _butterfly_reduce_scatter,
    },
    "all_to_all": {
        "linear": _linear_all_to_all,
        "pairwise": _pairwise_all_to_all,
        "modified_bruck": _bruck_all_to_all,
    },
    "broadcast": {
        "linear": _linear_broadcast,
        "chain": _chain_broadcast,
        "split_binary": _split_binary_broadcast,
        "binary": _binary_broadcast,
        "binomial": _binomial_broadcast,
        "knomial": _knomial_broadcast,
        "scatter_allgather": _scatter_all_gather_broadcast,
        "scatter_allgather_ring": _scatter_ring_broadcast,
    },
    "reduce": {
        "linear": _linear_reduce,
        "chain": _chain_reduce,
        "binary": _binary_reduce,
        "binomial": _binomial_reduce,
        "rabenseifner": _rabenseifner_reduce,
    },
    "gather": {"linear": _linear_gather, "binomial": _binomial_gather, "linear_sync": _linear_sync_gather},
    "scatter": {"linear": _linear_scatter, "binomial": _binomial_scatter, "linear_nb": _linear_nb_scatter},
    "sendrecv": {"ring": _ring_sendrecv},
}
"""Rounds by collective, then by Open MPI's name of the algorithm."""
