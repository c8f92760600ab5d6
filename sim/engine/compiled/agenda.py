"""What is still to happen: by time, and within an instant by key; two heaps, to be compiled.

An instant is all that happens until a given share after its first moment. What falls into it is taken in the
order of its keys, what is caused meanwhile too.
"""

from typing import Any

from sim.engine.compiled.memory import array_at
from sim.engine.compiled.world import LATER, NOW
from sim.jit import compiled


@compiled
def post(world: Any, slot: int, key: int, time: float) -> None:
    """Have something happen to a message at ``time``, in the order of ``key`` in that instant."""
    if time <= world.until:
        _push_now(world, slot, key)
    else:
        _push_later(world, slot, key, time)


@compiled
def take(world: Any) -> Any:
    """The message to which something happens next, or -1 where nothing does."""
    if world.num_now:
        return _pop_now(world)
    if not world.num_later:
        return -1
    first = array_at(world.later, 1, LATER)[0]
    world.until = until = first.time * world.within
    slot, key = first.slot, first.key
    _pop_later(world)
    if not world.num_later or first.time > until:
        return slot
    _push_now(world, slot, key)
    while world.num_later and first.time <= until:
        _push_now(world, first.slot, first.key)
        _pop_later(world)
    return _pop_now(world)


@compiled
def _push_later(world: Any, slot: int, key: int, time: float) -> None:
    heap, here = array_at(world.later, world.room, LATER), world.num_later
    world.num_later = here + 1
    while here:
        above = (here - 1) >> 2
        if heap[above].time <= time:
            break
        heap[here] = heap[above]
        here = above
    place = heap[here]
    place.time, place.key, place.slot = time, key, slot


@compiled
def _pop_later(world: Any) -> None:
    heap, last = array_at(world.later, world.room, LATER), world.num_later - 1
    world.num_later = last
    time, here = heap[last].time, 0
    while True:
        below = 4 * here + 1
        if below >= last:
            break
        least, soonest = below, heap[below].time
        for other in range(below + 1, min(below + 4, last)):
            if heap[other].time < soonest:
                least, soonest = other, heap[other].time
        if time <= soonest:
            break
        heap[here] = heap[least]
        here = least
    heap[here] = heap[last]


@compiled
def _push_now(world: Any, slot: int, key: int) -> None:
    heap, here = array_at(world.now, world.room, NOW), world.num_now
    world.num_now = here + 1
    while here:
        above = (here - 1) >> 1
        if heap[above].key <= key:
            break
        heap[here] = heap[above]
        here = above
    place = heap[here]
    place.key, place.slot = key, slot


@compiled
def _pop_now(world: Any) -> Any:
    heap, last = array_at(world.now, world.room, NOW), world.num_now - 1
    world.num_now = last
    first, key, here = heap[0].slot, heap[last].key, 0
    while True:
        below = 2 * here + 1
        if below >= last:
            break
        if below + 1 < last and heap[below + 1].key < heap[below].key:
            below += 1
        if key <= heap[below].key:
            break
        heap[here] = heap[below]
        here = below
    heap[here] = heap[last]
    return first
