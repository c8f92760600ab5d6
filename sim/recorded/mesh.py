"""The dimensions of a recorded job's ranks, and along which of them all ranks do the same."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from typing import NamedTuple

from ringside.sim.recorded.job import GroupCall, PeerMessage, RecordedGroup, RecordedJob


class _Line(NamedTuple):
    """The ranks that differ in their place along a dimension alone."""

    outer: int
    inner: int


@dataclass(frozen=True, slots=True)
class Dimension:
    """One dimension of a mesh of ranks: ``size`` places, ``stride`` ranks from one to the next."""

    stride: int
    size: int

    def place(self, rank: int) -> int:
        """Return a rank's place along the dimension."""
        return rank // self.stride % self.size

    def moved(self, rank: int, size: int) -> int:
        """Return the rank at the same place where the dimension has another size."""
        return self._rank(self._line(rank), self.place(rank), size)

    def _line(self, rank: int) -> _Line:
        return _Line(rank // (self.stride * self.size), rank % self.stride)

    def _rank(self, line: _Line, place: int, size: int) -> int:
        return (line.outer * size + place) * self.stride + line.inner

    def lines(self, ranks: Iterable[int]) -> dict[_Line, list[int]]:
        """Return the ranks of each line, by their places."""
        lines: dict[_Line, list[int]] = defaultdict(list)
        for rank in ranks:
            lines[self._line(rank)].append(rank)
        return lines

    def spans(self, group: RecordedGroup) -> bool:
        """Return whether each part of a group has, with a rank, all others along the dimension."""
        return all(
            set(Counter(map(self._line, part)).values()) == {self.size} for part in group.partition if part
        )

    def spanning(self, groups: Iterable[RecordedGroup]) -> dict[str, int]:
        """Return the sizes of the groups that span the dimension, by their names."""
        return {group.name: len(group.partition[0]) for group in groups if self.spans(group)}

    def repeats(self, group: RecordedGroup) -> bool:
        """Return whether a group's parts are within a place, and the same at every place."""
        places: dict[tuple[_Line, ...], set[int]] = defaultdict(set)
        for part in group.partition:
            own = set(map(self.place, part))
            if len(own) != 1:
                return False
            places[tuple(map(self._line, part))] |= own
        return all(len(own) == self.size for own in places.values())

    def resized(self, group: RecordedGroup, size: int) -> RecordedGroup:
        """Return a group that spans the dimension, or repeats, where that has another size."""
        parts, spans = set[tuple[int, ...]](), self.spans(group)
        for part in group.partition:
            lines = dict.fromkeys(map(self._line, part))
            own = [tuple(self._rank(one, place, size) for one in lines) for place in range(size)]
            parts |= {tuple(sorted(chain(*own)))} if spans else set(own)
        return replace(group, partition=tuple(sorted(parts)))

    def resized_ranks(self, ranks: Iterable[int], size: int) -> set[int]:
        """Return all ranks of the lines of these where the dimension has another size."""
        return {self._rank(line, place, size) for line in self.lines(ranks) for place in range(size)}


def silent_dimensions(job: RecordedJob) -> Iterator[Dimension]:
    """Yield the dimensions along which ranks do the same and send nothing, the outermost first."""
    used = called_groups(job)
    messages = [
        (one.rank, action.peer)
        for one in job.recorded
        for action in one.actions
        if isinstance(action, PeerMessage)
    ]
    for candidate in _candidates(used, job.ranks):
        if (
            all(candidate.place(rank) == candidate.place(peer) for rank, peer in messages)
            and _alike_along(job, candidate)
            and all(candidate.spans(group) or candidate.repeats(group) for group in used)
        ):
            yield candidate


def called_groups(job: RecordedJob) -> list[RecordedGroup]:
    """Return the groups whose ranks exchange anything in the step."""
    actions = chain.from_iterable(one.actions for one in job.recorded)
    called = {action.group for action in actions if isinstance(action, GroupCall | PeerMessage)}
    return [group for group in job.groups if group.name in called]


def _candidates(groups: Iterable[RecordedGroup], ranks: int) -> Iterator[Dimension]:
    """Yield the dimensions between the strides and extents of groups, the outermost and largest first."""
    cuts = {1, ranks}
    for part in (part for group in groups for part in group.partition if len(part) > 1):
        stride = part[1] - part[0]
        cuts |= {stride, stride * len(part)}
    fitting = sorted(one for one in cuts if one > 0 and ranks % one == 0)
    for end in reversed(fitting):
        for stride in fitting:
            if end % stride == 0 and (stride < end or ranks == 1):
                yield Dimension(stride, end // stride)


def apart(job: RecordedJob, along: Dimension) -> frozenset[int]:
    """Return the ranks that alone on their line do what they do, such as one that logs."""
    alone = {one.rank for one in job.recorded if len(one.alike) == 1}
    return frozenset(
        rank
        for line in along.lines(range(job.ranks)).values()
        if len({job.representatives[rank] for rank in line}) > 1
        for rank in alone.intersection(line)
    )


def _alike_along(job: RecordedJob, along: Dimension) -> bool:
    """Return whether on each line all ranks are alike, but for those apart."""
    others = set(range(job.ranks)) - apart(job, along)
    lines = along.lines(others)
    return len(lines) * along.size == job.ranks and all(
        len({job.representatives[rank] for rank in line}) == 1 for line in lines.values()
    )
