"""A job's communication from traces: skew separate from transfer, by kind and size, and by rank.

A collective lasts on each rank from that rank's arrival to the end. It cannot finish before the last arrival:
that part is *skew*, which no network improves. From the last arrival to the end is *transfer*.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from ringside.sim.collective import KINDS
from ringside.sim.program.timeline import length, union
from ringside.validation.readers.kineto import RankTrace, Traced
from ringside.validation.traces.matching import Match, Matched, group_size, match

TOGETHER = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier")
"""Kinds that all ranks leave together."""

_TURNS = 50
_CLOSE = 1e-10


class Clocks(NamedTuple):
    """The seconds to add to each rank's times; ``residual_s`` is the remaining difference of ends.

    That is the median over collectives and ranks after alignment; ``moved_s`` is the largest correction of a
    clock; ``used`` the number of collectives used.
    """

    shift_s: dict[int, float]
    residual_s: float
    moved_s: float
    used: int


def align(traces: Sequence[RankTrace], matches: Sequence[Match]) -> Clocks:
    """Align clocks by the ends of collectives; without any they are unchanged.

    No rank can leave an all-reduce, an all-gather, a reduce-scatter, an all-to-all or a barrier before the
    last rank arrives, and all leave it almost at once. So a rank's clock offset is the median, over these, of
    its end minus the others' median end.
    """
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


Key = tuple[str | None, int | None, int | None, tuple[int, ...] | None]
"""Kind, size, number of ranks and shape of a group."""


class AlignedCollective(NamedTuple):
    """One collective on all traced ranks; times on the common clock, by rank."""

    match: Match
    arrivals: dict[int, float]
    ends: dict[int, float]

    @property
    def last(self) -> int:
        """The last rank to arrive."""
        return max(self.arrivals, key=lambda rank: self.arrivals[rank])

    @property
    def skew_s(self) -> float:
        """From the first arrival to the last."""
        return max(self.arrivals.values()) - min(self.arrivals.values())

    @property
    def lead_s(self) -> float:
        """The delay of the last rank after the one before it."""
        *_, second, last = sorted(self.arrivals.values())
        return last - second

    @property
    def transfers(self) -> dict[int, float]:
        """From the last arrival to the end on each rank."""
        last = max(self.arrivals.values())
        return {rank: end - last for rank, end in self.ends.items()}

    @property
    def transfer_s(self) -> float:
        """From the last arrival to the last end."""
        return max(0.0, *self.transfers.values())


@dataclass(frozen=True, slots=True)
class CollectiveRow:
    """All collectives of one kind, size and shape of group.

    ``members`` are the ranks of a group relative to its first, where traces have them. ``time_s`` is their
    total time, the mean over the traced ranks. ``transfer_s`` is the median, which gives the bandwidths; for
    a single rank it is an estimate: the shortest one, which waited least. ``last`` is the rank that was last
    most often, and its share.
    """

    kind: str | None
    nbytes: int | None
    ranks: int | None
    members: tuple[int, ...] | None
    count: int
    time_s: float | None
    median_s: float | None
    transfer_s: float | None
    skew_s: float | None
    last: int | None
    last_share: float | None

    @property
    def stride(self) -> int | None:
        """The distance of the group's ranks, if constant: 1 for neighbours."""
        steps = {b - a for a, b in pairwise(self.members or ())}
        return steps.pop() if len(steps) == 1 else None

    @property
    def algbw(self) -> float | None:
        """Algorithm bandwidth in bytes/s, as nccl-tests defines it."""
        return self.nbytes / self.transfer_s if self.nbytes and self.transfer_s else None

    @property
    def busbw(self) -> float | None:
        """Bus bandwidth in bytes/s, as nccl-tests defines it; None without kind and ranks."""
        if self.algbw is None or self.ranks is None or self.kind not in KINDS:
            return None
        return self.algbw * KINDS[self.kind].busbw_factor(self.ranks)


class RankRow(NamedTuple):
    """One rank: its communication, and the part not hidden behind its own work.

    ``share`` and ``exposed_share`` are of ``window_s``, from its first work or collective to its last.
    ``last`` is the number of collectives in which it was last, ``lead_s`` its median delay in these,
    ``waited_s`` its total wait for others. Calls alone have no times.
    """

    rank: int | None
    collectives: int
    window_s: float
    communication_s: float | None
    exposed_s: float | None
    last: int | None
    lead_s: float | None
    waited_s: float | None
    transfer_s: float | None

    @property
    def share(self) -> float | None:
        """The share of its window in which it communicated."""
        return (
            self.communication_s / self.window_s
            if self.communication_s and self.window_s
            else self.communication_s
        )

    @property
    def exposed_share(self) -> float | None:
        """The share of its window in which it communicated and did nothing else."""
        return self.exposed_s / self.window_s if self.exposed_s and self.window_s else self.exposed_s


@dataclass(frozen=True, slots=True)
class Analysis:
    """The analysis of a job's traces; ``meetings`` and ``clocks`` need two ranks or more."""

    traces: tuple[RankTrace, ...]
    rows: tuple[CollectiveRow, ...]
    ranks: tuple[RankRow, ...]
    meetings: tuple[AlignedCollective, ...] = ()
    matched: Matched | None = None
    clocks: Clocks | None = None

    @property
    def disagreement(self) -> float | None:
        """The median deviation of a collective's transfer times over ranks, relative to their median."""
        differences = []
        for meeting in self.meetings:
            if middle := median(meeting.transfers.values()):
                differences += [abs(one - middle) / abs(middle) for one in meeting.transfers.values()]
        return median(differences) if differences else None


def analyse(traces: Sequence[RankTrace]) -> Analysis:
    """Match collectives, align clocks and summarise."""
    if len(traces) == 1:
        trace = traces[0]
        rows = _rows_alone([(trace, one) for one in trace.collectives])
        return Analysis((trace,), tuple(rows), (_rank(trace, []),))
    matched = match(traces)
    clocks = align(traces, matched.matches)
    meetings = [one for match in matched.matches if (one := _meeting(match, clocks))]
    ranks = [_rank(trace, meetings) for trace in traces]
    met = {id(one) for meeting in meetings for one in meeting.match.members.values()}
    rest = [(trace, one) for trace in traces for one in trace.collectives if id(one) not in met]
    rows = [*_rows(meetings), *_rows_alone(rest)]
    return Analysis(tuple(traces), tuple(rows), tuple(ranks), tuple(meetings), matched, clocks)


def busy(trace: RankTrace) -> list[tuple[float, float]]:
    """Return the times of a rank's work other than collectives."""
    return union((span.begin_s, span.end_s) for span in trace.work)


def communicating(trace: RankTrace) -> list[tuple[float, float]]:
    """Return the times in which a rank's collectives or messages are in progress, including waits."""
    return union((one.begin_s, one.end_s) for one in trace.collectives if one.end_s is not None)


def window(trace: RankTrace) -> tuple[float, float]:
    """Return the window from a rank's first work or collective to its last."""
    spans = [*busy(trace), *communicating(trace)]
    return (min(spans)[0], max(end for _, end in spans)) if spans else (0.0, 0.0)


def _meeting(match: Match, clocks: Clocks) -> AlignedCollective | None:
    if len(match.members) < 2 or any(one.end_s is None for one in match.members.values()):
        return None
    shift = clocks.shift_s
    return AlignedCollective(
        match,
        {rank: one.begin_s + shift[rank] for rank, one in match.members.items()},
        {rank: one.end_s + shift[rank] for rank, one in match.members.items() if one.end_s is not None},
    )


def _rows(meetings: Sequence[AlignedCollective]) -> list[CollectiveRow]:
    groups: dict[Key, list[AlignedCollective]] = defaultdict(list)
    for meeting in meetings:
        match = meeting.match
        one = next(iter(match.members.values()))
        groups[match.kind, match.nbytes, match.ranks, _members(one, match.ranks)].append(meeting)
    rows = []
    for (kind, nbytes, ranks, members), own in groups.items():
        lasted = [[meeting.ends[r] - at for r, at in meeting.arrivals.items()] for meeting in own]
        last, times = Counter(meeting.last for meeting in own).most_common(1)[0]
        rows.append(
            CollectiveRow(
                kind, nbytes, ranks, members, len(own),
                sum(sum(some) / len(some) for some in lasted),
                median(one for some in lasted for one in some),
                median(meeting.transfer_s for meeting in own),
                median(meeting.skew_s for meeting in own),
                last, times / len(own),
            )
        )  # fmt: skip
    return sorted(rows, key=_largest_first)


def _rows_alone(seen: Iterable[tuple[RankTrace, Traced]]) -> list[CollectiveRow]:
    """Return rows of collectives seen on one rank only, or unmatched: each is counted."""
    groups: dict[Key, list[Traced]] = defaultdict(list)
    for trace, one in seen:
        size = group_size(trace, one)
        groups[one.kind, one.nbytes(size), size, _members(one, size)].append(one)
    rows = []
    for (kind, nbytes, ranks, members), own in groups.items():
        lasted = [one.duration_s for one in own if one.duration_s is not None]
        rows.append(
            CollectiveRow(
                kind, nbytes, ranks, members, len(own), sum(lasted) if lasted else None,
                median(lasted) if lasted else None, min(lasted) if lasted and nbytes else None,
                None, None, None,
            )
        )  # fmt: skip
    return sorted(rows, key=_largest_first)


def _members(one: Traced, size: int | None) -> tuple[int, ...] | None:
    """Return the ranks of a group relative to its first; all for an unnamed group of the job."""
    ranks = one.group.ranks
    if ranks:
        return tuple(rank - ranks[0] for rank in ranks)
    return tuple(range(size)) if size and one.group.name is None else None


def _largest_first(row: CollectiveRow) -> tuple[str, int, int]:
    return row.kind or "~", -(row.nbytes or 0), row.ranks or 0


def _rank(trace: RankTrace, meetings: Sequence[AlignedCollective]) -> RankRow:
    communication, work = communicating(trace), busy(trace)
    begin, end = window(trace)
    is_timed = bool(communication) or not trace.collectives
    of_rank = [meeting for meeting in meetings if trace.rank in meeting.arrivals]
    leads = [meeting.lead_s for meeting in of_rank if meeting.last == trace.rank]
    waited = [
        max(meeting.arrivals.values()) - meeting.arrivals[trace.rank]
        for meeting in of_rank
        if trace.rank is not None
    ]
    return RankRow(
        trace.rank,
        len(trace.collectives),
        end - begin,
        length(communication) if is_timed else None,
        length(union([*communication, *work])) - length(work) if is_timed else None,
        len(leads) if of_rank else None,
        median(leads) if leads else None,
        sum(waited) if of_rank else None,
        sum(meeting.transfer_s for meeting in of_rank) if of_rank else None,
    )
