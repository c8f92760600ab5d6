"""Traces as a `Program`: work of its recorded length, and collectives to replay on another network.

A rank's work is split at waits: a collective begins after all work that the host had launched before its
call, as on PyTorch's streams, and work waits for the collectives that the host made it wait for, or, where a
trace has no such waits, for those that ended while nothing else ran just before it. Unexplained time, mainly
the host's own delays, stays as a gap of its recorded length.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import NamedTuple

from ringside.sim.collective import KINDS, Collective
from ringside.sim.libraries.rules import RULES, rules_of
from ringside.sim.program.operations import Call, Compute, Group, Operation, Program
from ringside.validation.readers.kineto import RankTrace, Traced
from ringside.validation.traces.analysis import AlignedCollective, Analysis, window
from ringside.validation.traces.matching import group_size

WORK = "compute"
"""The lane of a rank's work."""

BARRIER_BYTES = 4
"""PyTorch's barrier with NCCL is an all-reduce of one number."""

_GAP = "other"
_TOLERANCE_S = 1e-9


@dataclass(frozen=True, slots=True)
class TracedProgram:
    """A program, and the recorded transfer time of each collective by rank and position.

    ``roles`` gives each rank's representative among the traced ones; ``kept`` counts collectives and messages
    that stay at their recorded length, because the traces lack their partners or sizes.
    """

    program: Program
    seconds: dict[tuple[int, int], float]
    roles: tuple[int, ...]
    recorded_s: float
    calls: int
    kept: int

    @property
    def is_alike(self) -> bool:
        """Whether ranks without a trace are assumed to behave like a traced one."""
        return len(set(self.roles)) < len(self.roles)


class _Piece(NamedTuple):
    """A collective on one rank's own clock; its call, or ``None`` where its recorded length is kept.

    ``transfer`` is its time after the last arrival. For a single traced rank the rest is a wait that stays.
    """

    begin: float
    end: float
    called: float
    lane: str
    name: str
    kind: str
    call: Call | None
    transfer: float
    wait: float = 0.0


def program_of(analysis: Analysis) -> TracedProgram:
    """Return the program of the traces, in groups of the traced library: Gloo, or NCCL."""
    traces = analysis.traces
    library = rules_of(traces[0].backend).name
    ranks = _ranks(traces)
    pieces = _shared(analysis, ranks, library) if len(traces) > 1 else _of_one(traces[0], ranks, library)
    shift = analysis.clocks.shift_s if analysis.clocks else {}
    number = [0 if trace.rank is None else trace.rank for trace in traces]
    windows = [window(trace) for trace in traces]
    moved = [shift.get(rank, 0.0) for rank in number]
    start = min(begin + by for (begin, _), by in zip(windows, moved, strict=True))
    end = max(end + by for (_, end), by in zip(windows, moved, strict=True))
    operations: dict[int, list[Operation]] = {}
    seconds: dict[tuple[int, int], float] = {}
    for trace, rank, by in zip(traces, number, moved, strict=True):
        writer = _Writer(trace, start - by, pieces.get(rank, []))
        operations[rank] = writer.operations
        seconds.update({(rank, place): time for place, time in writer.seconds.items()})
    roles = tuple(rank if rank in operations else number[0] for rank in range(ranks))
    return TracedProgram(
        Program("trace", ranks, lambda rank: operations[roles[rank]], roles.__getitem__),
        seconds,
        roles,
        end - start,
        len(analysis.meetings) or sum(one.call is not None for one in pieces.get(number[0], [])),
        sum(one.call is None for own in pieces.values() for one in own),
    )


def _ranks(traces: Sequence[RankTrace]) -> int:
    """Return the number of ranks of the job, or the minimum that the traces imply."""
    count = next((trace.ranks for trace in traces if trace.ranks), 0)
    sizes = [group_size(trace, one) or 0 for trace in traces for one in trace.collectives]
    return count or max([1, *sizes, *((trace.rank or 0) + 1 for trace in traces)])


def _shared(analysis: Analysis, ranks: int, library: str) -> dict[int, list[_Piece]]:
    """Return each traced rank's collectives; fully matched ones are calls, each in a group of its own."""
    pieces: dict[int, list[_Piece]] = {trace.rank: [] for trace in analysis.traces if trace.rank is not None}
    met: set[int] = set()
    for number, meeting in enumerate(analysis.meetings):
        members = _members(meeting, ranks)
        if members is None or max(members) >= ranks or not set(meeting.arrivals) <= set(members):
            continue
        collective = _collective(meeting.match.kind, meeting.match.nbytes, len(members))
        if collective is None:
            continue
        one = next(iter(meeting.match.members.values()))
        group = Group(f"{one.group.name or 'world'} {number}", members, library, RULES[library].workers)
        call = Call(group, meeting.match.kind or "", collective)
        for rank, traced in meeting.match.members.items():
            met.add(id(traced))
            pieces[rank].append(_piece(traced, call, max(0.0, meeting.transfers[rank])))
    for trace in analysis.traces:
        for traced in trace.collectives:
            if trace.rank is not None and id(traced) not in met and traced.end_s is not None:
                pieces[trace.rank].append(_piece(traced, None, 0.0))
    return pieces


def _members(meeting: AlignedCollective, ranks: int) -> tuple[int, ...] | None:
    """Return the ranks of a collective's group: named, all of the job, or all that matched."""
    named = next(iter(meeting.match.members.values())).group.ranks
    size = meeting.match.ranks or (ranks if len(meeting.arrivals) == ranks else None)
    if named or size == ranks:
        return named or tuple(range(ranks))
    return tuple(sorted(meeting.arrivals)) if size == len(meeting.arrivals) else None


def _of_one(trace: RankTrace, ranks: int, library: str) -> dict[int, list[_Piece]]:
    """Return the collectives of a single traced rank, each with its whole group."""
    groups: dict[tuple[str | None, tuple[int, ...], str], Group] = {}
    shortest: dict[tuple[str | None, int | None, int | None], float] = {}
    timed = [one for one in trace.collectives if one.duration_s is not None]
    for one in timed:
        key = _alike(trace, one)
        shortest[key] = min(shortest.get(key, inf), one.duration_s or 0.0)
    pieces = []
    for one in timed:
        size = group_size(trace, one)
        members = one.group.ranks or (tuple(range(ranks)) if size == ranks else None)
        collective = _collective(one.kind, one.nbytes(size), len(members)) if members else None
        call = None
        if members and collective and max(members) < ranks:
            of = one.group.name, members, one.stream  # each stream has a communicator of its own
            if of not in groups:
                groups[of] = Group(one.group.name or "world", members, library, RULES[library].workers)
            call = Call(groups[of], one.kind or "", collective)
        transfer = shortest[_alike(trace, one)]
        pieces.append(_piece(one, call, transfer, (one.duration_s or 0.0) - transfer))
    return {trace.rank or 0: pieces}


def _collective(kind: str | None, nbytes: int | None, ranks: int) -> Collective | None:
    """Return the collective for a library, if the traces suffice."""
    if kind == "barrier":
        return Collective("all_reduce", ranks, BARRIER_BYTES)
    if kind not in KINDS or nbytes is None:
        return None
    return Collective(kind, ranks, nbytes)


def _alike(trace: RankTrace, one: Traced) -> tuple[str | None, int | None, int | None]:
    """Return the key of collectives with equal durations without skew."""
    size = group_size(trace, one)
    return one.kind, one.nbytes(size), size


def _piece(one: Traced, call: Call | None, transfer: float, wait: float = 0.0) -> _Piece:
    assert one.end_s is not None
    called = one.begin_s if one.called_s is None else one.called_s
    return _Piece(
        one.begin_s, one.end_s, min(called, one.begin_s), f"stream {one.stream}", one.name,
        one.kind or "communication", call, transfer, wait if call else 0.0,
    )  # fmt: skip


class _Writer:
    """Writes the operations of one rank, from ``start`` on its own clock."""

    def __init__(self, trace: RankTrace, start: float, pieces: Sequence[_Piece]) -> None:
        self.operations: list[Operation] = []
        self.seconds: dict[int, float] = {}
        self._trace, self._start = trace, start
        self._pieces = sorted(pieces, key=lambda one: (one.begin, one.called))
        self._work = sorted(trace.work, key=lambda span: span[:2])
        self._until = [start]
        """The end of the last piece of work, by the number of pieces before it."""
        for span in self._work:
            self._until.append(max(self._until[-1], span.end_s))
        before = [self._work_before(piece) for piece in self._pieces]
        awaited = self._awaited()
        cuts = sorted({0, len(self._work), *before, *awaited})
        self._place_after: dict[int, int] = {}
        self._place_of: dict[int, int] = {}
        self._lanes: dict[str, float] = {}
        self._write(cuts, before, awaited)

    def _write(self, cuts: list[int], before: list[int], awaited: dict[int, list[int]]) -> None:
        """Write all work and all collectives, in order of their begin."""
        stretches = [(self._work[a].begin_s, 0, a, b) for a, b in pairwise(cuts)]
        pieces = [(piece.begin, 1, number, 0) for number, piece in enumerate(self._pieces)]
        for _, is_piece, first, last in sorted([*stretches, *pieces]):
            if is_piece:
                self._write_piece(first, before[first])
            else:
                self._write_work(first, last, awaited.get(first, []))

    def _write_work(self, first: int, last: int, waits: list[int]) -> None:
        begin, free = self._work[first].begin_s, self._until[first]
        after = tuple(self._place_of[number] for number in waits)
        free = max([free, *(self._pieces[number].end for number in waits)])
        after = self._gap(begin - free, WORK, after)
        seconds = max(0.0, self._until[last] - max(begin, self._until[first]))
        self._place_after[last] = self._post(
            Operation(Compute(seconds), WORK, after, name="work", category=WORK)
        )

    def _write_piece(self, number: int, before: int) -> None:
        piece = self._pieces[number]
        after: tuple[int, ...] = (self._place_after[before],) if before else ()
        free = max(self._until[before] if before else self._start, self._lanes.get(piece.lane, self._start))
        after = self._gap(piece.begin + piece.wait - free, piece.lane, after)
        self._lanes[piece.lane] = max(piece.end, self._lanes.get(piece.lane, self._start))
        action = piece.call or Compute(piece.end - piece.begin)
        place = self._post(Operation(action, piece.lane, after, name=piece.name, category=piece.kind))
        self._place_of[number] = place
        if piece.call:
            self.seconds[place] = piece.transfer

    def _gap(self, seconds: float, lane: str, after: tuple[int, ...]) -> tuple[int, ...]:
        """Leave the lane idle for some seconds; return the operations that the next one waits for."""
        if seconds <= _TOLERANCE_S:
            return after
        self._post(Operation(Compute(seconds), lane, after, name="gap", category=_GAP))
        return ()

    def _post(self, operation: Operation) -> int:
        self.operations.append(operation)
        return len(self.operations) - 1

    def _work_before(self, piece: _Piece) -> int:
        """Return the number of work pieces launched before a collective and ended at its begin."""
        number = bisect_right(self._work, piece.begin, key=lambda span: span.begin_s)
        while number and (
            (self._work[number - 1].called_s or 0.0) > piece.called
            or self._until[number] > piece.begin + _TOLERANCE_S
        ):
            number -= 1
        return number

    def _awaited(self) -> dict[int, list[int]]:
        """Return the collectives that work waits for, by the first waiting piece."""
        awaited: dict[int, list[int]] = {}
        pending: list[int] = []
        waits = self._trace.waits
        begun = called = 0
        for number, span in enumerate(self._work):
            while begun < len(self._pieces) and self._pieces[begun].begin <= span.begin_s:
                pending.append(begun)
                begun += 1
            if waits:
                reached = bisect_right(waits, span.begin_s if span.called_s is None else span.called_s)
                if reached <= called:
                    continue
                called, last = reached, waits[reached - 1]
                own = [one for one in pending if self._pieces[one].called < last]
                own = [one for one in own if self._pieces[one].end <= span.begin_s + _TOLERANCE_S]
            else:
                own = [one for one in pending if self._until[number] < self._pieces[one].end <= span.begin_s]
            if own:
                awaited[number] = own
                pending = [one for one in pending if one not in own]
        return awaited
