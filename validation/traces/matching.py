"""Match the collectives of one rank to those of others.

Collectives of a group match by their sequence number or their Comms Id where the traces have one; else by
their order in the profiler step in which the host called them, so windows may begin at different collectives;
else by order alone. Matches must be of one kind and, where the kind has one size, of one size.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import NamedTuple, cast

from ringside.validation.readers.kineto import RankTrace, Traced
from ringside.validation.readers.kineto.trace import BATCH, MESSAGES, UNTOLD

UNEVEN = ("all_to_all", UNTOLD, "send", "recv", BATCH)
"""Kinds whose members may have different sizes."""

Key = tuple[Hashable, ...]

_ORDER = "order"


class Match(NamedTuple):
    """One collective on all traced ranks; ``ranks`` is the size of its group, if known."""

    kind: str | None
    nbytes: int | None
    ranks: int | None
    members: dict[int, Traced]


class Matched(NamedTuple):
    """All matches, descriptions of mismatches, and the number without a partner."""

    matches: list[Match]
    mismatches: list[str]
    alone: int


def world(trace: RankTrace) -> int | None:
    """Return the ranks of an unnamed group: all, where the trace lists no group of other ranks."""
    if trace.ranks is None or any(group.size != trace.ranks for group in trace.groups):
        return None
    return trace.ranks


def group_size(trace: RankTrace, one: Traced) -> int | None:
    """Return the number of ranks of a collective: from the trace, its sizes, or `world`."""
    if one.group.size is not None:
        return one.group.size
    if one.ranks is not None and one.ranks <= (trace.ranks or one.ranks):
        return one.ranks
    if one.kind in MESSAGES or one.group.name is not None:
        return None
    return world(trace)


def match(traces: Sequence[RankTrace]) -> Matched:
    """Match the collectives of all ranks; messages are left out."""
    by_key: dict[Key, dict[int, tuple[RankTrace, Traced]]] = defaultdict(dict)
    for trace in traces:
        assert trace.rank is not None
        for key, one in _keys(trace, traces):
            by_key[key][trace.rank] = (trace, one)
    matches: list[Match] = []
    lost, mismatches = _uncounted(by_key)
    alone = 0
    traced = [trace.rank for trace in traces]
    for key, members in sorted(by_key.items(), key=lambda item: min(_when(*one) for one in item[1].values())):
        trace, first = next(iter(members.values()))
        if key[:-1] in lost or len(members) != _wanted(trace, first, traced):
            alone += len(members)
        elif text := _disagree(members):
            mismatches.append(f"{_place(key)}: {text}; it and everything after it are left out")
            lost.add(key[:-1])
            alone += len(members)
        else:
            matches.append(_made(members))
    return Matched(matches, mismatches, alone)


def _wanted(trace: RankTrace, one: Traced, traced: Sequence[int | None]) -> int:
    """Return the number of traced ranks in a collective; all if the trace does not list its ranks.

    A group of fewer ranks than the job, without a list in any trace, is identified by its ``Comms Id`` alone.
    """
    if one.group.ranks is not None:
        return sum(rank in one.group.ranks for rank in traced)
    size = group_size(trace, one)
    if size is None or one.group.name is not None or size >= (trace.ranks or size):
        return len(traced)
    return size if one.identity is not None and one.sequence is None else 0


def _uncounted(by_key: Mapping[Key, Mapping[int, object]]) -> tuple[set[Key], list[str]]:
    """Return the groups with order alone and unequal counts, whose common beginning is unknown."""
    counts: dict[Key, Counter[int]] = defaultdict(Counter)
    for key, members in by_key.items():
        if key[1] == _ORDER:
            counts[key[:-1]].update(members.keys())
    lost = {key for key, own in counts.items() if len(set(own.values())) > 1}
    return lost, [
        f"{_named(key)}: {_counted(counts[key])}, without numbers or common steps to match them by; call "
        "profiler.step() in each step"
        for key in sorted(lost, key=str)
    ]


def _counted(counts: Counter[int]) -> str:
    return ", ".join(f"{count} on rank {rank}" for rank, count in sorted(counts.items())[:8])


def _made(members: dict[int, tuple[RankTrace, Traced]]) -> Match:
    known = [(trace, one) for trace, one in members.values()]
    size = group_size(*known[0])
    sizes = [one.nbytes(size) for _, one in known]
    nbytes = [size for size in sizes if size is not None]
    kind = next((one.kind for _, one in known if one.kind not in (None, UNTOLD)), known[0][1].kind)
    mean = round(sum(nbytes) / len(nbytes)) if len(nbytes) == len(sizes) else None
    return Match(kind, mean, size, {rank: one for rank, (_, one) in members.items()})


def _keys(trace: RankTrace, traces: Sequence[RankTrace]) -> Iterator[tuple[Key, Traced]]:
    """Yield each collective of a rank with the key that it shares with its matches."""
    groups: dict[Key, list[Traced]] = defaultdict(list)
    for one in sorted(trace.collectives, key=_order):
        if one.kind not in MESSAGES:
            groups[one.group.name, one.group.ranks].append(one)
    names = [{step.name for step in other.steps} for other in traces]
    by_step = all(names) and len(set.intersection(*names)) > 0
    for group, own in groups.items():
        numbers: list[Hashable] = [one.sequence for one in own]
        if any(number is None for number in numbers):
            numbers = [one.identity for one in own]
        if all(number is not None for number in numbers):
            again: dict[Hashable, int] = defaultdict(int)
            for number, one in zip(numbers, own, strict=True):
                yield (group, number, again[number]), one
                again[number] += 1
        elif by_step:
            yield from _in_steps(group, own)
        else:
            for number, one in enumerate(own):
                yield (group, _ORDER, number), one


def _in_steps(group: Key, own: list[Traced]) -> Iterator[tuple[Key, Traced]]:
    """Yield by step and position in it; calls before the first step count back from it."""
    inside = [number for number, one in enumerate(own) if one.step is not None]
    first = inside[0] if inside else len(own)
    step, at = "after none", 0
    for number, one in enumerate(own):
        if number < first:
            yield (group, "before the steps", number - first), one
            continue
        name = one.step or f"after {step.removeprefix('after ')}"
        at = at + 1 if name == step else 0
        step = name
        yield (group, step, at), one


def _order(one: Traced) -> tuple[bool, float]:
    """Return a sort key in the order of the host's calls; calls before the trace come first."""
    return one.called_s is not None, one.begin_s if one.called_s is None else one.called_s


def _when(trace: RankTrace, one: Traced) -> float:
    return trace.origin_ns / 1e9 + one.begin_s


def _disagree(members: dict[int, tuple[RankTrace, Traced]]) -> str:
    """Describe how the members of a collective differ; empty if they do not."""
    ranks = list(members)
    first_trace, first = members[ranks[0]]
    for rank in ranks[1:]:
        trace, one = members[rank]
        kinds = {first.kind, one.kind} - {None, UNTOLD}
        sizes = {first.nbytes(group_size(first_trace, first)), one.nbytes(group_size(trace, one))} - {None}
        even = not kinds & set(UNEVEN) and not (first.is_uneven or one.is_uneven)
        if len(kinds) > 1 or (even and len(sizes) > 1):
            return f"rank {ranks[0]} has {_told(first_trace, first)}, rank {rank} {_told(trace, one)}"
    return ""


def _told(trace: RankTrace, one: Traced) -> str:
    nbytes = one.nbytes(group_size(trace, one))
    return f"{one.kind or one.name}" + ("" if nbytes is None else f" of {nbytes} B")


def _place(key: Key) -> str:
    _, where, number = key
    if isinstance(where, int):
        return f"{_named(key)}, sequence number {where}"
    return f"{_named(key)}, number {number}" + ("" if where == _ORDER else f" in {where}")


def _named(key: Key) -> str:
    name, _ = cast(tuple[str | None, object], key[0])
    return "the collectives without a named group" if name is None else f"group {name}"
