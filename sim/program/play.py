"""The rules by which a program moves, without a clock: who may begin, who meets whom, who is held.

A `Play` posts operations as each rank's host comes to them and says which have *arrived*: all that they come
after has ended, and their lane and their group's queue have come to them. When an operation ends is not its
business: who plays says so, each in its way.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from sim.program.operations import Call, Group, Operation, Program, Recv, Send, Together

Arrived = Callable[[int, int], None]
"""Hears of each operation that may begin: the rank, and its place in the rank's list."""


class RankState:
    """How far one rank is."""

    __slots__ = (
        *("blockers", "called", "dependents", "ended", "held_by"),
        *("number", "operations", "posted", "queues", "tails"),
    )

    def __init__(self, operations: list[Operation]) -> None:
        self.operations = operations
        self.posted = 0
        self.held_by: int | None = None
        self.blockers = [0] * len(operations)
        """Of each operation: what still keeps it from beginning."""
        self.ended = bytearray(len(operations))
        self.dependents: dict[int, list[int]] = {}
        self.tails: dict[str, int] = {}
        """The last operation of each lane."""
        self.queues: dict[Group, Queue] = {}
        self.called: dict[Group, int] = {}
        self.number: dict[int, int] = {}
        """Which call of its group a call is."""


@dataclass(slots=True)
class Queue:
    """What one rank has posted to a group: how many run, and what waits."""

    running: int = 0
    waiting: deque[int] = field(default_factory=deque)


class Play:
    """A program under way. ``arrived`` is told of every operation that may begin, while `run` is called.

    In a ``serial`` one a rank's collectives run one after another whatever their group, as on a GPU that has
    room for one kernel of NCCL.
    """

    def __init__(self, program: Program, arrived: Arrived, *, serial: bool = False) -> None:
        self.ranks = [RankState(list(program.operations(rank))) for rank in range(program.ranks)]
        self._arrived = arrived
        self._device = Group("device", (), "nccl", 1) if serial else None
        self._agenda: deque[tuple[int, int]] = deque()
        self._hosts: deque[int] = deque(range(program.ranks))

    def run(self) -> None:
        """Go on until nothing can move: hosts are held or have posted all, and all that arrived was told."""
        agenda, hosts, arrived = self._agenda, self._hosts, self._arrived
        while agenda or hosts:
            while agenda:
                arrived(*agenda.popleft())
            if hosts:
                rank = hosts.popleft()
                while self.post(rank):
                    pass

    def post(self, rank: int) -> bool:
        """Have a rank's host post its next operation; False where it is held or has no more."""
        state = self.ranks[rank]
        place = state.posted
        if state.held_by is not None or place == len(state.operations):
            return False
        state.posted = place + 1
        action, lane, after, holds, _, _, _ = state.operations[place]
        blockers = 0
        for earlier in after:
            blockers += self._depend(state, place, earlier)
        if lane is not None:
            last = state.tails.get(lane)
            state.tails[lane] = place
            if last is not None:
                blockers += self._depend(state, place, last)
        group = self._queue_of(action)
        if group is not None:
            queue = state.queues.get(group)
            if queue is None:
                queue = state.queues[group] = Queue()
            if queue.running < group.workers:
                queue.running += 1
            else:
                queue.waiting.append(place)
                blockers += 1
            if type(action) is Call:
                group = action.group
                state.number[place] = state.called[group] = state.called.get(group, -1) + 1
        if holds:
            state.held_by = place
        state.blockers[place] = blockers
        if not blockers:
            self._agenda.append((rank, place))
        return True

    def end(self, rank: int, place: int) -> None:
        """Say that an operation has ended."""
        state = self.ranks[rank]
        state.ended[place] = 1
        for later in state.dependents.pop(place, ()):
            self._unblock(rank, state, later)
        group = self._queue_of(state.operations[place].action)
        if group is not None:
            queue = state.queues[group]
            if queue.waiting:
                self._unblock(rank, state, queue.waiting.popleft())
            else:
                queue.running -= 1
        if state.held_by == place:
            state.held_by = None
            self._hosts.append(rank)

    def has_arrived(self, rank: int, place: int) -> bool:
        """Whether an operation has been posted and nothing of its own rank keeps it from beginning."""
        state = self.ranks[rank]
        return place < state.posted and not state.blockers[place]

    def _queue_of(self, action: object) -> Group | None:
        """The group in whose queue an action stands: Gloo's messages stand in none."""
        kind = type(action)
        if kind is Call:
            return self._device or action.group  # type: ignore[attr-defined]
        if kind in _MESSAGES and action.group.library == "nccl":  # type: ignore[attr-defined]
            return action.group  # type: ignore[attr-defined,no-any-return]
        return None

    def behind(self, rank: int, place: int) -> int:
        """The operation of the same rank that an operation in the end waits for: one that has arrived."""
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

    def _depend(self, state: RankState, place: int, earlier: int) -> int:
        if state.ended[earlier]:
            return 0
        state.dependents.setdefault(earlier, []).append(place)
        return 1

    def _unblock(self, rank: int, state: RankState, place: int) -> None:
        state.blockers[place] -= 1
        if not state.blockers[place]:
            self._agenda.append((rank, place))


_MESSAGES = frozenset({Send, Recv, Together})
