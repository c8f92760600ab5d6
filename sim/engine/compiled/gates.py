"""Compiled: the gates of `ringside.sim.engine.gates`, the data that a rank has yet to receive.

The ranges that an end's gates hold back are a sorted chain, entered where it was last left. A gate's waiting
transfers, the gates behind it and a transfer's gates are chains of edges (next, value).
"""

from typing import Any

from ringside.sim.engine.compiled.world import FULL, edges, entries, gates, ranges, waiting
from ringside.sim.jit import compiled


@compiled
def chain(world: Any, head: int, value: int) -> Any:
    """Return the head of a chain with one more value in front."""
    chained, edge = edges(world), world.spare_edge
    if edge:
        world.spare_edge = chained[edge].next
    else:
        edge = world.fresh_edge
        if edge == len(chained):
            world.status = FULL
            return head
        world.fresh_edge = edge + 1
    chained[edge].next, chained[edge].value = head, value
    return edge


@compiled
def unchain(world: Any, edge: int) -> Any:
    """Free an edge; return the one after it."""
    chained = edges(world)
    onward = chained[edge].next
    chained[edge].next = world.spare_edge
    world.spare_edge = edge
    return onward


@compiled
def _first_over(world: Any, end: int, first: int) -> Any:
    """Return an end's first range that ends after chunk ``first``, or 0; keep the end's entry near it."""
    held, entry = ranges(world), entries(world)
    here = entry[end]
    if not here:
        return 0
    while held[here].stop > first and held[here].before:
        here = held[here].before
    while held[here].stop <= first and held[here].after:
        here = held[here].after
    entry[end] = here
    return here if held[here].stop > first else 0


@compiled
def close_over(world: Any, slot: int, end: int, first: int, stop: int) -> None:
    """Make a transfer wait for gates of chunks from ``first`` to before ``stop`` at its source."""
    held, here = ranges(world), _first_over(world, end, first)
    while here and held[here].begin < stop:
        gate = gates(world)[held[here].gate]
        gate.closed = 1
        gate.waiting = chain(world, gate.waiting, slot)
        waiting(world)[slot].missing += 1
        here = held[here].after


@compiled
def shut(world: Any, slot: int, end: int, first: int, stop: int) -> None:
    """Make the gates over exactly these chunks wait for a further transfer to them."""
    held, here = ranges(world), first
    place = _first_over(world, end, first)
    while place and held[place].begin < stop:
        begin, until, gate, onward = held[place].begin, held[place].stop, held[place].gate, held[place].after
        if here < begin:
            _bring(world, slot, _gate(world, end, here, begin))
        here = min(until, stop)
        if gates(world)[gate].closed or begin < first or until > stop:
            gate = _behind(world, place, max(begin, first), here)
        _bring(world, slot, gate)
        place = onward
    if here < stop:
        _bring(world, slot, _gate(world, end, here, stop))


@compiled
def _bring(world: Any, slot: int, gate: int) -> None:
    gates(world)[gate].lacks += 1
    held = waiting(world)[slot]
    held.brings = chain(world, held.brings, gate)


@compiled
def _behind(world: Any, place: int, first: int, stop: int) -> Any:
    """Return a gate for a part of another gate's range, behind that gate."""
    begin, until, number = ranges(world)[place].begin, ranges(world)[place].stop, ranges(world)[place].gate
    gate = gates(world)[number]
    gate.closed = 1
    _remove(world, gate.end, place)
    if begin < first:
        _put(world, gate.end, begin, first, number)
    if stop < until:
        _put(world, gate.end, stop, until, number)
    new = _gate(world, gate.end, first, stop)
    gates(world)[new].lacks = 1
    gate.behind = chain(world, gate.behind, new)
    return new


@compiled
def _gate(world: Any, end: int, begin: int, stop: int) -> Any:
    gate = world.spare_gate
    if gate:
        world.spare_gate = gates(world)[gate].waiting
    else:
        gate = world.fresh_gate
        if gate == world.num_gates:
            world.status = FULL
            return 0
        world.fresh_gate = gate + 1
    new = gates(world)[gate]
    new.lacks = new.closed = new.waiting = new.behind = 0
    new.end, new.begin, new.stop, new.ready = end, begin, stop, 0.0
    _put(world, end, begin, stop, gate)
    return gate


@compiled
def _put(world: Any, end: int, begin: int, stop: int, gate: int) -> None:
    """Add a range to an end's sorted chain."""
    held, place = ranges(world), world.spare_range
    if place:
        world.spare_range = held[place].after
    else:
        place = world.fresh_range
        if place == len(held):
            world.status = FULL
            return
        world.fresh_range = place + 1
    after = _first_over(world, end, begin)
    before = held[after].before if after else entries(world)[end]
    new = held[place]
    new.begin, new.stop, new.gate, new.before, new.after = begin, stop, gate, before, after
    if before:
        held[before].after = place
    if after:
        held[after].before = place
    entries(world)[end] = place


@compiled
def _remove(world: Any, end: int, place: int) -> None:
    held, entry = ranges(world), entries(world)
    before, after = held[place].before, held[place].after
    if before:
        held[before].after = after
    if after:
        held[after].before = before
    if entry[end] == place:
        entry[end] = after if after else before
    held[place].after = world.spare_range
    world.spare_range = place


@compiled
def lift(world: Any, gate: int) -> None:
    """Release everything that a gate holds back."""
    held, lifted = ranges(world), gates(world)[gate]
    place = _first_over(world, lifted.end, lifted.begin)
    while place and held[place].begin < lifted.stop:
        onward = held[place].after
        if held[place].gate == gate:
            _remove(world, lifted.end, place)
        place = onward


@compiled
def forget(world: Any, gate: int) -> None:
    """Free a gate's place."""
    gates(world)[gate].waiting = world.spare_gate
    world.spare_gate = gate
