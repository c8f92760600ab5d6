"""Two lists of one rank's operations side by side: its collectives and messages, and their order."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import zip_longest
from typing import NamedTuple

from ringside.sim.program.operations import Call, Operation, Recv, Send, Together


class Exchanged(NamedTuple):
    """What a rank exchanges: a collective of ``ranks``, or a message between two of them, in bytes."""

    kind: str
    ranks: tuple[int, ...]
    nbytes: int


@dataclass(frozen=True, slots=True)
class Count:
    """How many times two lists exchange the same; ``places`` are where the first does so, if known."""

    exchanged: Exchanged
    first: int
    second: int
    places: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SideBySide:
    """The exchanges of two lists: how many times each occurs, and how many are in one order in both."""

    counts: tuple[Count, ...]
    in_order: int
    parting: tuple[int, Exchanged | None, Exchanged | None] | None = None
    """The place of the first exchange that the lists do not share, and what each has there."""

    @property
    def common(self) -> int:
        """Number of exchanges that both have."""
        return sum(min(one.first, one.second) for one in self.counts)

    @property
    def different(self) -> tuple[Count, ...]:
        """Those that one has more often than the other."""
        return tuple(one for one in self.counts if one.first != one.second)

    @property
    def totals(self) -> tuple[int, int]:
        """Number of exchanges of each."""
        return sum(one.first for one in self.counts), sum(one.second for one in self.counts)

    @property
    def nbytes(self) -> dict[str, tuple[int, int]]:
        """Bytes of each by kind."""
        first, second = Counter[str](), Counter[str]()
        for one in self.counts:
            first[one.exchanged.kind] += one.first * one.exchanged.nbytes
            second[one.exchanged.kind] += one.second * one.exchanged.nbytes
        return {kind: (first[kind], second[kind]) for kind in first}


def side_by_side(first: Sequence[Operation], second: Sequence[Operation], rank: int) -> SideBySide:
    """Return the exchanges of two lists of a rank."""
    listed = list(_exchanged(first, rank))
    ours, theirs = [one for one, _ in listed], [one for one, _ in _exchanged(second, rank)]
    counted = Counter(ours), Counter(theirs)
    places: dict[Exchanged, dict[str, None]] = {}
    for one, place in listed:
        if place:
            places.setdefault(one, {})[place] = None
    blocks = SequenceMatcher(None, ours, theirs, autojunk=False).get_matching_blocks()
    return SideBySide(
        tuple(
            Count(one, counted[0][one], counted[1][one], tuple(places.get(one, ())))
            for one in dict.fromkeys([*ours, *theirs])
        ),
        sum(block.size for block in blocks),
        next((place, *pair) for place, pair in enumerate(zip_longest(ours, theirs)) if pair[0] != pair[1])
        if ours != theirs
        else None,
    )


def _exchanged(operations: Iterable[Operation], rank: int) -> Iterator[tuple[Exchanged, str]]:
    for one in operations:
        place = f"{one.place[0]}:{one.place[1]}" if one.place else ""
        match one.action:
            case Call(group, _, collective) if len(group.ranks) > 1:
                yield Exchanged(collective.kind, group.ranks, collective.nbytes), place
            case Send() | Recv() as message:
                yield _message(message, rank), place
            case Together(_, parts):
                for part in parts:
                    yield _message(part, rank), place


def _message(message: Send | Recv, rank: int) -> Exchanged:
    low, high = sorted((rank, message.peer))
    return Exchanged("send" if isinstance(message, Send) else "recv", (low, high), message.nbytes)
