"""Roles of a program's ranks: ranks that do the same, so that one of each represents all.

Two ranks have one role where their lists are equal up to the identity of the others, and where they meet the
same roles at the same places; calls of new_group wait for no other rank and do not count. Roles are the
coarsest such partition, found by refinement: ranks begin with the colour of their own list and mix in, round
by round, the colours of the ranks they meet, until no colour splits (the idea of Cardon and Crochemore,
Partitioning a graph in O(|A| log2 |V|), 1982; here all ranks are coloured in a few array operations a round).

What folding assumes. Let every rank do what its representative does, at the same places, and let the places
of a meeting be the same wherever the role occurs. Then, by induction over the order in which operations can
end, an operation of a rank can end exactly when its representative's can: its own list has the same
conditions, and so have the roles and places of all ranks it meets. So a program ends, or hangs, as its
representatives do. That says nothing of time: a simulation that plays one rank per role also assumes that the
network treats ranks of a role alike, and a slow rank is a role of its own.

Colours are 64-bit sums of mixed numbers: any two of a million different ranks share a colour with a
probability of less than one in ten million.

Finding roles needs every rank's list. A program that declares them (`Program.role`) is trusted except for
what few lists can show: each representative, all its message peers, and one more rank of each role in each of
its groups must do what their representatives do, and meet the same roles.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ringside.sim.program.operations import (
    ANY,
    Call,
    Group,
    Join,
    NewGroup,
    Operation,
    Program,
    Recv,
    Send,
    Together,
    root,
    shape,
)

Ints = NDArray[np.int64]
Colours = NDArray[np.uint64]


def roles(program: Program) -> tuple[int, ...]:
    """Return for each rank the first rank of its role: as declared, else computed from all lists.

    In a program with unpaired messages every rank has its own role. Raise `ValueError` where declared roles
    contradict the lists; see `ringside.sim.program.roles`.
    """
    if program.role is not None:
        return claimed(program)
    return tuple(Lists(program).representatives().tolist())


@dataclass(frozen=True, slots=True)
class MessagePairs:
    """The messages of a program, pair by pair: places among all operations, and among their parts."""

    send: Ints
    receive: Ints
    send_part: Ints
    receive_part: Ints
    send_row: Ints
    receive_row: Ints
    """Their indices among messages of all kinds."""


class Lists:
    """All operations of a program as arrays: ``rank``, ``place``, and indices into ``kinds`` and ``actions``.

    A place is an operation's number in its rank's list, without calls of new_group. Operations that are one
    object share a kind, and so do actions: Python work is done once per object.
    """

    def __init__(self, program: Program) -> None:
        self.ranks = program.ranks
        self.lists: list[Sequence[Operation]] = [program.operations(rank) for rank in range(program.ranks)]
        lengths = np.array([len(own) for own in self.lists], dtype=np.int64)
        self.begins: Ints = np.concatenate([[0], np.cumsum(lengths)])
        """Index of each rank's first operation."""
        self.rank: Ints = np.repeat(np.arange(self.ranks), lengths)
        self.kinds, self.kind = _distinct([one for own in self.lists for one in own])
        self.actions, action = _distinct([one.action for one in self.kinds])
        self.action = action[self.kind]
        made = [isinstance(action, NewGroup) for action in self.actions]
        self.counts: NDArray[np.bool_] = ~np.array(made, dtype=bool)[self.action]
        """Whether each operation has a place."""
        before = np.concatenate([[0], np.cumsum(self.counts)])
        self.place: Ints = before[:-1] - before[self.begins[self.rank]]
        self._groups: dict[Group, int] = {}
        self._channels: dict[tuple[int, int], int] = {}
        self.group = np.array([self._group_of(one) for one in self.actions], dtype=np.int64)[self.action]
        """The number of each operation's group, or -1."""
        self.messages = self._paired()

    @property
    def meetings(self) -> tuple[Ints, Ints]:
        """The collectives and creations of groups, meeting by meeting; and the start of each meeting."""
        what = np.array(
            [1 if isinstance(one, Call) else 2 * isinstance(one, Join) for one in self.actions],
            dtype=np.int64,
        )[self.action]
        calls = np.flatnonzero(what)
        own = (self.group[calls] * 3 + what[calls]) * self.ranks + self.rank[calls]
        by_own = np.argsort(own, kind="stable")
        calls, own = calls[by_own], own[by_own]
        number = np.arange(len(own)) - np.searchsorted(own, own)
        meeting = (own // self.ranks) * (len(self.kind) + 1) + number
        order = np.argsort(meeting, kind="stable")
        begins = np.flatnonzero(np.diff(meeting[order], prepend=-1))
        return calls[order], begins

    def representatives(self, most_rounds: int | None = None) -> Ints:
        """Return for each rank the first rank of its role; each its own after ``most_rounds``."""
        if self.messages is None:
            return np.arange(self.ranks)
        pairs, members = _Pairs(self, self.messages), _Members(self)
        colour = self._own_colours()
        count = 0
        while True:
            _, first, inverse = np.unique(colour, return_index=True, return_inverse=True)
            if len(first) == count:
                return np.asarray(first[inverse])
            if most_rounds == 0:
                return np.arange(self.ranks)
            most_rounds = None if most_rounds is None else most_rounds - 1
            count = len(first)
            colour = _mixed(colour + pairs.met(colour) + members.met(colour))

    def _own_colours(self) -> Colours:
        """Return the colour of each rank's list: shapes at places, dependencies, shared lanes."""
        what = np.array([_number(shape(one)) for one in self.actions], dtype=np.uint64)[self.action]
        how = np.array([2 * one.holds + (one.lane is None) for one in self.kinds], dtype=np.uint64)[self.kind]
        shapes, some = what + how, self.counts
        colour = _summed(self.rank[some], _mixed(shapes + _mixed(self.place))[some], self.ranks)
        later, which = _expanded([len(one.after) for one in self.kinds], self.kind)
        earlier = np.array([place for one in self.kinds for place in one.after], dtype=np.int64)[which]
        earlier += self.begins[self.rank[later]]
        colour += _summed(
            self.rank[later],
            _mixed(_mixed(self.place[later]) + self.place[earlier].astype(np.uint64)),
            self.ranks,
        )
        lanes: dict[str, int] = {}
        lane = np.array(
            [-1 if one.lane is None else lanes.setdefault(one.lane, len(lanes)) for one in self.kinds],
            dtype=np.int64,
        )[self.kind]
        some = lane >= 0
        keys, label = _by_key(self.rank[some] * max(len(lanes), 1) + lane[some], _mixed(self.place[some]))
        return _mixed(colour + _summed(keys // max(len(lanes), 1), _mixed(label), self.ranks))

    def _group_of(self, action: Any) -> int:
        if isinstance(action, Call | Join | Send | Recv | Together):
            return self._groups.setdefault(action.group, len(self._groups))
        return -1

    def _paired(self) -> MessagePairs | None:
        """Pair each send with its receive; None where some are unpaired, or receive from any source."""
        table: list[tuple[int, int, bool]] = []
        counts = []
        for action in self.actions:
            before = len(table)
            for part in action.parts if isinstance(action, Together) else (action,):
                if isinstance(part, Send | Recv):
                    key = (self._groups[part.group], part.tag)
                    channel = self._channels.setdefault(key, len(self._channels))
                    table.append((channel, part.peer, isinstance(part, Send)))
            counts.append(len(table) - before)
        rows = np.array(table, dtype=np.int64).reshape(-1, 3)
        if np.any((rows[:, 1] < 0) | (rows[:, 1] >= self.ranks)):
            return None
        operation, row = _expanded(counts, self.action)
        part = np.arange(len(operation)) - np.searchsorted(operation, operation)
        channel, peer, sends = rows[row].T
        rank, is_send = self.rank[operation], sends.astype(bool)
        source, target = np.where(is_send, rank, peer), np.where(is_send, peer, rank)
        key = (channel * self.ranks + source) * self.ranks + target
        order = np.argsort(key, kind="stable")
        send, receive = order[is_send[order]], order[~is_send[order]]
        if len(send) != len(receive) or np.any(key[send] != key[receive]):
            return None
        return MessagePairs(
            *(operation[send], operation[receive], part[send], part[receive], row[send], row[receive])
        )


def _distinct(objects: Sequence[Any]) -> tuple[list[Any], Ints]:
    """Return the distinct objects, and each object's index among them."""
    ids = np.fromiter(map(id, objects), np.int64, len(objects))
    _, firsts, which = np.unique(ids, return_index=True, return_inverse=True)
    return [objects[first] for first in firsts.tolist()], which


def _expanded(counts: Sequence[int], of: Ints) -> tuple[Ints, Ints]:
    """Repeat each operation once per part; return the operations and the parts' indices."""
    count = np.array(counts, dtype=np.int64)
    firsts, count = (np.cumsum(count) - count)[of], count[of]
    operation = np.repeat(np.arange(len(of)), count)
    number = np.arange(len(operation)) - np.repeat(np.cumsum(count) - count, count)
    return operation, firsts[operation] + number


class _Pairs:
    """Pairs of ranks that exchange messages, with the places on both sides."""

    def __init__(self, lists: Lists, messages: MessagePairs) -> None:
        send, receive = messages.send, messages.receive
        one = _mixed(lists.place[send]) + _mixed(messages.send_part.astype(np.uint64) + np.uint64(1 << 40))
        other = _mixed(lists.place[receive]) + _mixed(
            messages.receive_part.astype(np.uint64) + np.uint64(1 << 40)
        )
        there, back = _mixed(one + _mixed(other)), _mixed(_mixed(one) + other)
        key = np.concatenate(
            [
                lists.rank[send] * lists.ranks + lists.rank[receive],
                lists.rank[receive] * lists.ranks + lists.rank[send],
            ]
        )
        keys, self._label = _by_key(key, np.concatenate([there, back]))
        self._rank, self._peer = keys // lists.ranks, keys % lists.ranks
        self._ranks = lists.ranks

    def met(self, colour: Colours) -> Colours:
        """Return each rank's view of its peers' colours."""
        return _summed(self._rank, _mixed(self._label + _mixed(colour[self._peer])), self._ranks)


class _Members:
    """Members of groups, with the places in their lists."""

    def __init__(self, lists: Lists) -> None:
        some = lists.group >= 0
        roots = np.array([root(one) for one in lists.actions], dtype=np.int64)[lists.action[some]]
        keys, self._label = _by_key(
            lists.group[some] * lists.ranks + lists.rank[some],
            _mixed(2 * lists.place[some] + (roots == lists.rank[some])),
        )
        self._group, self._rank = keys // lists.ranks, keys % lists.ranks
        self._groups, self._ranks = int(self._group.max(initial=-1)) + 1, lists.ranks

    def met(self, colour: Colours) -> Colours:
        """Return each rank's view of the colours in its groups."""
        whole = _summed(self._group, _mixed(self._label + _mixed(colour[self._rank])), self._groups)
        return _summed(self._rank, _mixed(self._label + _mixed(whole[self._group])), self._ranks)


def _number(shape: tuple[object, ...]) -> int:
    return hash(shape) & 0xFFFF_FFFF_FFFF_FFFF


def _mixed(numbers: NDArray[Any]) -> Colours:
    """Mix numbers so that their sums are distinct: splitmix64 (Steele, Lea and Flood, 2014)."""
    z = numbers.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(z ^ (z >> np.uint64(31)), dtype=np.uint64)


def _by_key(key: Ints, values: Colours) -> tuple[Ints, Colours]:
    """Return the distinct keys, with the sums of their values."""
    keys, inverse = np.unique(key, return_inverse=True)
    return keys, _summed(inverse, values, len(keys))


def _summed(index: Ints, values: Colours, count: int) -> Colours:
    """Return the sums of the values per index, modulo 2 ** 64."""
    total = np.zeros(count, dtype=np.uint64)
    np.add.at(total, index, values)
    return total


def claimed(program: Program) -> tuple[int, ...]:
    """Return for each rank the first rank of its declared role.

    Raise `ValueError` where a list contradicts it.
    """
    assert program.role is not None
    first: dict[Hashable, int] = {}
    roles = tuple(first.setdefault(program.role(rank), rank) for rank in range(program.ranks))
    claims = _Claims(program, roles)
    for representative in first.values():
        for other in sorted(claims.witnesses(representative)):
            claims.check(other)
    return roles


class _Claims:
    """The ranks' lists made so far, and the roles that they imply."""

    def __init__(self, program: Program, roles: tuple[int, ...]) -> None:
        self._program = program
        self._roles = roles
        self._seen: dict[int, list[object]] = {}
        self._mixes: dict[Group, tuple[tuple[int, int], ...]] = {}
        self._checked: set[int] = set()

    def witnesses(self, representative: int) -> set[int]:
        """Return a representative's peers: its messages', and the first of each role in its groups."""
        met: set[int] = set()
        groups: set[Group] = set()
        for action in _distinct_actions(self._program.operations(representative)):
            met.update(_peers(action))
            if isinstance(action, Call | Join):
                groups.add(action.group)
        for group in groups:
            of_roles: dict[int, int] = {}
            for rank in group.ranks:
                if rank != representative:
                    of_roles.setdefault(self._roles[rank], rank)
            met.update(of_roles.values())
        return met

    def check(self, rank: int) -> None:
        """Raise `ValueError` unless the rank does what its representative does."""
        if rank in self._checked:
            return
        self._checked.add(rank)
        stands = self._roles[rank]
        own, its = self._list(rank), self._list(stands)
        if own == its:
            return
        operations = [one for one in self._program.operations(rank) if not isinstance(one.action, NewGroup)]
        for what, wanted, one in zip(own, its, operations, strict=False):
            if what != wanted:
                raise ValueError(self._error(rank, stands, f"differs: {one.name} ({one.where})"))
        raise ValueError(self._error(rank, stands, f"has {len(own)} operations instead of {len(its)}"))

    def _error(self, rank: int, stands: int, what: str) -> str:
        return f"{self._program.name}: rank {rank} declares the role of rank {stands}, but {what}"

    def _list(self, rank: int) -> list[object]:
        """Describe a rank's list in terms that are equal for all ranks of a role."""
        if rank not in self._seen:
            self._seen[rank] = list(self._described(rank))
        return self._seen[rank]

    def _described(self, rank: int) -> Iterator[object]:
        operations = self._program.operations(rank)
        groups: dict[Group, int] = {}
        actions = {
            id(action): self._described_action(rank, action, groups)
            for action in _distinct_actions(operations)  # a list has few
        }
        lanes: dict[str | None, int] = {None: -1}
        is_own = [not isinstance(one.action, NewGroup) for one in operations]
        places = None if all(is_own) else [*accumulate(is_own, initial=0)]
        for one in operations:
            action, lane, after, holds, *_ = one
            if isinstance(action, NewGroup):
                continue
            numbers = after if places is None else tuple(places[earlier] for earlier in after)
            yield actions[id(action)], lanes.setdefault(lane, len(lanes)), numbers, holds

    def _described_action(self, rank: int, action: Any, groups: dict[Group, int]) -> tuple[object, ...]:
        """Describe an action; ``groups`` are numbers of the rank's groups so far."""
        group = getattr(action, "group", None)
        return (
            shape(action),
            [self._roles[peer] for peer in _peers(action)],
            None if group is None else (groups.setdefault(group, len(groups)), self._mix(group)),
            root(action) == rank,
        )

    def _mix(self, group: Group) -> tuple[tuple[int, int], ...]:
        """Count the ranks of each role in a group."""
        if group not in self._mixes:
            counts = Counter(self._roles[rank] for rank in group.ranks)
            self._mixes[group] = tuple(sorted(counts.items()))
        return self._mixes[group]


def _distinct_actions(operations: Sequence[Operation]) -> Iterable[Any]:
    """Return actions of a list in their order, each object once, without calls of new_group."""
    distinct = {id(one.action): one.action for one in operations}
    return [action for action in distinct.values() if not isinstance(action, NewGroup)]


def _peers(action: Any) -> list[int]:
    """Return the peers of an action's messages."""
    parts = action.parts if isinstance(action, Together) else (action,)
    return [part.peer for part in parts if isinstance(part, Send | Recv) and part.peer != ANY]
