"""What traces tell of a job's communication: skew apart from transfer, by kind and size, and by rank.

A collective lasts on each rank from that rank's arrival to the end. Until the last one has come nothing can
be finished: that part is *skew*, which no network mends. From the last arrival to the end is *transfer*.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from ringside.sim.collective import KINDS
from ringside.sim.program.simulation.timeline import length, union
from ringside.validation.readers.kineto import Trace, Traced
from ringside.validation.traces.clocks import Clocks, align
from ringside.validation.traces.matching import Match, Matched, group_size, match

Key = tuple[str | None, int | None, int | None, tuple[int, ...] | None]
"""Kind, size, number of ranks and shape of a group."""


class Meeting(NamedTuple):
    """One collective on all traced ranks; moments on the common clock, by rank."""

    match: Match
    arrivals: dict[int, float]
    ends: dict[int, float]

    @property
    def last(self) -> int:
        """Who came last."""
        return max(self.arrivals, key=lambda rank: self.arrivals[rank])

    @property
    def skew_s(self) -> float:
        """From the first arrival to the last."""
        return max(self.arrivals.values()) - min(self.arrivals.values())

    @property
    def lead_s(self) -> float:
        """By how much the last came after the one before it."""
        *_, second, last = sorted(self.arrivals.values())
        return last - second

    @property
    def transfers(self) -> dict[int, float]:
        """From the last arrival to the end on each rank."""
        last = max(self.arrivals.values())
        return {rank: end - last for rank, end in self.ends.items()}

    @property
    def transfer_s(self) -> float:
        """From the last arrival until it has ended everywhere."""
        return max(0.0, *self.transfers.values())


@dataclass(frozen=True, slots=True)
class Row:
    """All collectives of one kind, size and shape of group.

    ``members`` are the ranks of a group from its first on, that one as 0, where traces tell them.
    ``time_s`` is what they took in all, the mean over the traced ranks. ``transfer_s`` is the median, by
    which the bandwidths go. Of one rank it is an estimate: the shortest of them, which waited least.
    ``last`` is who came last most often, and in which share of them.
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
        """How far the group's ranks are apart, if all are as far: 1 for neighbours."""
        steps = {b - a for a, b in pairwise(self.members or ())}
        return steps.pop() if len(steps) == 1 else None

    @property
    def algbw(self) -> float | None:
        """Algorithm bandwidth in bytes/s, as nccl-tests defines it."""
        return self.nbytes / self.transfer_s if self.nbytes and self.transfer_s else None

    @property
    def busbw(self) -> float | None:
        """Bus bandwidth in bytes/s, as nccl-tests defines it; not known without kind and ranks."""
        if self.algbw is None or self.ranks is None or self.kind not in KINDS:
            return None
        return self.algbw * KINDS[self.kind].busbw_factor(self.ranks)


class RankRow(NamedTuple):
    """One rank: what it communicated, and what of that was not hidden behind its own work.

    ``share`` and ``exposed_share`` are of ``window_s``, from its first work or collective to its last.
    ``last`` counts how often it came last; ``lead_s`` is by how much it did, the median; ``waited_s`` how
    long it waited for others in all. Of calls alone nothing is known of times.
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
        """Of its window in which it communicated."""
        return (
            self.communication_s / self.window_s
            if self.communication_s and self.window_s
            else self.communication_s
        )

    @property
    def exposed_share(self) -> float | None:
        """Of its window in which it communicated and did nothing else."""
        return self.exposed_s / self.window_s if self.exposed_s and self.window_s else self.exposed_s


@dataclass(frozen=True, slots=True)
class Analysis:
    """What is known of a job from its traces; ``meetings`` and ``clocks`` take two ranks or more."""

    traces: tuple[Trace, ...]
    rows: tuple[Row, ...]
    ranks: tuple[RankRow, ...]
    meetings: tuple[Meeting, ...] = ()
    matched: Matched | None = None
    clocks: Clocks | None = None

    @property
    def disagreement(self) -> float | None:
        """How far transfer times of one collective differ over its ranks: median share of their median."""
        found = []
        for meeting in self.meetings:
            if middle := median(meeting.transfers.values()):
                found += [abs(one - middle) / abs(middle) for one in meeting.transfers.values()]
        return median(found) if found else None


def analyse(traces: Sequence[Trace]) -> Analysis:
    """Match, bring clocks together and sum up."""
    if len(traces) == 1:
        trace = traces[0]
        rows = _rows_alone([(trace, one) for one in trace.collectives])
        return Analysis((trace,), tuple(rows), (_rank(trace, []),))
    matched = match(traces)
    clocks = align(traces, matched.matches)
    meetings = [one for found in matched.matches if (one := _meeting(found, clocks))]
    ranks = [_rank(trace, meetings) for trace in traces]
    met = {id(one) for meeting in meetings for one in meeting.match.members.values()}
    rest = [(trace, one) for trace in traces for one in trace.collectives if id(one) not in met]
    rows = [*_rows(meetings), *_rows_alone(rest)]
    return Analysis(tuple(traces), tuple(rows), tuple(ranks), tuple(meetings), matched, clocks)


def busy(trace: Trace) -> list[tuple[float, float]]:
    """When a rank did some work that is no collective."""
    return union((span.begin_s, span.end_s) for span in trace.work)


def communicating(trace: Trace) -> list[tuple[float, float]]:
    """When some collective or message was under way on a rank, waiting for others included."""
    return union((one.begin_s, one.end_s) for one in trace.collectives if one.end_s is not None)


def window(trace: Trace) -> tuple[float, float]:
    """From a rank's first work or collective to its last."""
    spans = [*busy(trace), *communicating(trace)]
    return (min(spans)[0], max(end for _, end in spans)) if spans else (0.0, 0.0)


def _meeting(found: Match, clocks: Clocks) -> Meeting | None:
    if len(found.members) < 2 or any(one.end_s is None for one in found.members.values()):
        return None
    shift = clocks.shift_s
    return Meeting(
        found,
        {rank: one.begin_s + shift[rank] for rank, one in found.members.items()},
        {rank: one.end_s + shift[rank] for rank, one in found.members.items() if one.end_s is not None},
    )


def _rows(meetings: Sequence[Meeting]) -> list[Row]:
    groups: dict[Key, list[Meeting]] = defaultdict(list)
    for meeting in meetings:
        found = meeting.match
        one = next(iter(found.members.values()))
        groups[found.kind, found.nbytes, found.ranks, _members(one, found.ranks)].append(meeting)
    rows = []
    for (kind, nbytes, ranks, members), own in groups.items():
        lasted = [[meeting.ends[r] - at for r, at in meeting.arrivals.items()] for meeting in own]
        last, times = Counter(meeting.last for meeting in own).most_common(1)[0]
        rows.append(
            Row(
                kind, nbytes, ranks, members, len(own),
                sum(sum(some) / len(some) for some in lasted),
                median(one for some in lasted for one in some),
                median(meeting.transfer_s for meeting in own),
                median(meeting.skew_s for meeting in own),
                last, times / len(own),
            )
        )  # fmt: skip
    return sorted(rows, key=_largest_first)


def _rows_alone(found: Iterable[tuple[Trace, Traced]]) -> list[Row]:
    """Rows of what was seen on one rank only, or met nobody: each is counted."""
    groups: dict[Key, list[Traced]] = defaultdict(list)
    for trace, one in found:
        size = group_size(trace, one)
        groups[one.kind, one.nbytes(size), size, _members(one, size)].append(one)
    rows = []
    for (kind, nbytes, ranks, members), own in groups.items():
        lasted = [one.duration_s for one in own if one.duration_s is not None]
        rows.append(
            Row(
                kind, nbytes, ranks, members, len(own), sum(lasted) if lasted else None,
                median(lasted) if lasted else None, min(lasted) if lasted and nbytes else None,
                None, None, None,
            )
        )  # fmt: skip
    return sorted(rows, key=_largest_first)


def _members(one: Traced, size: int | None) -> tuple[int, ...] | None:
    """The ranks of a group from its first on; all in turn where it is one of the whole job without a name."""
    ranks = one.group.ranks
    if ranks:
        return tuple(rank - ranks[0] for rank in ranks)
    return tuple(range(size)) if size and one.group.name is None else None


def _largest_first(row: Row) -> tuple[str, int, int]:
    return row.kind or "~", -(row.nbytes or 0), row.ranks or 0


def _rank(trace: Trace, meetings: Sequence[Meeting]) -> RankRow:
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
