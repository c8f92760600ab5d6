"""Which ranks of a job do the same, and which of them to record.

Without messages all ranks do the same. With messages, a rank's part is up to its place in the groups through
which messages go: its stage of a pipeline, its place in a ring. Where tensors are cut into chunks of unequal
size, it is up to the sizes of its own: full, smaller or none. Where parameters are laid end to end and then
cut, it is up to the parts of them that it has. One rank of each part is recorded, and one
more to check.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace

from ringside.real.record.part import FlatShards, RankPart, ShardedExtent
from ringside.sim.recorded.job import (
    Action,
    Entry,
    GroupCall,
    PeerMessage,
    RecordedGroup,
    RecordedRank,
)

MOST_ROLES = 64
"""The largest number of ranks that are recorded."""

FEW = 16
"""Ranks of a job up to which all are recorded if no smaller number will do."""


Places = Mapping[int, int]
"""Places of ranks in their groups."""

Shares = Mapping[int, Hashable]
"""What sets ranks apart, such as their places or the sizes of their chunks."""


def roles(parts: Mapping[int, RankPart], ranks: int) -> dict[int, tuple[int, ...]] | None:
    """Return the ranks that do as each smallest one does, by it; None if messages say nothing of that."""
    axes = _axes(parts.values())
    if axes is None:
        return None
    alike: dict[int, tuple[int, ...]] = {}
    for own in _split(range(ranks), [_places(axis) for axis in axes]):
        recorded = [parts[rank] for rank in own if rank in parts]
        alike.update({some[0]: some for some in _split(own, _sizes(recorded))})
    return dict(sorted(alike.items()))


def _split(ranks: Iterable[int], by: Sequence[Shares]) -> list[tuple[int, ...]]:
    """Group ranks that have the same share in all of ``by``."""
    same: dict[tuple[Hashable, ...], list[int]] = {}
    for rank in ranks:
        same.setdefault(tuple(one.get(rank, -1) for one in by), []).append(rank)
    return [tuple(own) for own in same.values()]


def _sizes(parts: Iterable[RankPart]) -> list[Shares]:
    """Return the sizes of ranks' chunks, where they are not equal: in every group that may have had them."""
    cut: dict[tuple[ShardedExtent | FlatShards, tuple[tuple[int, ...], ...]], Shares] = {}
    for part in parts:
        for group in part.groups:
            members = len(group.of(part.rank) or ())
            for chunks in part.uneven:
                if members == chunks.among and (chunks, group.partition) not in cut:
                    places = _places(group)
                    cut[chunks, group.partition] = {one: chunks.of(place) for one, place in places.items()}
    return list(cut.values())


def _axes(parts: Iterable[RankPart]) -> list[RecordedGroup] | None:
    """Return the partitions through which messages go; None where they go through none."""
    axes: list[RecordedGroup] = []
    for part in parts:
        if part.recorded is None:
            continue
        groups = {one.name: one for one in part.groups}
        for action in part.recorded.actions:
            if isinstance(action, PeerMessage):
                axis = _axis(groups, action, part.rank)
                if axis is None:
                    return None
                if axis not in axes:
                    axes.append(axis)
    return axes


def _axis(groups: Mapping[str, RecordedGroup], message: PeerMessage, rank: int) -> RecordedGroup | None:
    """Return the partition through which a message goes: the smallest group of both ranks."""
    group = groups[message.group]
    if len(group.partition) > 1:
        return group
    several = [one for one in groups.values() if len(one.partition) > 1]
    common = [one for one in several if message.peer in (one.of(rank) or ())]
    whole = [group] if group.of(rank) is not None and not several else []
    return min(common or whole, key=lambda one: len(one.of(rank) or ()), default=None)


def _places(axis: RecordedGroup) -> Places:
    return {rank: place for part in axis.partition for place, rank in enumerate(part)}


def with_alike(recorded: RecordedRank, alike: Sequence[int]) -> RecordedRank:
    """Return a recording that stands for these ranks."""
    return replace(recorded, alike=tuple(alike))


def difference(one: RankPart, other: RankPart) -> str:
    """Return how the second rank's step differs from the first's, in a phrase; empty if it does not."""
    assert one.recorded is not None
    assert other.recorded is not None
    entries, others = one.recorded.entries, other.recorded.entries
    views = _View(one), _View(other)
    for number, (first, second) in enumerate(zip(entries, others, strict=False)):
        if views[0].of(first) != views[1].of(second):
            actions = one.recorded.actions[first.action], other.recorded.actions[second.action]
            return f"its entry {number} is {actions[1]}, that of rank {one.rank} {actions[0]}"
    if len(entries) != len(others):
        return f"it has {len(others)} entries, rank {one.rank} has {len(entries)}"
    return ""


def has_messages(part: RankPart) -> bool:
    """Return whether a rank sends or receives messages."""
    assert part.recorded is not None
    return any(isinstance(action, PeerMessage) for action in part.recorded.actions)


def has_course_of(one: RankPart, other: RankPart) -> bool:
    """Return whether two ranks post the same, but for sizes and peers."""
    return _course(one) == _course(other)


def _course(part: RankPart) -> list[tuple[str, str]]:
    assert part.recorded is not None
    kinds = [
        (action.kind, "" if isinstance(action, PeerMessage) else action.name)
        for action in part.recorded.actions
    ]
    return [kinds[entry.action] for entry in part.recorded.entries]


class _View:
    """A rank's entries as its role has them: peers and roots by their distance in the group."""

    def __init__(self, part: RankPart) -> None:
        assert part.recorded is not None
        self._rank = part.rank
        self._groups = {one.name: one for one in part.groups}
        self._actions = [self._action(one) for one in part.recorded.actions]
        self._lanes: dict[str, str] = {}
        for entry in part.recorded.entries:
            action = part.recorded.actions[entry.action]
            if isinstance(action, PeerMessage) and entry.lane not in self._lanes:
                self._lanes[entry.lane] = f"{action.group}:{self._distance(action.group, action.peer)}"

    def of(self, entry: Entry) -> tuple[Action, str, tuple[int, ...]]:
        lane = self._lanes.get(entry.lane, entry.lane)
        return self._actions[entry.action], lane, entry.after

    def _action(self, action: Action) -> Action:
        if isinstance(action, PeerMessage):
            return replace(action, peer=self._distance(action.group, action.peer), batch=None)
        if isinstance(action, GroupCall) and action.root is not None:
            part = self._groups[action.group].of(self._rank) or ()
            return replace(action, root=part.index(action.root))
        return action

    def _distance(self, group: str, peer: int) -> int:
        part = self._groups[group].of(self._rank) or ()
        return (part.index(peer) - part.index(self._rank)) % len(part)
