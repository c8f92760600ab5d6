"""Which algorithm to pick: the quickest at every size and node count, and whether that is certain.

What "quickest" rests on is a function of type `Times`, as `times_of` makes of a library. By NCCL's
tuner NCCL's default always wins, because the tuner is how NCCL chooses; only other times, such as
its ``pipeline`` clock's, can say where the default loses.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from sim.collective import Collective
from sim.libraries.library import Library

Pair = tuple[str, str]
"""An algorithm and a protocol."""

Times = Callable[[int, Sequence[int]], Mapping[Pair, Sequence[float]]]
"""Seconds of each pair on so many nodes, a figure a size; infinite where a pair is not available."""

Default = Callable[[int, int], Pair]
"""What the library itself would take on so many nodes for so many bytes."""

ERROR = 0.1
"""By how much a time may be off before anybody should be surprised: the tuner's own corrections of its
trees come in steps of a tenth. A winner by less is too close to call."""


Libraries = Callable[[int], Library]
"""The library on so many nodes."""


def times_of(libraries: Libraries, kind: str, dtype: str = "float32", redop: str = "sum") -> Times:
    """What each candidate of a library takes.

    One whose links alone take as long as the second best is not timed: that stands for it, and cannot win.
    """

    def times(nodes: int, sizes: Sequence[int]) -> dict[Pair, list[float]]:
        library, found = libraries(nodes), dict[Pair, list[float]]()
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
                found.setdefault(pair, [math.inf] * len(sizes))[place] = seconds
        return found

    return times


def default_of(libraries: Libraries, kind: str, dtype: str = "float32", redop: str = "sum") -> Default:
    """What a library takes where nobody interferes but its settings."""

    def default(nodes: int, nbytes: int) -> Pair:
        library = libraries(nodes)
        choice = library.choose(Collective(kind, library.ranks, nbytes, dtype=dtype, redop=redop))
        return choice.algorithm, choice.protocol

    return default


@dataclass(frozen=True, slots=True)
class Pick:
    """The winner at one size.

    ``margin`` is by how much the next best takes longer (0.1: a tenth; infinite if there is none),
    ``loss`` the same for the library's default, and ``None`` where its time is not known.
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

    @property
    def pair(self) -> Pair:
        """The winner's algorithm and protocol."""
        return self.algorithm, self.protocol


@dataclass(frozen=True, slots=True)
class Range:
    """Neighbouring sizes with one winner, both ends included; ``margin`` is the least among them."""

    nodes: int
    min_bytes: int
    max_bytes: int
    algorithm: str
    protocol: str
    margin: float
    too_close: bool


def pick(
    times: Times,
    nodes: Sequence[int],
    sizes: Sequence[int],
    *,
    error: float = ERROR,
    default: Default | None = None,
) -> list[Pick]:
    """The winner for every node count and size, node counts outer; of equals the earlier pair wins."""
    if not nodes or not sizes:
        raise ValueError(f"{len(nodes)} node counts and {len(sizes)} sizes; write at least one of each")
    if not 0 <= error < math.inf:
        raise ValueError(f"an error of {error}; write a fraction of 0 or more, for example 0.1")
    found = []
    for count in sorted(set(nodes)):
        ordered = sorted(set(sizes))
        table = times(count, ordered)
        for place, nbytes in enumerate(ordered):
            at_size = {pair: seconds[place] for pair, seconds in table.items()}
            found.append(_winner(count, nbytes, at_size, error, default(count, nbytes) if default else None))
    return found


def ranges(picks: Sequence[Pick]) -> list[Range]:
    """Runs of sizes that one pair wins, for each node count."""
    runs = [list(run) for _, run in groupby(picks, key=lambda pick: (pick.nodes, pick.pair))]
    return [
        Range(
            run[0].nodes,
            run[0].nbytes,
            run[-1].nbytes,
            *run[0].pair,
            margin=min(pick.margin for pick in run),
            too_close=any(pick.too_close for pick in run),
        )
        for run in runs
    ]


def _winner(nodes: int, nbytes: int, times: Mapping[Pair, float], error: float, default: Pair | None) -> Pick:
    (best, least), *others = sorted(times.items(), key=lambda item: item[1])
    if least == math.inf:
        raise ValueError(f"nothing can carry out {nbytes} B on {nodes} nodes; pin less")
    next_best, margin = None, math.inf
    if others and others[0][1] < math.inf:
        next_best, margin = others[0][0], _longer(others[0][1], least)
    known = times.get(default, math.inf) if default else math.inf
    loss = _longer(known, least) if known < math.inf else None
    return Pick(nodes, nbytes, *best, least, next_best, margin, margin < error, default, loss)


def _longer(seconds: float, least: float) -> float:
    """By which fraction one time exceeds the least; two times of nothing are equal."""
    if least == 0:
        return 0.0 if seconds == 0 else math.inf
    return seconds / least - 1
