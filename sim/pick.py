"""Which algorithm to pick: the fastest at every size and node count, and whether that is certain.

"Fastest" rests on a function of type `Times`, as `times_of` makes of a library. With the tuner's times NCCL's
default always wins, because NCCL chooses by them; only other times, measured ones or those of the
``pipeline`` clock, can show where the default loses.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from ringside.sim.collective import Collective
from ringside.sim.libraries.library import Library

Pair = tuple[str, str]
"""An algorithm and a protocol."""

Times = Callable[[int, Sequence[int]], Mapping[Pair, Sequence[float]]]
"""Seconds per pair on n nodes, one per size; infinite where a pair is not available."""

Default = Callable[[int, int], Pair]
"""The library's own choice on n nodes for a number of bytes."""

ERROR = 0.1
"""Expected relative error of a time, a step of the tuner's tree corrections; less is too close to call."""


Doubt = Callable[[int, int, Pair, Pair], float]
"""Relative error of the ratio of two pairs' times, on n nodes for a number of bytes."""

BY = ("pair", "algorithm")
"""Competitors: every pair; or algorithms, each with its fastest protocol."""

Libraries = Callable[[int], Library]
"""The library on n nodes."""


def times_of(libraries: Libraries, kind: str, dtype: str = "float32", redop: str = "sum") -> Times:
    """Return each candidate's times in a library.

    A candidate whose links alone take as long as the second best cannot win; its bound is returned instead of
    its time.
    """

    def times(nodes: int, sizes: Sequence[int]) -> dict[Pair, list[float]]:
        library, by_pair = libraries(nodes), dict[Pair, list[float]]()
        for place, nbytes in enumerate(sizes):
            collective = Collective(kind, library.ranks, nbytes, dtype=dtype, redop=redop)
            at_size: dict[Pair, float] = {}
            for candidate in library.candidates(collective):
                second = sorted(at_size.values())[1] if len(at_size) > 1 else math.inf
                seconds = library.bound(collective, candidate) if second < math.inf else 0.0
                if seconds < second:
                    seconds = library.time(collective, candidate).time_s
                at_size[candidate.algorithm, candidate.protocol] = seconds
            for pair, seconds in at_size.items():
                by_pair.setdefault(pair, [math.inf] * len(sizes))[place] = seconds
        return by_pair

    return times


def default_of(libraries: Libraries, kind: str, dtype: str = "float32", redop: str = "sum") -> Default:
    """Return a library's own choices under its settings."""

    def default(nodes: int, nbytes: int) -> Pair:
        library = libraries(nodes)
        choice = library.choose(Collective(kind, library.ranks, nbytes, dtype=dtype, redop=redop))
        return choice.algorithm, choice.protocol

    return default


def doubt_of(libraries: Libraries, kind: str, dtype: str = "float32", redop: str = "sum") -> Doubt:
    """Return the relative error between a library's times: as measured, else `ERROR`."""

    def doubt(nodes: int, nbytes: int, one: Pair, other: Pair) -> float:
        library = libraries(nodes)
        error = library.doubt(Collective(kind, library.ranks, nbytes, dtype=dtype, redop=redop), one, other)
        return ERROR if error is None else error

    return doubt


@dataclass(frozen=True, slots=True)
class Pick:
    """The winner at one size.

    ``margin`` is how much longer the next best takes (0.1: a tenth; infinite if there is none); below
    ``error`` it is too close to call. ``loss`` is the same for the library's default, with its error
    ``loss_error``; ``None`` where its time is not known.
    """

    nodes: int
    nbytes: int
    algorithm: str
    protocol: str
    time_s: float
    next_best: Pair | None
    margin: float
    too_close: bool
    default: Pair | None = None
    loss: float | None = None
    error: float = ERROR
    loss_error: float = ERROR

    @property
    def pair(self) -> Pair:
        """The winner's algorithm and protocol."""
        return self.algorithm, self.protocol

    @property
    def advised(self) -> Pair:
        """The winner if the default certainly loses, else the default."""
        if self.default is None or (self.loss is not None and self.loss >= self.loss_error):
            return self.pair
        return self.default


@dataclass(frozen=True, slots=True)
class Range:
    """Neighbouring sizes with one winner, both ends included.

    ``margin`` is the least among them, and ``next_best`` the closest competitor. ``protocol`` names several
    where algorithms competed.
    """

    nodes: int
    min_bytes: int
    max_bytes: int
    algorithm: str
    protocol: str
    margin: float
    too_close: bool
    next_best: Pair | None = None


def pick(
    times: Times,
    nodes: Sequence[int],
    sizes: Sequence[int],
    *,
    error: float | Doubt = ERROR,
    default: Default | None = None,
    by: str = BY[0],
) -> list[Pick]:
    """Return the winner per node count and size, node counts outer; the earlier of equal pairs wins."""
    if by not in BY:
        raise ValueError(f"unknown competitors {by!r}; write {' or '.join(BY)}")
    if not nodes or not sizes:
        raise ValueError(f"{len(nodes)} node counts and {len(sizes)} sizes; write at least one of each")
    if not callable(error) and not 0 <= error < math.inf:
        raise ValueError(f"an error of {error}; write a fraction of 0 or more, for example 0.1")
    picks = []
    for count in sorted(set(nodes)):
        ordered = sorted(set(sizes))
        table = times(count, ordered)
        for place, nbytes in enumerate(ordered):
            at_size = {pair: seconds[place] for pair, seconds in table.items()}
            usual = default(count, nbytes) if default else None
            picks.append(_winner(count, nbytes, at_size, error, usual, by))
    return picks


def ranges(picks: Sequence[Pick], by: str = BY[0]) -> list[Range]:
    """Return runs of sizes that one pair, or one algorithm, wins, for each node count."""

    def winner(pick: Pick) -> tuple[int, Pair | str]:
        return pick.nodes, pick.pair if by == BY[0] else pick.algorithm

    runs = [list(run) for _, run in groupby(picks, key=winner)]
    nearest = [min(run, key=lambda pick: pick.margin) for run in runs]
    return [
        Range(
            run[0].nodes,
            run[0].nbytes,
            run[-1].nbytes,
            run[0].algorithm,
            "+".join(dict.fromkeys(pick.protocol for pick in run)),
            margin=near.margin,
            too_close=any(pick.too_close for pick in run),
            next_best=near.next_best,
        )
        for run, near in zip(runs, nearest, strict=True)
    ]


def _winner(
    nodes: int,
    nbytes: int,
    times: Mapping[Pair, float],
    error: float | Doubt,
    default: Pair | None,
    by: str,
) -> Pick:
    def doubt(other: Pair) -> float:
        return error(nodes, nbytes, best, other) if callable(error) else error

    (best, least), *others = sorted(times.items(), key=lambda item: item[1])
    if by != BY[0]:
        others = [(pair, seconds) for pair, seconds in others if pair[0] != best[0]]
    if least == math.inf:
        raise ValueError(
            f"no candidate can carry out {nbytes} B on {nodes} nodes; allow more algorithms or protocols"
        )
    next_best, margin = None, math.inf
    if others and others[0][1] < math.inf:
        next_best, margin = others[0][0], _longer(others[0][1], least)
    known = times.get(default, math.inf) if default else math.inf
    loss = _longer(known, least) if known < math.inf else None
    near = doubt(next_best) if next_best else 0.0
    lost = doubt(default) if default and loss else 0.0
    return Pick(
        nodes, nbytes, *best, least, next_best, margin, margin < near, default, loss, near, lost
    )  # fmt: skip


def _longer(seconds: float, least: float) -> float:
    """Return the fraction by which a time exceeds the least; two zero times are equal."""
    if least == 0:
        return 0.0 if seconds == 0 else math.inf
    return seconds / least - 1
