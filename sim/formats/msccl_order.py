"""The order of the steps of MSCCL's XML in every execution, and data races where they have none.

A step of a thread block begins when the step before it is over, when the named block has signalled that the
named step is over, when its received data were sent, and when a slot is free for its own send. Blocks are
sequential, connections are queues and flags only grow, so all executions carry out the same steps or stop at
the same ones: one execution shows every step's dependencies. A free slot orders nothing, because a network
has more of them. The runtime is github.com/microsoft/msccl, src/collectives/device/msccl_interpreter.h.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ringside.sim.formats import FormatError
from ringside.sim.formats.msccl_read import (
    READS,
    RECEIVES,
    SENDS,
    WRITES,
    Algorithm,
    MscclStep,
    Slot,
    ThreadBlock,
)

BUFFERS = {"i": "input", "o": "output", "s": "scratch"}


class StepEvent(NamedTuple):
    """A step in the order of execution; ``after`` are the events for which it waits itself."""

    rank: int
    block: int
    place: int
    step: MscclStep
    after: tuple[int, ...]
    received: int | None
    """The event that sent the data that this one receives."""


def events(algorithm: Algorithm) -> list[StepEvent]:
    """Return all steps, each after its dependencies.

    Raise `FormatError` with the line of a step that waits forever.
    """
    return _Execution(algorithm).events


class _Execution:
    """One execution: each block runs as far as it can, repeatedly."""

    def __init__(self, algorithm: Algorithm) -> None:
        self.events: list[StepEvent] = []
        self._algorithm = algorithm
        self._sent: dict[tuple[int, int, int], deque[int]] = {}
        """Sending events not yet received, by connection."""
        self._last: dict[tuple[int, int], int] = {}
        """The last event of each block."""
        self._signals: dict[tuple[int, int], list[tuple[int, int]]] = {}
        """Places of signalling steps, and their events, by block."""
        places = {(rank, number): 0 for rank, blocks in enumerate(algorithm.blocks) for number in blocks}
        moved = True
        while moved:
            moved = False
            for (rank, number), place in places.items():
                steps = algorithm.blocks[rank][number].steps
                while place < len(steps) and self._goes(rank, number, place):
                    place += 1
                moved |= place > places[rank, number]
                places[rank, number] = place
        self._refuse_waiting(places)

    def _goes(self, rank: int, number: int, place: int) -> bool:
        """Carry out a step if possible; return whether it was possible."""
        block = self._algorithm.blocks[rank][number]
        step = block.steps[place]
        after = [self._last[rank, number]] if place else []
        if step.after:
            signals = self._signals.get((rank, step.after[0]), [])
            first = bisect_left(signals, (step.after[1], 0))
            if first == len(signals):
                return False
            after.append(signals[first][1])
        receives, sends = step.type in RECEIVES, step.type in SENDS
        came, left = self._queue(block.recv, rank, block), self._queue(rank, block.send, block)
        if (receives and not came) or (sends and len(left) == self._algorithm.slots):
            return False
        received = came.popleft() if receives else None
        if received is not None:
            after.append(received)
            count = self.events[received].step.count
            if count != step.count:
                raise self._algorithm.wrong(
                    step.line, f"{step.count} chunks are received, and {count} were sent"
                )
        self._last[rank, number] = len(self.events)
        if sends:
            left.append(len(self.events))
        if step.tells:
            self._signals.setdefault((rank, number), []).append((place, len(self.events)))
        self.events.append(StepEvent(rank, number, place, step, tuple(after), received))
        return True

    def _queue(self, src: int, dst: int, block: ThreadBlock) -> deque[int]:
        return self._sent.setdefault((src, dst, block.channel), deque())

    def _refuse_waiting(self, places: dict[tuple[int, int], int]) -> None:
        """Refuse blocks that cannot end, and messages that are never received."""
        for (rank, number), place in places.items():
            block = self._algorithm.blocks[rank][number]
            if place == len(block.steps):
                continue
            step, slots = block.steps[place], self._algorithm.slots
            message = f"gpu {rank}, thread block {number} waits here forever"
            if step.type in SENDS and len(self._queue(rank, block.send, block)) == slots:
                message += f": {slots} messages to gpu {block.send} wait, and the protocol has no more slots"
            raise self._algorithm.wrong(step.line, message)
        for (src, dst, channel), left in self._sent.items():
            if left:
                raise FormatError(
                    f"{self._algorithm.file}: gpu {src} sends {len(left)} more messages to gpu {dst} on "
                    f"channel {channel} than it receives"
                )


def refuse_races(algorithm: Algorithm, order: Sequence[StepEvent], *, in_place: bool) -> None:
    """Raise `FormatError` with both lines if two unordered steps access one chunk.

    One of the two must write. The events before a step are the bits of an integer, kept as long as other
    steps may wait for it.
    """
    waiting = [0] * len(order)
    for event in order:
        for other in event.after:
            waiting[other] += 1
    over: dict[int, int] = {}
    written: dict[tuple[int, Slot], int] = {}
    read: dict[tuple[int, Slot], int] = {}
    for number, event in enumerate(order):
        before = 1 << number
        for other in event.after:
            before |= over[other]
            waiting[other] -= 1
            if not waiting[other]:
                del over[other]
        for cell, writes in _touched(algorithm, event, in_place=in_place):
            part = event.rank, cell
            meets = written.get(part, 0) | (read.get(part, 0) if writes else 0)
            if meets | before != before:
                raise _race(algorithm, order[(meets & ~before).bit_length() - 1], event, cell)
            if writes:
                # order is transitive
                written[part], read[part] = 1 << number, 0
            else:
                read[part] = read.get(part, 0) | 1 << number
        if waiting[number]:
            over[number] = before


def _touched(algorithm: Algorithm, event: StepEvent, *, in_place: bool) -> Iterator[tuple[Slot, bool]]:
    """Return the chunks that a step reads, then those that it writes, and whether it writes.

    A chunk copied to its own place does not change.
    """
    step = event.step
    source, target = (
        [algorithm.cell(event.rank, (buffer, first + n), in_place=in_place) for n in range(step.count)]
        for buffer, first in (step.source, step.target)
    )
    if step.type in READS:
        yield from ((cell, False) for cell in source)
    if step.type == "re":
        yield from ((cell, False) for cell in target)
    if step.type in WRITES and not (step.type == "cpy" and source == target):
        yield from ((cell, True) for cell in target)


def _race(algorithm: Algorithm, first: StepEvent, second: StepEvent, cell: Slot) -> FormatError:
    def named(event: StepEvent) -> str:
        return f"step {event.place} of thread block {event.block}"

    return algorithm.wrong(
        second.step.line,
        f"{named(second)} and, on line {first.step.line}, {named(first)} race at chunk {cell[1]} of gpu "
        f"{second.rank}'s {BUFFERS[cell[0]]}, which one of them changes: nothing orders them; make the later "
        "wait for the other by depid and deps",
    )
