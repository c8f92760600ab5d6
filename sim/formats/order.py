"""The order of a program's operations made explicit, and the order of a file's nodes."""

import heapq
from collections.abc import Collection, Sequence
from graphlib import CycleError

from ringside.sim.program.operations import Call, Group, Operation, Program, Wait
from ringside.sim.program.play import queue_of

BESIDE = 2**31
"""Operations of a member of a group that may run at once, in programs whose files have no queues."""


ARRIVAL = "arrival"
"""The category of an operation that stands for a receive; the first one that it comes after is the message.

The message waits for nothing: it is not held back until the receive begins, as with eager senders."""


def folded(operations: Sequence[Operation]) -> set[int]:
    """Return the places of messages for which another operation stands."""
    return {one.after[0] for one in operations if one.category == ARRIVAL}


def closed(operations: list[Operation]) -> list[Operation]:
    """Return a file's operations, followed by the host, which waits for those without a successor."""
    awaited = {earlier for one in operations for earlier in one.after}
    left = tuple(place for place in range(len(operations)) if place not in awaited)
    return [*operations, Operation(Wait(), None, left, True, "end", "wait")]


class OperationOrder:
    """Predecessors of each operation of a rank; a file has no host, lanes or queues that imply them.

    Query the operations in order.
    """

    def __init__(self, operations: Sequence[Operation]) -> None:
        self._operations = operations
        self._lanes: dict[str | None, int] = {}
        self._held: int | None = None
        self._queues: dict[Group, list[int]] = {}

    def before(self, place: int) -> list[int]:
        """Return the earlier operations that must be over when the one at ``place`` begins.

        In a queue that runs several at once it is the last that could not run beside it.
        """
        operation = self._operations[place]
        places = list(operation.after)
        if operation.lane in self._lanes:
            places.append(self._lanes[operation.lane])
        if self._held is not None:
            places.append(self._held)
        places += self._queued(place, operation.action)
        if operation.lane is not None:
            self._lanes[operation.lane] = place
        if operation.holds:
            self._held = place
        return list(dict.fromkeys(places))

    def _queued(self, place: int, action: object) -> list[int]:
        group = queue_of(action)
        if group is None:
            return []
        queue = self._queues.setdefault(group, [])
        queue.append(place)
        return queue[-1 - group.workers :][:1] if len(queue) > group.workers else []


def in_order(before: Sequence[Collection[int]]) -> list[int]:
    """Return places in topological order, otherwise in their own order.

    Raise `CycleError`, whose second argument is a place that waits for itself, where there is no such order.
    """
    later: list[list[int]] = [[] for _ in before]
    waits = [len(set(names)) for names in before]
    for place, names in enumerate(before):
        for name in set(names):
            later[name].append(place)
    ready = [place for place, count in enumerate(waits) if not count]
    ordered: list[int] = []
    while ready:
        place = heapq.heappop(ready)
        ordered.append(place)
        for one in later[place]:
            waits[one] -= 1
            if not waits[one]:
                heapq.heappush(ready, one)
    if len(ordered) < len(waits):
        place = next(place for place, count in enumerate(waits) if count)
        seen: set[int] = set()
        while place not in seen:
            seen.add(place)
            place = next(name for name in before[place] if waits[name])
        raise CycleError("a cycle", place)
    return ordered


def loses_queue(program: Program) -> bool:
    """Check for collectives that wait for no host in queues that run several at once.

    `OperationOrder` then makes each wait for the last that could not run beside it, though another may end
    earlier.
    """
    return any(
        isinstance(one.action, Call) and 1 < one.action.group.workers < BESIDE and not one.holds
        for rank in range(program.ranks)
        for one in program.operations(rank)
    )


QUEUE_LOST = "a collective of a group waits for the last but one before it: the format has no queues"
"""The note where `loses_queue`."""
