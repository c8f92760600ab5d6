"""Compiled: future events, by time, and within an instant by key; two heaps.

An instant is everything that happens until just after its first moment. Its events happen in the order of
their keys, those caused meanwhile too. Messages that leave a link have their events in the order in which
they left, so only the first message of each link's queue is in the heap.
"""

from typing import Any

from ringside.sim.clock import AT_MOST_S
from ringside.sim.engine.compiled.world import (
    ARRIVAL,
    CONNECTION,
    LATER,
    LINE,
    MESSAGE,
    NOW,
    TRAVELS,
    array_at,
    fetch,
    link_at,
    messages,
)
from ringside.sim.jit import compiled

CONNECTION_SIZE, MESSAGE_SIZE = CONNECTION.itemsize, MESSAGE.itemsize


@compiled
def post(world: Any, slot: int, key: int, time: float) -> None:
    """Schedule a message's event at ``time``, in the order of ``key`` in that instant."""
    if time <= world.until:
        _push_now(world, slot, messages(world)[slot].connection, key)
    else:
        _push_later(world, slot, key, time)


@compiled
def post_behind(world: Any, number: int, slot: int, key: int, time: float) -> None:
    """Schedule the event of a message that leaves a link, after those of the messages ahead of it."""
    if time <= world.until:
        _push_now(world, slot, messages(world)[slot].connection, key)
        return
    link = link_at(world, number)
    if not link.last:
        _push_later(world, slot, key, time)
    elif link.last_at <= time:
        messages(world)[link.last].next = slot
    else:
        _push_later(world, slot, key, time)
        return
    link.last, link.last_at = slot, time
    messages(world)[slot].left = number + 1


@compiled
def take(world: Any) -> Any:
    """Return the message with the next event, or -1 if there is none."""
    if world.num_now:
        return _pop_now(world)
    if not world.num_later:
        return -1
    first = array_at(world.later, 1, LATER)[0]
    time = first.time
    world.until = until = time + min(time * world.within, AT_MOST_S)
    slot, connection, key = first.slot, first.connection, first.key
    _follow(world, slot)
    _expect(world, first)
    if not world.num_later or first.time > until:
        return slot
    _push_now(world, slot, connection, key)
    while world.num_later and first.time <= until:
        slot, connection, key = first.slot, first.connection, first.key
        _follow(world, slot)
        _expect(world, first)
        _push_now(world, slot, connection, key)
    return _pop_now(world)


@compiled
def _expect(world: Any, place: Any) -> None:
    """Prefetch a message whose event is soon, and its connection."""
    fetch(world.messages + place.slot * MESSAGE_SIZE)
    way = world.connections + place.connection * CONNECTION_SIZE
    fetch(way)
    fetch(way + LINE)


@compiled
def _follow(world: Any, slot: int) -> None:
    """Remove the first message from the heap; the next of its queue replaces it."""
    message = messages(world)[slot]
    if not message.left:
        _pop_later(world)
        return
    link = link_at(world, message.left - 1)
    message.left = 0
    if link.last == slot:
        link.last = 0
        _pop_later(world)
        return
    slot = message.next
    message = messages(world)[slot]
    heap = array_at(world.later, 1, LATER)
    heap[0].time, heap[0].slot, heap[0].connection = message.at, slot, message.connection
    heap[0].key = message.key + (ARRIVAL if message.state == TRAVELS else 0)
    _sift(world, world.num_later)


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
    place.time, place.key, place.slot, place.connection = time, key, slot, messages(world)[slot].connection


@compiled
def _pop_later(world: Any) -> None:
    heap, last = array_at(world.later, world.room, LATER), world.num_later - 1
    world.num_later = last
    heap[0] = heap[last]
    _sift(world, last)


@compiled
def _sift(world: Any, last: int) -> None:
    """Sift the first of ``last`` entries to its place."""
    heap, here = array_at(world.later, world.room, LATER), 0
    time, key, slot, connection = heap[0].time, heap[0].key, heap[0].slot, heap[0].connection
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
    place = heap[here]
    place.time, place.key, place.slot, place.connection = time, key, slot, connection


@compiled
def _push_now(world: Any, slot: int, connection: int, key: int) -> None:
    heap, here = array_at(world.now, world.room, NOW), world.num_now
    world.num_now = here + 1
    while here:
        above = (here - 1) >> 1
        if heap[above].key <= key:
            break
        heap[here] = heap[above]
        here = above
    place = heap[here]
    place.key, place.slot, place.connection = key, slot, connection


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
    if last:
        _expect(world, heap[0])
    return first
