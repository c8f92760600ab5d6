"""The proof of a program: it is played without time until every rank has ended or none can continue.

A program that ends when every collective and message waits for all participants ends with every library: it
is *proved*. Otherwise it is played again with the waits of the real libraries: it is *unsafe* if it ends,
else it *hangs*. It *fails* where a library raises an error or kills the process.

A receive from any source is matched only when nothing else can move (Vakkalanka et al., Dynamic verification
of MPI programs with reductions in presence of split operations and relaxed orderings, 2008), but then in
every possible way: with each waiting message, on each rank with such a receive, before or behind each receive
that names its sender. A proved program ends in every way; one that ends only in some is unsafe. Orders that
lead to the same state are followed once.

It is first played by one rank per role, which is faster: `ringside.sim.program.roles` says why one rank
stands for its role. Folding needs more: messages of equal sizes that arrive in posting order, and calls whose
members all agree. Any other program is played in full. A program of many ranks that declares its roles is
played by these.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ringside.sim.effort import uncollected
from ringside.sim.program.folded import never_ends, overlaps
from ringside.sim.program.operations import (
    Call,
    Drop,
    Group,
    Join,
    Lost,
    NewGroup,
    Operation,
    Program,
    Raise,
    Recv,
    Send,
    Together,
)
from ringside.sim.program.play import INSTANT, Play
from ringside.sim.program.roles import Ints, Lists, claimed
from ringside.sim.program.story import failure, story
from ringside.sim.program.untimed import Anybody, Post, Take, Untimed

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


FOLDED = 32
"""Ranks from which playing one rank per role is tried first."""

MOST_TOLD = 256
"""Ranks up to which a program that its declared roles do not prove is played in full, for its whole story."""

MOST_PLAYED = 1_000_000
"""Operations of all plays together after which no further matches of receives from any source are tried."""

ONE_KERNEL = (
    "it ends only if the GPU runs kernels of several communicators at once, which NCCL does not "
    "guarantee; call them in one order on all ranks"
)

PROVED, HANGS, FAILS, UNSAFE = "proved", "hangs", "fails", "unsafe"

ENDS = "ends"

IN_OTHER_ORDERS = "this holds for one order of messages at receives from any source; in another order it ends"

FAILS_IN_OTHER_ORDERS = "it fails in another order of messages at receives from any source"

TOO_MANY_ORDERS = "receives from any source allow more orders than can be tried; name the sources"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outcome of a proof and its reasons, in sentences; ``operations`` counts those of all ranks.

    ``outcomes`` are those of `ENDS`, `HANGS` and `FAILS` that a run can have, as far as known.
    """

    verdict: str
    story: tuple[str, ...]
    operations: int
    outcomes: frozenset[str]


def check(program: Program, roles: Sequence[int] | None = None) -> Verdict:
    """Prove that a program ends, or return why not; ``roles`` are declared ones that `claimed` returned."""
    if program.role is not None and program.ranks >= FOLDED:
        by_roles = _by_roles(program, roles or claimed(program))
        is_large = program.ranks > MOST_TOLD or by_roles.operations > MOST_PLAYED
        if by_roles.verdict == PROVED or is_large:
            return by_roles
    with uncollected():
        recorded = [program.operations(rank) for rank in range(program.ranks)]
        known = Program(program.name, program.ranks, recorded.__getitem__)
        count = sum(map(len, recorded))
        if program.ranks >= FOLDED and ends(known):
            return Verdict(PROVED, (), count, frozenset({ENDS}))
        verdict, sentences, outcomes = _checked(known)
        return Verdict(verdict, tuple(sentences), count, frozenset(outcomes))


def _by_roles(program: Program, roles: Sequence[int]) -> Verdict:
    """Prove a program by its declared roles; only few lists per role are made."""
    count = sum(len(program.operations(rank)) * alike for rank, alike in Counter(roles).items())
    serial = overlaps(program, roles)
    sentences = never_ends(program, roles, serial=serial)
    if not sentences:  # what ends one by one also ends where less waits
        return Verdict(PROVED, (), count, frozenset({ENDS}))
    side_by_side = never_ends(program, roles) if serial else sentences
    if side_by_side:
        return Verdict(HANGS, side_by_side, count, frozenset({HANGS}))
    return Verdict(UNSAFE, (*sentences, ONE_KERNEL), count, frozenset({ENDS, HANGS}))


Found = tuple[str, list[str], set[str]]
"""A verdict, its story, and the outcomes that a run can have."""


def _checked(program: Program) -> Found:
    anybody = Anybody(program) or None
    strict = loose = _Explored(program, strict=True, anybody=anybody)
    if anybody or strict.outcomes != {ENDS}:
        loose = _Explored(program, strict=False, anybody=anybody)
    operations = [program.operations(rank) for rank in range(program.ranks)]
    dropped = _dropped(operations)
    outcomes = loose.outcomes | ({HANGS} if dropped else set())
    if loose.outcomes > {ENDS}:
        return UNSAFE, [*loose.story(), *[IN_OTHER_ORDERS] * bool(anybody)], outcomes
    if not (strict.whole and loose.whole):
        return UNSAFE, [TOO_MANY_ORDERS], {ENDS, HANGS, FAILS}
    if not loose.ended:
        return _never_ends(strict, loose, outcomes)
    if strict.outcomes != {ENDS}:
        return UNSAFE, strict.story(), outcomes
    doubt = dropped or strict.doubt or loose.doubt or _skipped(operations)
    if doubt:
        return UNSAFE, [doubt], outcomes
    if _overlaps(loose.ended.play):
        alone = Untimed(program, strict=True, serial=True)
        if not alone.ended:
            return UNSAFE, [*story(alone.play, alone), ONE_KERNEL], {ENDS, HANGS}
    return PROVED, [], outcomes


def _never_ends(strict: "_Explored", loose: "_Explored", outcomes: set[str]) -> Found:
    """Return the verdict on a program that never ends, by the simpler play in which all wait for all."""
    explored = strict if bool(strict.stuck) == bool(loose.stuck) else loose
    other = [FAILS_IN_OTHER_ORDERS] if loose.stuck and loose.failed else []
    return HANGS if loose.stuck else FAILS, [*explored.story(), *other], outcomes


class _Explored:
    """All plays of a program by order of receives from any source: the first that ended, hung and failed.

    It is ``whole`` when all orders were followed, or enough for the verdict: in strict plays one that does
    not end, otherwise one that ends and one that does not.
    """

    def __init__(self, program: Program, *, strict: bool, anybody: Anybody | None) -> None:
        self.ended: Untimed | None = None
        self.stuck: Untimed | None = None
        self.failed: Untimed | None = None
        self.outcomes: set[str] = set()
        self.doubt = ""
        self._seen: set[bytes] = set()
        self._pending: list[list[Take | Post]] = [[]]
        count = max(sum(len(program.operations(rank)) for rank in range(program.ranks)), 1)
        self.whole = False
        for _ in range(1 + MOST_PLAYED // count):
            self._follow(Untimed(program, strict=strict, anybody=anybody), self._pending.pop())
            self.whole = not self._pending or (
                bool(self.outcomes - {ENDS}) if strict else self.outcomes > {ENDS}
            )
            if self.whole:
                break

    def story(self) -> list[str]:
        """Describe the plays that do not end."""
        if self.stuck:
            return list(story(self.stuck.play, self.stuck))
        assert self.failed
        stop = self.failed.failed or self.failed.perhaps
        assert stop
        return list(failure(self.failed.play, stop))

    def _follow(self, play: Untimed, path: list[Take | Post]) -> None:
        """Follow a play to its end, queue its branches, and stop at a state seen before."""
        for way in path:
            play.go(way)
        while ways := play.ways():
            if len(ways) > 1:
                state = play.state()
                if state in self._seen:
                    return
                self._seen.add(state)
            self._pending += [[*path, other] for other in ways[1:]]
            path = [*path, ways[0]]
            play.go(ways[0])
        fails = play.failed or play.perhaps
        if fails:
            self.outcomes.add(FAILS)
            self.failed = self.failed or play
        if not play.failed:
            self.outcomes.add(ENDS if play.ended else HANGS)
        if play.ended:
            self.ended = self.ended or play
        elif not fails:
            self.stuck = self.stuck or play
        self.doubt = self.doubt or play.doubt


def _dropped(operations: Sequence[Sequence[Operation]]) -> str:
    """Return a sentence on a rank that drops messages without waiting, or an empty text."""
    for rank, own in enumerate(operations):
        if own and isinstance(own[-1].action, Drop):
            first, *others = own[-1].action.messages
            more = f" and {len(others)} more" if others else ""
            return (
                f"rank {rank} does not wait for its {own[first].name}{more} ({own[first].where}); Gloo "
                "forgets a message whose Work is dropped, and its other side may wait forever; keep "
                "the Work, and wait for it"
            )
    return ""


def _overlaps(play: Play) -> bool:
    """Whether some rank calls collectives of more than one of NCCL's communicators."""
    return any(sum(group.rules.on_stream for group in state.called) > 1 for state in play.ranks)


def _skipped(operations: Sequence[Sequence[Operation]]) -> str:
    """Return a sentence on ranks that differ in new_group, which nothing waits for, or an empty text."""
    calls = [[one for one in own if isinstance(one.action, NewGroup)] for own in operations]
    most = max(range(len(calls)), key=lambda rank: len(calls[rank]))
    for rank, own in enumerate(calls):
        if len(own) < len(calls[most]):
            missed = calls[most][len(own)]
            assert isinstance(missed.action, NewGroup)
            return (
                f"rank {rank} does not call the new_group {missed.action.group.name} that rank {most} "
                f"calls ({missed.where}); every rank of the job must call it, in one order, or later "
                "groups differ"
            )
    return ""
