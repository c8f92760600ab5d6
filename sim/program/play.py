"""The rules of a program without a clock: which operations may begin, which ranks meet, which hosts are held.

A `Play` posts operations as each rank's host comes to them, and reports those that have *arrived*: all
operations in ``after`` have ended, and it is their turn in their lane and their group's queue. The caller
decides when an operation ends.
"""

import sys
from collections import deque
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field

from ringside.sim.libraries.rules import NCCL
from ringside.sim.program.operations import (
    Call,
    Compute,
    Drop,
    Group,
    NewGroup,
    Operation,
    Program,
    Recv,
    Send,
    Together,
    Wait,
)

Arrived = Callable[[int, int], None]
"""Callback for each operation that may begin: the rank, and the operation's place in its list."""


class RankState:
    """The progress of one rank."""

    __slots__ = (
        *("blockers", "called", "dependents", "ended", "held_by"),
        *("number", "operations", "posted", "queues", "tails"),
    )

    def __init__(self, operations: Sequence[Operation]) -> None:
        self.operations = operations
        self.posted = 0
        self.held_by: int | None = None
        self.blockers = [0] * len(operations)
        """Number of conditions that still keep each operation from beginning."""
        self.ended = bytearray(len(operations))
        self.dependents: dict[int, list[int]] = {}
        self.tails: dict[str, int] = {}
        """The last operation of each lane."""
        self.queues: dict[Group, Queue] = {}
        self.called: dict[Group, int] = {}
        self.number: dict[int, int] = {}
        """The number of each call in its group."""


@dataclass(slots=True)
class Queue:
    """One rank's operations of a group: the number running, and those that wait."""

    running: int = 0
    waiting: deque[int] = field(default_factory=deque)


class Play:
    """A program under way. `run` calls ``arrived`` for every operation that may begin.

    Actions of ``instant`` types are not reported: they end as they arrive. Hosts of ``late`` ranks post
    nothing until they `come`. In a ``serial`` play a rank's collectives run one after another whatever their
    group, as on a GPU with room for one NCCL kernel. In a ``stepwise`` play a host posts its next operation
    when all that can begin has arrived.
    """

    def __init__(
        self,
        program: Program,
        arrived: Arrived,
        *,
        serial: bool = False,
        instant: frozenset[type] = frozenset(),
        late: Container[int] = (),
        stepwise: bool = False,
    ) -> None:
        self.ranks = [RankState(program.operations(rank)) for rank in range(program.ranks)]
        self._arrived = arrived
        self._instant = instant
        self._device = Group("device", (), NCCL.name, 1) if serial else None
        self._agenda: deque[tuple[int, int]] = deque()
        self._hosts = deque(rank for rank in range(program.ranks) if rank not in late)
        self._most = 1 if stepwise else sys.maxsize
        self._stopped: set[int] = set()

    def stop(self, rank: int) -> None:
        """Stop a rank's host from posting until `come` is called."""
        self._stopped.add(rank)

    def come(self, rank: int) -> None:
        """Let a late or stopped rank's host continue with the next `run`."""
        self._stopped.discard(rank)
        self._hosts.append(rank)

    def run(self) -> None:
        """Run until hosts are held or have posted all operations, and all arrivals are reported."""
        agenda, hosts, arrived, instant = self._agenda, self._hosts, self._arrived, self._instant
        while agenda or hosts:
            while agenda:
                rank, place = agenda.popleft()
                if type(self.ranks[rank].operations[place].action) in instant:
                    self.end(rank, place)
                else:
                    arrived(rank, place)
            if hosts:
                rank = hosts.popleft()
                if rank not in self._stopped and self.post(rank, self._most):
                    hosts.appendleft(rank)

    def post(self, rank: int, most: int = sys.maxsize) -> bool:
        """Post at most ``most`` next operations of a rank's host; return False where it is held or done."""
        state = self.ranks[rank]
        if state.held_by is not None:
            return False
        operations, ended, tails = state.operations, state.ended, state.tails
        place, until = state.posted, min(len(operations), state.posted + most)
        while place < until:
            action, lane, after, holds, *_ = operations[place]
            blockers = 0
            for earlier in after:
                if not ended[earlier]:
                    state.dependents.setdefault(earlier, []).append(place)
                    blockers += 1
            if lane is not None:
                last = tails.get(lane)
                tails[lane] = place
                if last is not None and not ended[last]:
                    state.dependents.setdefault(last, []).append(place)
                    blockers += 1
            kind = type(action)
            if kind in _QUEUED:
                blockers += self._queue(state, place, action)
            elif not blockers and kind in self._instant:
                ended[place] = 1
                place += 1
                continue
            if blockers:
                state.blockers[place] = blockers
            else:
                self._agenda.append((rank, place))
            place += 1
            if holds:
                state.held_by = place - 1
                break
        state.posted = place
        return place < len(operations) and state.held_by is None

    def end(self, rank: int, place: int) -> None:
        """End an operation."""
        state = self.ranks[rank]
        state.ended[place] = 1
        if place in state.dependents:
            for later in state.dependents.pop(place):
                self._unblock(rank, state, later)
        action = state.operations[place][0]
        if type(action) in _QUEUED:
            group = self._queue_of(action)
            if group is not None:
                queue = state.queues[group]
                if queue.waiting:
                    self._unblock(rank, state, queue.waiting.popleft())
                else:
                    queue.running -= 1
        if state.held_by == place:
            state.held_by = None
            self._hosts.append(rank)

    def _queue(self, state: RankState, place: int, action: object) -> bool:
        """Put an operation into its group's queue; return whether it has to wait there."""
        if is_call(action):
            state.number[place] = state.called[action.group] = state.called.get(action.group, -1) + 1  # type: ignore[attr-defined]
        group = self._queue_of(action)
        if group is None:
            return False
        queue = state.queues.get(group)
        if queue is None:
            queue = state.queues[group] = Queue()
        if queue.running < group.workers:
            queue.running += 1
            return False
        queue.waiting.append(place)
        return True

    def has_arrived(self, rank: int, place: int) -> bool:
        """Return whether an operation is posted and no other of its own rank delays it."""
        state = self.ranks[rank]
        return place < state.posted and not state.blockers[place]

    def _queue_of(self, action: object) -> Group | None:
        """Return the group whose queue contains an action."""
        return self._device if self._device and type(action) is Call else queue_of(action)

    def behind(self, rank: int, place: int) -> int:
        """Return the arrived operation of the same rank that an operation ultimately waits for."""
        state = self.ranks[rank]
        while state.blockers[place]:
            operation = state.operations[place]
            group = self._queue_of(operation.action)
            place = next(
                earlier
                for earlier in range(place)
                if not state.ended[earlier]
                and (
                    earlier in operation.after
                    or (operation.lane is not None and state.operations[earlier].lane == operation.lane)
                    or (group is not None and self._queue_of(state.operations[earlier].action) is group)
                )
            )
        return place

    def _unblock(self, rank: int, state: RankState, place: int) -> None:
        state.blockers[place] -= 1
        if not state.blockers[place]:
            self._agenda.append((rank, place))


def is_call(action: object) -> bool:
    """Return whether an action is a numbered call of its group."""
    return type(action) is Call or (type(action) is Together and action.is_call)


def queue_of(action: object) -> Group | None:
    """Return the group whose queue an action enters, or None: Gloo's messages enter none."""
    if is_call(action) or (type(action) in _QUEUED and action.group.rules.on_stream):  # type: ignore[attr-defined]
        return action.group  # type: ignore[attr-defined,no-any-return]
    return None


INSTANT = frozenset({Compute, Wait, NewGroup, Drop})
"""Actions that wait for no other rank in a play without time."""

_QUEUED = frozenset({Call, Send, Recv, Together})
