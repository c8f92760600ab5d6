"""The proof of a program: it is played without time until all has ended or nothing can move.

A program that ends when every collective and every message waits for all that take part ends whatever the
library does: it is *proved*. One that does not is played once more, with what the libraries really wait for:
if it ends then it is *unsafe*, else it *hangs*. It *fails* where a library raises an error or kills the
process.

A receive from whoever sends is matched only when nothing else can move, with each of the messages that wait
then, one play each: that is every order that can happen (Vakkalanka et al., Dynamic verification of MPI
programs with reductions in presence of split operations and relaxed orderings, 2008).
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from sim.collective import Collective
from sim.engine.run import uncollected
from sim.libraries import gloo
from sim.program.fold import ends
from sim.program.operations import (
    ANY,
    Action,
    Call,
    Group,
    Join,
    NewGroup,
    Program,
    Raise,
    Recv,
    Send,
    Together,
)
from sim.program.play import INSTANT, Play
from sim.program.story import Stop, failure, story

EAGER = 16 * 1024
"""Bytes of a message that NCCL may push into its buffer before anybody receives it: up to here it sends by
LL (NCCL_P2P_LL_THRESHOLD, src/enqueue.cc)."""

MOST_FOLLOWED = 64
"""Ranks of a broadcast up to which it is followed who meets whom; in a larger one all wait for all."""

FOLDED = 32
"""Ranks from which it is tried whether one of each role tells."""

MOST_PLAYS = 1000
"""How many orders of receiving from anybody are tried."""

ONE_KERNEL = (
    "it ends only where the GPU runs kernels of several communicators at once, which NCCL does not promise; "
    "call them in one order on all ranks"
)

PROVED, HANGS, FAILS, UNSAFE = "proved", "hangs", "fails", "unsafe"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is true of a program, and why, in sentences; ``operations`` counts those of all ranks."""

    verdict: str
    story: tuple[str, ...]
    operations: int


def check(program: Program) -> Verdict:
    """Prove that a program ends, or say what is wrong."""
    with uncollected():
        recorded = [program.operations(rank) for rank in range(program.ranks)]
        known = Program(program.name, program.ranks, recorded.__getitem__)
        if program.ranks >= FOLDED and ends(known):
            return Verdict(PROVED, (), sum(map(len, recorded)))
        return _checked(known)


def _checked(program: Program) -> Verdict:
    first = _Check(program, strict=True, choices=[])
    count = sum(len(state.operations) for state in first.play.ranks)
    plays, worst = 0, first
    pending: list[list[int]] = [[]]
    while pending:
        choices = pending.pop()
        one = first if not plays else _Check(program, strict=True, choices=choices)
        plays += 1
        if plays > MOST_PLAYS:
            text = f"receives from anybody can be matched in more than {MOST_PLAYS} ways; name their sources"
            return Verdict(UNSAFE, (text,), count)
        if not one.ended:
            worst = one
            break
        for depth in range(len(choices), len(one.taken)):
            pending += [
                [*(choice for choice, _ in one.taken[:depth]), other]
                for other in range(1, one.taken[depth][1])
            ]
    if worst.failed:
        return Verdict(FAILS, tuple(failure(worst.play, worst.failed)), count)
    if worst.ended:
        doubt = worst.doubt or _skipped(worst.play)
        if doubt:
            return Verdict(UNSAFE, (doubt,), count)
        alone = _Check(program, strict=True, choices=[], serial=True) if _overlaps(worst.play) else worst
        if alone.ended:
            return Verdict(PROVED, (), count)
        return Verdict(UNSAFE, (*story(alone.play, alone), ONE_KERNEL), count)
    told = tuple(story(worst.play, worst))
    loose = _Check(program, strict=False, choices=[choice for choice, _ in worst.taken])
    if loose.failed:
        return Verdict(FAILS, tuple(failure(loose.play, loose.failed)), count)
    return Verdict(UNSAFE if loose.ended else HANGS, told, count)


class _Message(NamedTuple):
    """One side of a message that waits for its other side."""

    rank: int
    place: int
    nbytes: int
    has_left: bool = False
    """Whether a send has ended before it was received."""


class _Check:
    """One play: strict ones let nobody leave early."""

    def __init__(self, program: Program, *, strict: bool, choices: list[int], serial: bool = False) -> None:
        self.failed: Stop | None = None
        self.taken: list[tuple[int, int]] = []
        """The matches of receives from anybody that were chosen, and of how many."""
        self.meetings: dict[tuple[Group, int], list[tuple[int, int]]] = {}
        """Who has come to each call of each group."""
        self.doubt = ""
        """What is wrong although it ends."""
        self._strict = strict
        self._choices = choices
        self._sends: dict[tuple[Group, int, int, int], deque[_Message]] = {}
        self._receives: dict[tuple[Group, int, int, int], deque[_Message]] = {}
        self._anybody: deque[tuple[tuple[Group, int, int], _Message]] = deque()
        self._parts: dict[tuple[int, int], int] = {}
        self.play = Play(program, self._arrived, serial=serial, instant=INSTANT)
        self.play.run()
        while not self.failed and self._take_from_anybody():
            self.play.run()

    @property
    def ended(self) -> bool:
        """Whether all has ended; where libraries need not wait for each other, whether every host has."""
        if self.failed:
            return False
        states = self.play.ranks
        hosts = all(s.held_by is None and s.posted == len(s.operations) for s in states)
        left_alone = not self._strict and all(group.library == "gloo" for s in states for group in s.queues)
        return hosts and (left_alone or all(all(s.ended) for s in states))

    def _arrived(self, rank: int, place: int) -> None:
        action = self.play.ranks[rank].operations[place][0]
        kind = type(action)
        if kind is Call:
            self._meet(action.group, self.play.ranks[rank].number[place], rank, place)  # type: ignore[union-attr]
        elif kind is Send or kind is Recv:
            self._message(action, rank, place)  # type: ignore[arg-type]
        elif kind is Together:
            parts = action.parts  # type: ignore[union-attr]
            self._parts[rank, place] = len(parts)
            for part in parts:
                self._message(part, rank, place)
        elif kind is Join:
            self._meet(action.group, -1, rank, place)  # type: ignore[union-attr]
        elif kind is Raise:
            self.failed = self.failed or Stop(rank, place, action.message)  # type: ignore[union-attr]

    def _meet(self, group: Group, number: int, rank: int, place: int) -> None:
        here = self.meetings.get((group, number))
        if here is None:
            here = self.meetings[group, number] = []
        here.append((rank, place))
        if len(here) == len(group.ranks):
            if self._agree(group, here):
                if self._strict:
                    del self.meetings[group, number]
                for one in here:
                    self._end_once(*one)
        elif not self._strict and self._agree(group, here):
            there = {member for member, _ in here}
            for member, its in here:
                if needs(self.play.ranks[member].operations[its].action, member) <= there:
                    self._end_once(member, its)

    def _agree(self, group: Group, here: list[tuple[int, int]]) -> bool:
        """Whether the members call the same collective of the same size; what Gloo makes of other sizes."""
        ranks = self.play.ranks
        actions = [ranks[rank].operations[place][0] for rank, place in here]
        first = actions[0]
        if not isinstance(first, Call) or all(action is first for action in actions):
            return True
        calls = [action for action in actions if action is not first and isinstance(action, Call)]
        if all(call.collective == first.collective for call in calls):
            return True
        if group.library != "gloo" or any(
            replace(call.collective, nbytes=first.collective.nbytes) != first.collective for call in calls
        ):
            return False
        self._sizes_differ(group, here)
        return not self.failed

    def _sizes_differ(self, group: Group, here: list[tuple[int, int]]) -> None:
        """Gloo kills a process that gets more than it has room for; what is shorter is taken as it is."""
        called = {
            rank: action
            for rank, place in here
            if isinstance(action := self.play.ranks[rank].operations[place].action, Call)
        }
        collective = called[here[0][0]].collective
        sizes = {rank: call.collective.nbytes for rank, call in called.items()}
        root = group.ranks[collective.root]
        fits = {
            "broadcast": lambda size, roots: size >= roots,
            "scatter": lambda size, roots: size >= roots,
            "gather": lambda size, roots: size <= roots,
        }.get(collective.kind)
        if fits and root not in sizes:
            return
        odd = [rank for rank in sizes if (not fits(sizes[rank], sizes[root]) if fits else rank != here[0][0])]
        text = f"sizes of {called[here[0][0]].name} differ: " + ", ".join(
            f"{size} bytes on rank {rank}" for rank, size in sorted(sizes.items())[:4]
        )
        if odd:
            place = dict(here)[odd[0]]
            self.failed = self.failed or Stop(
                odd[0], place, f"{text}; Gloo kills who gets more than it has room for"
            )
        else:
            self.doubt = f"{text}; Gloo fills a part of the room and says nothing"

    def _end_once(self, rank: int, place: int) -> None:
        if not self.play.ranks[rank].ended[place]:
            self.play.end(rank, place)

    def _message(self, message: Send | Recv, rank: int, place: int) -> None:
        group, peer, nbytes, tag = message
        own = _Message(rank, place, nbytes)
        if type(message) is Send:
            if not self._strict and group.library == "nccl" and nbytes <= EAGER:
                self._end_part(rank, place)
                own = own._replace(has_left=True)
            there = self._receives.get((group, rank, peer, tag))
            if there:
                self._deliver(own, there.popleft())
            else:
                self._sends.setdefault((group, rank, peer, tag), deque()).append(own)
        elif peer == ANY:
            self._anybody.append(((group, rank, tag), own))
        else:
            there = self._sends.get((group, peer, rank, tag))
            if there:
                self._deliver(there.popleft(), own)
            else:
                self._receives.setdefault((group, peer, rank, tag), deque()).append(own)

    def _take_from_anybody(self) -> bool:
        """Match the first receive from anybody for which messages wait, as the choices say."""
        for index, ((group, rank, tag), receive) in enumerate(self._anybody):
            waiting = [
                queue for source in group.ranks if (queue := self._sends.get((group, source, rank, tag)))
            ]
            if waiting:
                depth = len(self.taken)
                choice = self._choices[depth] if depth < len(self._choices) else 0
                self.taken.append((choice, len(waiting)))
                del self._anybody[index]
                self._deliver(waiting[choice].popleft(), receive)
                return True
        return False

    def _deliver(self, send: _Message, receive: _Message) -> None:
        if send.nbytes == receive.nbytes:
            self._end_sent(send)
            self._end_part(receive.rank, receive.place)
            return
        operation = self.play.ranks[send.rank].operations[send.place]
        library = operation.action.group.library  # type: ignore[union-attr]
        if send.nbytes > receive.nbytes and library == "gloo":
            text = (
                f"a message of {send.nbytes} bytes from rank {send.rank} ({operation.where}) is more than "
                f"the {receive.nbytes} bytes that it is received in, which kills the process"
            )
            self.failed = self.failed or Stop(receive.rank, receive.place, text)
        elif library == "gloo":
            self._end_sent(send)
            self._end_part(receive.rank, receive.place)

    def _end_sent(self, send: _Message) -> None:
        if not send.has_left:
            self._end_part(send.rank, send.place)

    def _end_part(self, rank: int, place: int) -> None:
        if (rank, place) not in self._parts:
            self._end_once(rank, place)
            return
        left = self._parts[rank, place] - 1
        self._parts[rank, place] = left
        if left == 0:
            self._end_once(rank, place)


def needs(call: Action, rank: int) -> frozenset[int]:
    """The members that must have come to a call before this one can leave it, as its library carries it out.

    Gloo's messages wait for who receives them, so both sides of a transfer have come as far as each other.
    NCCL's root of a small broadcast, and those who send to a small reduce, wait for nobody.
    """
    if not isinstance(call, Call):
        assert isinstance(call, Join)
        return call.group.members
    group, _, collective = call
    members = group.members
    root = group.ranks[collective.root]
    if group.library == "gloo":
        if collective.kind in ("gather", "scatter"):
            return members if rank == root else frozenset({root, rank})
        if collective.kind == "broadcast" and len(members) <= MOST_FOLLOWED:
            met = _met(len(group.ranks), collective.root)[group.ranks.index(rank)]
            return frozenset(group.ranks[other] for other in met)
        return members
    if collective.nbytes <= EAGER and collective.kind == "broadcast":
        return frozenset({root, rank})
    if collective.nbytes <= EAGER and collective.kind == "reduce" and rank != root:
        return frozenset({rank})
    return members


@lru_cache(maxsize=1024)
def _met(ranks: int, root: int) -> tuple[frozenset[int], ...]:
    """Whom each rank has met at the end of Gloo's broadcast."""
    met = [frozenset({rank}) for rank in range(ranks)]
    plan = gloo.schedule(Collective("broadcast", ranks, ranks, root=root), "auto")
    for step in plan.steps():
        for src, dst in zip(step.src.tolist(), step.dst.tolist(), strict=True):
            met[src] = met[dst] = met[src] | met[dst]
    return tuple(met)


def _overlaps(play: Play) -> bool:
    """Whether some rank calls collectives of more than one of NCCL's communicators."""
    return any(sum(group.library == "nccl" for group in state.called) > 1 for state in play.ranks)


def _skipped(play: Play) -> str:
    """What is wrong where not all ranks call new_group alike, though nothing waits for it; else nothing."""

    def made(rank: int) -> Iterator[tuple[Group, str]]:
        for operation in play.ranks[rank].operations:
            if isinstance(operation.action, NewGroup):
                yield operation.action.group, operation.where

    calls = [list(made(rank)) for rank in range(len(play.ranks))]
    most = max(range(len(calls)), key=lambda rank: len(calls[rank]))
    for rank, own in enumerate(calls):
        if len(own) < len(calls[most]):
            group, where = calls[most][len(own)]
            return (
                f"rank {rank} does not call the new_group {group.name} that rank {most} calls ({where}); "
                "every rank of the job must, in one order, or the groups after it are not the same"
            )
    return ""
