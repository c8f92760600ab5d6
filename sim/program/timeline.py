"""The result of a simulated program: when each operation began and ended, hidden time, its trace."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ringside.sim.program.operations import ANY, HOST, Call, Group, Recv, Send, Together
from ringside.sim.program.simulate import Simulation
from ringside.sim.trace import counter_event, name_event, span_event

NO_COMMUNICATION = ("compute", "wait", "other", "")
"""Categories of operations that are neither collective nor message."""


class Span(NamedTuple):
    """An operation of a rank from ``begin`` to ``end``, in seconds, on a lane or beside everything.

    From ``begin`` to ``start`` it waited for other participants; ``waits_for`` came last. ``kind`` is the
    operation's category.
    """

    begin: float
    start: float
    end: float
    lane: str
    kind: str
    name: str
    nbytes: int
    where: str
    waits_for: int | None = None


class RankTime(NamedTuple):
    """A rank's time until its end, in seconds, by cause.

    ``communication_s`` is the time in which a collective or message of its own was under way with all
    participants present. ``exposed_s`` is the part of it without compute. ``waiting_s`` is the time without
    compute or communication in which the rank waited at one.
    """

    end_s: float
    compute_s: float
    communication_s: float
    exposed_s: float
    waiting_s: float


class GroupTime(NamedTuple):
    """How long at least one collective or message of a group was under way, and their number."""

    group: Group
    operations: int
    busy_s: float


@dataclass(frozen=True, slots=True)
class ProgramTimeline:
    """A finished simulation of one job; ``spans`` and ``times`` by rank, for the played ones."""

    name: str
    ranks: int
    makespan_s: float
    spans: dict[int, tuple[Span, ...]]
    times: dict[int, RankTime]
    groups: tuple[GroupTime, ...]
    stands_for: dict[int, int]
    """Number of ranks that each played rank represents."""
    assumes: tuple[str, ...] = ()
    """Limits of the result, in sentences."""
    memory: dict[int, tuple[tuple[float, int], ...]] = field(default_factory=dict)
    """By rank, moments (s) and the bytes that it has allocated from each on."""

    def chrome_trace(self) -> dict[str, Any]:
        """Return the Chrome trace that ui.perfetto.dev opens: a process per rank, with its lanes."""
        return {
            "displayTimeUnit": "ms",
            "otherData": {"name": self.name},
            "traceEvents": [event for rank in self.spans for event in self._events(rank)],
        }

    def dumps(self) -> str:
        """Return the trace as JSON text, identical for identical runs."""
        return json.dumps(self.chrome_trace(), separators=(",", ":")) + "\n"

    def _events(self, rank: int) -> Iterator[dict[str, Any]]:
        alike = self.stands_for[rank]
        yield name_event("process_name", rank, 0, f"rank {rank}" + (f" and {alike - 1} alike" * (alike > 1)))
        tracks: list[tuple[str, float]] = []
        for span in sorted(self.spans[rank], key=lambda span: (span.begin, span.end)):
            free = (
                number for number, (lane, end) in enumerate(tracks) if lane == span.lane and end <= span.begin
            )
            track = next(free, len(tracks))
            if track == len(tracks):
                tracks.append((span.lane, 0.0))
                yield name_event("thread_name", rank, track, span.lane)
            tracks[track] = span.lane, span.end
            args: dict[str, Any] = {"bytes": span.nbytes, "start_us": span.start * 1e6, "where": span.where}
            if span.waits_for is not None:
                args["waits_for_rank"] = span.waits_for
            event = span_event(rank, track, span.begin, span.end, span.name)
            yield {**event, "cat": span.kind, "args": args}
        for moment, nbytes in self.memory.get(rank, ()):
            yield counter_event(rank, moment, "memory (GiB)", nbytes / 2**30)


def timeline(simulation: Simulation) -> ProgramTimeline:
    """Return the timeline of a simulation that has ended."""
    last = _waited_for(simulation)
    spans = {rank: tuple(_spans(simulation, index, last)) for index, rank in enumerate(simulation.played)}
    stands_for = dict.fromkeys(simulation.played, 0)
    for rank in simulation.roles:
        stands_for[rank] += 1
    return ProgramTimeline(
        simulation.program.name,
        simulation.program.ranks,
        simulation.makespan_s,
        spans,
        {rank: _time(own) for rank, own in spans.items()},
        tuple(_groups(simulation)),
        stands_for,
        simulation.assumes,
    )


def _spans(simulation: Simulation, index: int, last: Mapping[tuple[int, int], int]) -> Iterator[Span]:
    """Return all spans that took time, including a host's waits, which begin when it reaches them."""
    begins, starts, ends = simulation.begin[index], simulation.start[index], simulation.end[index]
    posted = 0.0
    lanes: dict[str, float] = {}
    for place, operation in enumerate(simulation.operations[index]):
        begin, end, action = begins[place], ends[place], operation.action
        communicates = isinstance(action, Call | Send | Recv | Together)
        beside = action.group.name if isinstance(action, Call | Send | Recv | Together) else HOST
        lane = operation.lane or beside
        if operation.category == "wait":
            begin = max(posted, lanes.get(lane, 0.0)) if operation.lane else posted
        lanes[lane] = end
        if operation.holds:
            posted = end
        if end > begin:
            start = starts[place] if communicates else begin
            yield Span(
                begin, start, end, lane, operation.category or "other", operation.name, _nbytes(action),
                operation.where, last.get((index, place)),
            )  # fmt: skip


def _nbytes(action: object) -> int:
    match action:
        case Call(_, _, collective):
            return collective.nbytes
        case Send(_, _, nbytes) | Recv(_, _, nbytes):
            return nbytes
        case Together(_, parts):
            return sum(part.nbytes for part in parts)
    return 0


def _time(spans: Sequence[Span]) -> RankTime:
    compute = union((span.begin, span.end) for span in spans if span.kind == "compute")
    calls = [span for span in spans if span.kind not in NO_COMMUNICATION]
    under_way = union((span.start, span.end) for span in calls)
    waiting = union((span.begin, span.start) for span in calls)
    busy = union([*compute, *under_way])
    end = max((span.end for span in spans), default=0.0)
    return RankTime(
        end,
        length(compute),
        length(under_way),
        length(busy) - length(compute),
        length(union([*busy, *waiting])) - length(busy),
    )


def _groups(simulation: Simulation) -> Iterator[GroupTime]:
    """Return the groups in the order of first use; of folded ones only the played ones."""
    under_way: dict[Group, list[tuple[float, float]]] = {}
    counts: dict[Group, set[object]] = {}
    for index in range(len(simulation.played)):
        numbers = simulation.numbers(index)
        for place, operation in enumerate(simulation.operations[index]):
            action = operation.action
            if isinstance(action, Call | Send | Recv | Together):
                whole = under_way.setdefault(action.group, [])
                whole.append((simulation.start[index][place], simulation.end[index][place]))
                if isinstance(action, Call):
                    counts.setdefault(action.group, set()).add(numbers[place])
                elif not isinstance(action, Recv):
                    counts.setdefault(action.group, set()).add((index, place))
    for group, whole in under_way.items():
        yield GroupTime(group, len(counts.get(group, ())), covered_s(whole))


def covered_s(stretches: Iterable[tuple[float, float]]) -> float:
    """Return the length of the union of time intervals."""
    return length(union(stretches))


def union(stretches: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the union of time intervals, disjoint and in order."""
    merged: list[tuple[float, float]] = []
    for begin, end in sorted(stretches):
        if merged and begin <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], end)
        else:
            merged.append((begin, end))
    return merged


def length(stretches: Iterable[tuple[float, float]]) -> float:
    """Return the total length of disjoint intervals."""
    return sum(end - begin for begin, end in stretches)


def _waited_for(simulation: Simulation) -> dict[tuple[int, int], int]:
    """Return for each operation that waited, by played number and place, the rank that came last.

    It is empty if ranks are folded, since one then represents many.
    """
    if len(simulation.played) < len(simulation.roles):
        return {}
    came: dict[tuple[object, int], list[tuple[float, int, int]]] = {}
    peers: dict[tuple[int, int], int] = {}
    for index in range(len(simulation.played)):
        begins, starts, numbers = simulation.begin[index], simulation.start[index], simulation.numbers(index)
        for place, operation in enumerate(simulation.operations[index]):
            match operation.action:
                case Call(group):
                    came.setdefault((group, numbers[place]), []).append((begins[place], index, place))
                case Send(_, peer) | Recv(_, peer) if peer != ANY and starts[place] > begins[place]:
                    peers[index, place] = peer
    for members in came.values():
        last, culprit, _ = max(members)
        peers |= {
            (index, place): simulation.played[culprit] for begin, index, place in members if begin < last
        }
    return peers


def waits(simulation: Simulation) -> dict[tuple[int, int], float]:
    """Return the seconds in which collectives and messages of a rank waited for another, by both ranks."""
    stretches: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for (index, place), culprit in _waited_for(simulation).items():
        stretch = simulation.begin[index][place], simulation.start[index][place]
        stretches.setdefault((simulation.played[index], culprit), []).append(stretch)
    return {pair: covered_s(spans) for pair, spans in sorted(stretches.items())}
