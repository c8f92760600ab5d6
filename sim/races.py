"""Races, where two transfers access a chunk in no certain order, and deadlocks.

Few orders hold in every execution. A transfer starts when its chunks are complete at its source after all
earlier steps, and the transfers of a connection arrive in order. From a transfer's start to its arrival its
source may be read and, if it overwrites, its target be written; data to be added may wait at the receiver for
any time after that.

Nothing else counts. Credits order no more than that, since they make a transfer wait for others of its own
connection only. ``after`` delays transfers only in the simulation. Where ranks send copies, data added to a
part arrive after the copies sent of it.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator
from graphlib import CycleError, TopologicalSorter

from ringside.sim.plan import Plan
from ringside.sim.steps import ScheduleError, Transfer


class _Certain:
    """Events that are over before a transfer writes anything, as the bits of an integer."""

    def __init__(self) -> None:
        self._on: dict[tuple[int, int, int], int] = {}
        self._at: dict[tuple[int, int], int] = {}

    def before(self, transfer: Transfer) -> int:
        """Return the events before a transfer starts and all earlier ones on its connection arrive."""
        events = self._on.get((transfer.src, transfer.dst, transfer.channel), 0)
        for chunk in transfer.chunks:
            events |= self._at.get((transfer.src, chunk), 0)
        return events

    def arrive(self, transfer: Transfer, events: int) -> None:
        """Record ``events`` as over when the connection's next transfer arrives."""
        self._on[transfer.src, transfer.dst, transfer.channel] = events

    def complete(self, transfer: Transfer, events: int) -> None:
        """Record ``events`` as over when a transfer of these chunks leaves the receiver."""
        for chunk in transfer.chunks if events else ():
            part = transfer.dst, chunk
            self._at[part] = self._at.get(part, 0) | events


def refuse_races(schedule: Plan, chunks: Collection[int]) -> None:
    """Raise `ScheduleError` if some chunk's result depends on which of two transfers is earlier.

    An overwrite of a rank's part of a chunk must come after all reads, additions and copies of it earlier in
    program order; an addition must come after all except other sums, and after reads only where ranks do not
    send copies.
    """
    chosen, certain = frozenset(chunks), _Certain()
    followed: list[tuple[int, Transfer]] = []  # the i-th arrives with bit 2i and is complete with bit 2i + 1
    sums: dict[tuple[int, int], int] = defaultdict(int)
    reads: dict[tuple[int, int], int] = defaultdict(int)
    copied: dict[tuple[int, int], int] = defaultdict(int)
    for number, moved in enumerate(schedule.steps()):
        now = []
        for transfer in moved.transfers():
            before, shared, arrival = certain.before(transfer), chosen.intersection(transfer.chunks), 0
            if shared:
                arrival = 1 << 2 * len(followed)
                followed.append((number, transfer))
            for chunk in shared:
                reads[transfer.src, chunk] |= arrival
            certain.arrive(transfer, before | arrival)
            now.append((transfer, before, shared, arrival))
        for transfer, before, shared, arrival in now:
            for chunk in shared:
                part = transfer.dst, chunk
                if transfer.reduce:
                    open_ends = copied[part] | (0 if schedule.copies else reads[part])
                else:
                    open_ends = copied[part] | reads[part] | sums[part]
                open_ends &= ~before
                if open_ends:
                    first = followed[((open_ends & -open_ends).bit_length() - 1) // 2]
                    raise _race(schedule, chunk, transfer.dst, first, (number, transfer))
                if transfer.reduce:
                    sums[part] |= arrival << 1
                else:
                    copied[part] |= arrival
        for transfer, before, _, arrival in now:
            certain.complete(transfer, before | arrival | arrival << 1)


def _bits(events: int) -> Iterator[int]:
    while events:
        lowest = events & -events
        yield lowest.bit_length() - 1
        events ^= lowest


def _race(schedule: Plan, chunk: int, end: int, *both: tuple[int, Transfer]) -> ScheduleError:
    first, second = (
        f"step {number}, chunk {chunk}, {schedule.end(transfer.src)} to {schedule.end(transfer.dst)} "
        f"({'reduce' if transfer.reduce else 'overwrite'})"
        for number, transfer in both
    )
    return schedule.error(f"{first} and {second} race at {schedule.end(end)}: nothing orders them")


def refuse_deadlock(schedule: Plan) -> None:
    """Raise `ScheduleError` if pairs of ranks wait for each other in a cycle of ``after``."""
    late = {pair: 1 << number for number, pair in enumerate(schedule.after)}
    certain, awaited = _Certain(), dict[tuple[int, int], int]()
    for moved in schedule.steps() if late else ():
        now = []
        for transfer in moved.transfers():
            pair = transfer.src, transfer.dst
            events = certain.before(transfer) | late.get(pair, 0)
            awaited[pair] = awaited.get(pair, 0) | events
            certain.arrive(transfer, events)
            now.append((transfer, events))
        for transfer, events in now:
            certain.complete(transfer, events)
    pairs = list(late)
    waits = {
        pair: [pairs[number] for number in _bits(awaited.get(early, 0))]
        for pair, early in schedule.after.items()
    }
    try:
        TopologicalSorter(waits).prepare()
    except CycleError as error:
        cycle = error.args[1][:0:-1]
        first = cycle.index(min(cycle))
        sentences = [
            f"rank {src} to rank {dst} waits for rank {schedule.after[src, dst][0]} to rank "
            f"{schedule.after[src, dst][1]}"
            for src, dst in cycle[first:] + cycle[:first]
        ]
        raise schedule.error(f"deadlock: {', '.join(sentences)}") from None
