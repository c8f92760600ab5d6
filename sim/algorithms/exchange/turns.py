"""Turns: in each, every rank sends one distance ahead, after the last turn's message has arrived."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise

Pair = tuple[int, int]


class Turns(Mapping[Pair, Pair]):
    """The pair of ranks each pair waits for, as in `ringside.sim.plan.Plan.after`, computed on demand.

    In a turn of distance d rank r sends to rank r + d; ``distances`` has each turn's.
    """

    def __init__(self, ranks: int, distances: Sequence[int]) -> None:
        self._ranks = ranks
        self._distances = distances

    @cached_property
    def _before(self) -> dict[int, int]:
        """Return the distance of the previous turn, by a turn's own distance."""
        ranks, distances = self._ranks, self._distances
        return {late % ranks: early for early, late in pairwise(distances)}

    def __getitem__(self, pair: Pair) -> Pair:
        src, dst = pair
        return (src - self._before[(dst - src) % self._ranks]) % self._ranks, src

    def __iter__(self) -> Iterator[Pair]:
        for distance in self._distances[1:]:
            for src in range(self._ranks):
                yield src, (src + distance) % self._ranks

    def __len__(self) -> int:
        return self._ranks * max(len(self._distances) - 1, 0)
