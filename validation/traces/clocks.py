"""Align the clocks of traced ranks on several machines by their common collectives.

No rank can leave an all-reduce, an all-gather, a reduce-scatter, an all-to-all or a barrier before the last
has come, and all leave it almost at once. So a rank's clock offset is the median, over these, of how much
later than the others' median it saw the end.
"""

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from ringside.validation.readers.kineto import RankTrace
from ringside.validation.traces.matching import Match

TOGETHER = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")
"""Kinds that all ranks leave together."""

_TURNS = 50
_CLOSE = 1e-10


class Clocks(NamedTuple):
    """The seconds to add to each rank's times; ``residual_s`` is the remaining distance of ends.

    That is the median over collectives and ranks after alignment; ``moved_s`` is the largest correction of a
    clock; ``used`` the number of collectives used.
    """

    shift_s: dict[int, float]
    residual_s: float
    moved_s: float
    used: int


def align(traces: Sequence[RankTrace], matches: Sequence[Match]) -> Clocks:
    """Align clocks by the ends of collectives; without any they stay as they are."""
    origin = min(trace.origin_ns for trace in traces)
    own = {trace.rank: (trace.origin_ns - origin) / 1e9 for trace in traces if trace.rank is not None}
    ends = [
        {rank: one.end_s + own[rank] for rank, one in match.members.items() if one.end_s is not None}
        for match in matches
        if match.kind in TOGETHER
    ]
    ends = [some for some in ends if len(some) > 1]
    late = dict.fromkeys(own, 0.0)
    for _ in range(_TURNS):
        after: dict[int, list[float]] = {rank: [] for rank in own}
        for some in ends:
            middle = median(end - late[rank] for rank, end in some.items())
            for rank, end in some.items():
                after[rank].append(end - middle)
        change = 0.0
        for rank, offsets in after.items():
            if offsets:
                change = max(change, abs(median(offsets) - late[rank]))
                late[rank] = median(offsets)
        if change < _CLOSE:
            break
    common = median(late.values())
    late = {rank: by - common for rank, by in late.items()}
    left = [
        abs(end - late[r] - median(e - late[q] for q, e in some.items()))
        for some in ends
        for r, end in some.items()
    ]
    return Clocks(
        {rank: start - late[rank] for rank, start in own.items()},
        median(left) if left else 0.0,
        max(map(abs, late.values())),
        len(ends),
    )
