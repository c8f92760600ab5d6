"""The clocks of ranks that were traced on several machines, brought together by what they did together.

No rank can leave an all-reduce, an all-gather, a reduce-scatter, an all-to-all or a barrier before the last
has come, and all leave it almost at once. So a rank's clock is off by the median, over these, of how much
later than the others' median it saw the end.
"""

from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from ringside.validation.readers.kineto import Trace
from ringside.validation.traces.matching import Match

TOGETHER = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")
"""Kinds that all ranks leave together."""

_TURNS = 50
_CLOSE = 1e-10


class Clocks(NamedTuple):
    """For each rank the seconds to add to its own moments; ``residual_s`` is how far ends still are apart.

    That is the median over collectives and ranks, after the clocks are brought together; ``moved_s`` is the
    most by which a clock was moved; ``used`` how many collectives told.
    """

    shift_s: dict[int, float]
    residual_s: float
    moved_s: float
    used: int


def align(traces: Sequence[Trace], matches: Sequence[Match]) -> Clocks:
    """Bring clocks together by the ends of collectives; without any they are taken as they are."""
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
        for rank, found in after.items():
            if found:
                change = max(change, abs(median(found) - late[rank]))
                late[rank] = median(found)
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
