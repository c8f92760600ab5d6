"""A program played by one rank per role: whether all ranks end, found faster than by playing all of them.

`ringside.sim.program.roles` says why one rank stands for its role. Folding needs more: messages of equal
sizes that arrive in posting order, and calls whose members all agree. Any other program is played in full.
"""

from collections import defaultdict

import numpy as np
from numpy.typing import NDArray

from ringside.sim.program.operations import (
    Call,
    Drop,
    Group,
    Join,
    Lost,
    Operation,
    Program,
    Raise,
    Recv,
    Send,
    Together,
)
from ringside.sim.program.play import INSTANT, Play
from ringside.sim.program.roles import Ints, Lists

MOST_ROUNDS = 16
"""Rounds of refinement: a program that needs more has few ranks per role."""

FEWEST = 2
"""Ranks per role, on average, from which folding is worth its own time."""

Meeting = list[tuple[int, int]]
"""Operations that end together: the number of a role, and a place in its representative's list."""


def ends(program: Program) -> bool:
    """Return whether all ranks certainly end, even if every rank waits for all participants.

    It is false if they may not, or if representatives cannot decide it.
    """
    lists = Lists(program)
    if not _plain(lists):
        return False
    roles = lists.representatives(MOST_ROUNDS)
    chosen = np.unique(roles)
    if FEWEST * len(chosen) > program.ranks:
        return False
    meetings = _Meetings(lists, roles, chosen)
    of_roles = Program(program.name, len(chosen), lambda role: lists.lists[int(chosen[role])])
    overlap = any(len(meetings.communicators(role)) > 1 for role in range(len(chosen)))
    return _ends(of_roles, meetings, serial=False) and (not overlap or _ends(of_roles, meetings, serial=True))


def _ends(program: Program, meetings: "_Meetings", *, serial: bool) -> bool:
    """Play representatives: a meeting ends when all its members have arrived."""
    come: dict[int, int] = defaultdict(int)
    left = {where: len(numbers) for where, numbers in meetings.of.items()}

    def arrived(role: int, place: int) -> None:
        for number in meetings.of.get((role, place), ()):
            come[number] += 1
            if come[number] == len(meetings.all[number]):
                for where in meetings.all[number]:
                    left[where] -= 1
                    if not left[where]:
                        play.end(*where)

    play = Play(program, arrived, serial=serial, instant=INSTANT)
    play.run()
    return all(all(state.ended) for state in play.ranks)


def _plain(lists: Lists) -> bool:
    """Return whether roles suffice: no refused call, all matched, in posting order and with equal sizes."""
    messages = lists.messages
    if messages is None or any(isinstance(one, Raise | Lost | Drop) for one in lists.actions):
        return False
    if any(isinstance(one, Together) and one.is_call for one in lists.actions):
        return False
    if not all(_in_order(one) for one in lists.kinds):
        return False
    calls_of_new_group = np.bincount(lists.rank[~lists.counts], minlength=lists.ranks)
    if np.any(calls_of_new_group != calls_of_new_group[0]):
        return False
    sizes = [
        part.nbytes
        for action in lists.actions
        for part in (action.parts if isinstance(action, Together) else (action,))
        if isinstance(part, Send | Recv)
    ]
    of = np.array(sizes, dtype=np.float64)
    if np.any(of[messages.send_row] != of[messages.receive_row]):
        return False
    return _all_agree(lists)


def _in_order(one: Operation) -> bool:
    """Return whether messages arrive in posting order: NCCL's in a queue, Gloo's immediately."""
    action = one.action
    if isinstance(action, Send | Recv | Together):
        at_once = not one.after and one.lane is None
        return action.group.workers == 1 if action.group.rules.on_stream else at_once
    return True


def _all_agree(lists: Lists) -> bool:
    """Return whether all members make each call of each group with equal arguments."""
    actions = [one if isinstance(one, Call | Join) else None for one in lists.actions]
    numbers = {action: number for number, action in enumerate(dict.fromkeys(actions))}
    wanted = np.array([numbers[action] for action in actions], dtype=np.int64)[lists.action]
    order, begins = lists.meetings
    if not len(order):
        return True
    size = np.array([0 if action is None else len(action.group.ranks) for action in actions], dtype=np.int64)[
        lists.action
    ]
    ends = np.concatenate([begins[1:], [len(order)]])
    same = np.repeat(wanted[order[begins]], ends - begins) == wanted[order]
    return bool(np.all(ends - begins == size[order[begins]]) and np.all(same))


class _Meetings:
    """The meetings of representatives: the members of each, by their positions in it."""

    def __init__(self, lists: Lists, role: Ints, chosen: Ints) -> None:
        self._lists = lists
        self._role = np.searchsorted(chosen, role)
        self._chosen = chosen
        self._numbers: dict[tuple[object, ...], int] = {}
        self.all: list[Meeting] = []
        self.of: dict[tuple[int, int], list[int]] = defaultdict(list)
        self._posted = np.flatnonzero(lists.counts)
        before = np.concatenate([[0], np.cumsum(lists.counts)])
        self._first = before[lists.begins[:-1]]
        """Index of each rank's first operation among those that have a place."""
        is_chosen = np.zeros(lists.ranks, dtype=bool)
        is_chosen[chosen] = True
        self._messages(is_chosen)
        self._calls(is_chosen)

    def communicators(self, role: int) -> set[Group]:
        """Return the NCCL communicators whose collectives a role calls."""
        actions = (one.action for one in self._lists.lists[int(self._chosen[role])])
        calls = (action for action in actions if isinstance(action, Call))
        return {call.group for call in calls if call.group.rules.on_stream}

    def _messages(self, is_chosen: NDArray[np.bool_]) -> None:
        messages = self._lists.messages
        assert messages is not None
        rank = self._lists.rank
        some = is_chosen[rank[messages.send]] | is_chosen[rank[messages.receive]]
        sends = zip(self._where(messages.send[some]), messages.send_part[some].tolist(), strict=True)
        receives = zip(self._where(messages.receive[some]), messages.receive_part[some].tolist(), strict=True)
        for (send, one), (receive, other) in zip(sends, receives, strict=True):
            self._add((send, one, receive, other), [send, receive])

    def _calls(self, is_chosen: NDArray[np.bool_]) -> None:
        order, begins = self._lists.meetings
        chosen = is_chosen[self._lists.rank[order]]
        some = np.logical_or.reduceat(chosen, begins) if len(order) else np.zeros(0, dtype=bool)
        ends = np.concatenate([begins[1:], [len(order)]])
        for begin, end in zip(begins[some].tolist(), ends[some].tolist(), strict=True):
            there = list(dict.fromkeys(self._where(order[begin:end])))
            self._add(tuple(sorted(there)), there)

    def _add(self, key: tuple[object, ...], there: Meeting) -> None:
        if key not in self._numbers:
            self._numbers[key] = len(self.all)
            for where in there:
                self.of[where].append(len(self.all))
            self.all.append(there)

    def _where(self, operations: Ints) -> Meeting:
        """Return the roles of operations, and their places in the lists of the roles' representatives."""
        role = self._role[self._lists.rank[operations]]
        same = self._posted[self._first[self._chosen[role]] + self._lists.place[operations]]
        place = same - self._lists.begins[self._chosen[role]]
        return list(zip(role.tolist(), place.tolist(), strict=True))
