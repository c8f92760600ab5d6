"""Declared roles, checked on representatives and their peers.

Finding roles needs every rank's list. A program that declares them (`Program.role`) is trusted except for
what few lists can show: each representative, all its message peers, and one more rank of each role in each of
its groups must do what their representatives do, and meet the same roles.
"""

from collections import Counter
from collections.abc import Hashable, Iterator
from typing import Any

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
)
from ringside.sim.program.shapes import root, shape


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
        self._seen: dict[int, list[tuple[object, Operation]]] = {}
        self._mixes: dict[Group, tuple[tuple[int, int], ...]] = {}
        self._checked: set[int] = set()

    def witnesses(self, representative: int) -> set[int]:
        """Return a representative's peers: its messages', and the first of each role in its groups."""
        met: set[int] = set()
        groups: set[Group] = set()
        for one in self._program.operations(representative):
            met.update(_peers(one.action))
            if isinstance(one.action, Call | Join):
                groups.add(one.action.group)
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
        for (what, one), (wanted, _) in zip(own, its, strict=False):
            if what != wanted:
                raise ValueError(self._error(rank, stands, f"differs: {one.name} ({one.where})"))
        if len(own) != len(its):
            raise ValueError(self._error(rank, stands, f"has {len(own)} operations instead of {len(its)}"))

    def _error(self, rank: int, stands: int, what: str) -> str:
        return f"{self._program.name}: rank {rank} declares the role of rank {stands}, but {what}"

    def _list(self, rank: int) -> list[tuple[object, Operation]]:
        """Describe a rank's list in terms that are equal for all ranks of a role."""
        if rank not in self._seen:
            self._seen[rank] = list(self._described(rank))
        return self._seen[rank]

    def _described(self, rank: int) -> Iterator[tuple[object, Operation]]:
        places: list[int] = []
        lanes: dict[str | None, int] = {None: -1}
        groups: dict[Group, int] = {}
        count = 0
        for one in self._program.operations(rank):
            places.append(count)
            action = one.action
            if isinstance(action, NewGroup):
                continue
            count += 1
            group = getattr(action, "group", None)
            yield (
                (
                    shape(action),
                    lanes.setdefault(one.lane, len(lanes)),
                    tuple(places[earlier] for earlier in one.after),
                    one.holds,
                    [self._roles[peer] for peer in _peers(action)],
                    None if group is None else (groups.setdefault(group, len(groups)), self._mix(group)),
                    root(action) == rank,
                ),
                one,
            )

    def _mix(self, group: Group) -> tuple[tuple[int, int], ...]:
        """Count the ranks of each role in a group."""
        if group not in self._mixes:
            counts = Counter(self._roles[rank] for rank in group.ranks)
            self._mixes[group] = tuple(sorted(counts.items()))
        return self._mixes[group]


def _peers(action: Any) -> list[int]:
    """Return the peers of an action's messages."""
    parts = action.parts if isinstance(action, Together) else (action,)
    return [part.peer for part in parts if isinstance(part, Send | Recv) and part.peer != ANY]
