"""The last step on the tape as plain data."""

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from operator import itemgetter
from typing import Generic, TypeVar

from ringside.real.record.calls import groups
from ringside.real.record.rules.fusion import FusedStep, fused
from ringside.real.record.script.purposes import Purposes
from ringside.real.record.script.steps import Mark, Steps
from ringside.real.record.script.tape import TAPE, Posted
from ringside.sim.recorded.job import Action, Entry, PeerMessage, RecordedGroup, RecordedRank

T = TypeVar("T")

Change = tuple[str, int]
"""A pool, and the bytes more or less in it."""


def recorded_step(
    rank: int, steps: Steps, purposes: Purposes
) -> tuple[RecordedRank, tuple[RecordedGroup, ...]]:
    """Return the last step of a rank, and its job's groups."""
    purposes.look()
    _, begin, end = steps.bounds()
    step = _fused(begin, end)
    actions = _Numbers(list(TAPE.actions))
    places = _Numbers(list(map(_short, TAPE.places)))
    memory = _memory_by_entry(step, begin, end, purposes)
    entries = tuple(
        _entry(one, actions, places, memory.get(number, [])) for number, one in enumerate(step.posted)
    )
    recorded = RecordedRank(
        rank=rank,
        alike=(rank,),
        actions=_with_batches_from_zero(actions.used),
        entries=entries,
        held=_held(begin.memory, purposes),
        unsteady=steps.difference(),
        places=tuple(places.used),
    )
    return recorded, groups.recorded()


def _fused(begin: Mark, end: Mark) -> FusedStep:
    changes = TAPE.memory[begin.memory : end.memory]
    allocated = Counter(number for _, number, nbytes in changes if nbytes > 0)
    # FSDP itself empties and fills the storages of parameters
    born = {number for number, times in allocated.items() if times == 1}
    freed = {number: before for before, number, nbytes in changes if nbytes < 0}
    return fused(begin.entries, end.entries, born, freed)


class _Numbers(Generic[T]):
    """Numbers of those items of a list that are used, in the order of their first use."""

    def __init__(self, items: list[T]) -> None:
        self._items = items
        self._numbers: dict[int, int] = {}
        self.used: list[T] = []

    def of(self, place: int) -> int:
        if place not in self._numbers:
            self._numbers[place] = len(self.used)
            self.used.append(self._items[place])
        return self._numbers[place]


def _entry(
    posted: Posted,
    actions: "_Numbers[Action]",
    places: "_Numbers[str]",
    memory: list[Change],
) -> Entry:
    return Entry(
        action=actions.of(posted.action),
        lane=posted.lane,
        after=posted.after,
        memory=tuple(memory),
        place=None if posted.place is None else places.of(posted.place),
    )


def _memory_by_entry(step: FusedStep, begin: Mark, end: Mark, purposes: Purposes) -> dict[int, list[Change]]:
    """Return the changes by purpose, in order, of each entry; what comes after the last is its own."""
    changes: dict[int, list[Change]] = {}
    for entry, number, nbytes in sorted(_changes(step, begin, end), key=itemgetter(0)):
        own, purpose = changes.setdefault(entry, []), purposes.of(number)
        if own and own[-1][0] == purpose and (own[-1][1] > 0) == (nbytes > 0):
            own[-1] = (purpose, own[-1][1] + nbytes)
        elif nbytes:
            own.append((purpose, nbytes))
    return changes


def _changes(step: FusedStep, begin: Mark, end: Mark) -> Iterator[tuple[int, int, int]]:
    """Yield the entry, storage and bytes of each change, for each entry first what a fused step frees."""
    latest = len(step.posted) - 1
    changes = TAPE.memory[begin.memory : end.memory]
    for _, number, nbytes in changes:
        if nbytes < 0 and number in step.freed and number not in step.gone:
            yield min(step.freed[number], latest), number, nbytes
    for before, number, nbytes in changes:
        if number not in step.gone and (nbytes > 0 or number not in step.freed):
            place = max(0, min(before, end.entries - 1) - begin.entries)
            yield min(step.places[place], latest), number, nbytes


def _held(begin: int, purposes: Purposes) -> dict[str, int]:
    held: Counter[str] = Counter()
    for _, number, nbytes in TAPE.memory[:begin]:
        held[purposes.of(number)] += nbytes
    return {purpose: nbytes for purpose, nbytes in held.items() if nbytes}


def _with_batches_from_zero(actions: list[Action]) -> tuple[Action, ...]:
    batches = {one.batch for one in actions if isinstance(one, PeerMessage) and one.batch is not None}
    least = min(batches, default=0)
    return tuple(
        replace(one, batch=one.batch - least)
        if isinstance(one, PeerMessage) and one.batch is not None
        else one
        for one in actions
    )


def _short(place: str) -> str:
    """Return a place without folders of the user's machine, but for one."""
    file, _, line = place.rpartition(":")
    folder, name = os.path.split(file)
    return f"{os.path.join(os.path.basename(folder), name)}:{line}"
