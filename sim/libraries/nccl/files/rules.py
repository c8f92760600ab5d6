"""Stretches of sizes with one pair each: the content of files for NCCL's tuners."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

from ringside.sim.libraries.nccl.communicator import Communicator
from ringside.sim.libraries.nccl.tuner import cost_table, launch
from ringside.sim.pick import Pair

MOST = 2**60
"""Bytes beyond which the choice is constant."""

NEAR = 1 / 64
"""Precision of a boundary, as a fraction of the size, for times other than the tuner's own."""

Value = TypeVar("Value")

Picked = Callable[[list[int]], list[Pair]]
"""A function from sizes to pairs."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Sizes with one pair, and one number of channels if stated (0: not); both ends included."""

    min_bytes: int
    max_bytes: int
    pair: Pair
    channels: int = 0


def own_stretches(comm: Communicator, kind: str, dtype: str, redop: str) -> list[Stretch]:
    """Return NCCL's own choice from 0 to `MOST` bytes, exact to the byte."""
    table = cost_table(comm, kind, dtype, redop)
    return _stretches(changes(_parts([0, *table.jumps(MOST), MOST]), table.pairs, {}))


def picked_stretches(
    comm: Communicator, kind: str, sizes: Sequence[int], picked: Picked, dtype: str, redop: str
) -> list[Stretch]:
    """Return the ``picked`` pairs between the least and the largest of ``sizes``.

    Below and above them NCCL's own choice holds. Boundaries are within `NEAR` of the change of winner,
    if it changes once between two neighbouring sizes.
    """
    sizes = sorted(sizes)
    table = cost_table(comm, kind, dtype, redop)
    inside = changes(list(pairwise(sizes)), picked, {}, close=NEAR)
    jumps = table.jumps(MOST)
    below = _parts([0, *(jump for jump in jumps if jump < sizes[0]), sizes[0]])
    above = _parts([sizes[-1] + 1, *(jump for jump in jumps if jump > sizes[-1] + 1), MOST])
    around = [changes(parts, table.pairs, {}) for parts in (below, above)]
    return _stretches([*around[0], *inside, *around[1]])


def with_channels(comm: Communicator, stretches: Sequence[Stretch]) -> list[Stretch]:
    """Yield the same stretches, split where NCCL's number of channels for a pair changes."""
    parted = []
    for stretch in stretches:

        def channels(sizes: list[int], pair: Pair = stretch.pair) -> list[int]:
            return [launch(comm, *pair, nbytes)[0] for nbytes in sizes]

        steps = changes([(stretch.min_bytes, stretch.max_bytes)], channels, {})
        ends = [start - 1 for start, _ in steps[1:]]
        for (start, count), end in zip(steps, [*ends, stretch.max_bytes], strict=True):
            parted.append(Stretch(start, end, stretch.pair, count))
    return parted


def changes(
    parts: list[tuple[int, int]],
    values: Callable[[list[int]], list[Value]],
    known: Mapping[int, Value],
    close: float = 0.0,
) -> list[tuple[int, Value]]:
    """Return the sizes at which a function changes its value.

    In each of ``parts``, from one size to another, the function must have one value wherever both ends of a
    stretch have it; then bisection locates every change, exactly or within the fraction ``close`` of the
    size. ``known`` are values computed before.
    """
    answers = dict(known)
    questions = sorted({size for part in parts for size in part if size not in answers})
    while parts:
        answers |= zip(questions, values(questions) if questions else [], strict=True)
        parts = [
            (low, high)
            for low, high in parts
            if answers[low] != answers[high] and high - low > max(1, close * low)
        ]
        middles = [(low + high) // 2 for low, high in parts]
        questions = [size for size in middles if size not in answers]
        halves = (((low, m), (m, high)) for (low, high), m in zip(parts, middles, strict=True))
        parts = [half for both in halves for half in both]
    starts: list[tuple[int, Value]] = []
    for size in sorted(answers):
        if not starts or starts[-1][1] != answers[size]:
            starts.append((size, answers[size]))
    return starts


def _parts(corners: Sequence[int]) -> list[tuple[int, int]]:
    return [(low, high - 1) for low, high in pairwise(corners) if low < high]


def _stretches(starts: list[tuple[int, Pair]]) -> list[Stretch]:
    parted = [start for place, start in enumerate(starts) if not place or starts[place - 1][1] != start[1]]
    ends = [start - 1 for start, _ in parted[1:]]
    return [Stretch(start, end, pair) for (start, pair), end in zip(parted, [*ends, MOST - 1], strict=True)]
