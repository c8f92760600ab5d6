"""Compiled: the loop itself, one event after another, until none remains or more steps are needed.

It does what `ringside.sim.engine.events` and `ringside.sim.network.fifo` do, in their order, under their
names. A connection's next transfer either follows a rule (`ringside.sim.streams.TransferStreams`), which
keeps only a count, or stands in a queue, filled step by step, behind gates.
"""

from typing import Any

from ringside.sim import clock
from ringside.sim.clock import LONG_S
from ringside.sim.engine.compiled import agenda
from ringside.sim.engine.compiled import gates as shutting
from ringside.sim.engine.compiled import world as states
from ringside.sim.engine.compiled.agenda import post, post_behind, take
from ringside.sim.engine.compiled.gates import close_over, forget, lift, shut, unchain
from ringside.sim.engine.compiled.world import (
    ADDED,
    ARRIVAL,
    ARRIVED,
    DEPARTS,
    DEPARTURE,
    FLOAT,
    GOING,
    HUNGRY,
    INT,
    MOVE,
    NEED,
    OVER,
    STREAM,
    TRAVELS,
    WIDE,
    array_at,
    connections,
    edges,
    gates,
    leave,
    link_at,
    messages,
    move_origin,
    needed,
    number_at,
    room_for_message,
    waiting,
)
from ringside.sim.jit import compiled, entry, fingerprint
from ringside.sim.network import compiled as fifo
from ringside.sim.network.compiled import INF, transmit

EVERY = 200_000
"""Transfers between two returns for progress reports."""


@compiled
def _play(world: Any) -> Any:
    """Play events, from time 0 on; return why it stopped."""
    if world.streamed and not world.begun:
        for connection in range(world.num_connections):
            _advance(world, connection, 0.0)
    world.begun = 1
    while True:
        if world.num_dry and not _refill(world):
            return HUNGRY
        if world.status != GOING:
            return world.status
        slot = take(world)
        if slot < 0:
            return OVER
        message = messages(world)[slot]
        if message.state == TRAVELS:
            _take_link(world, slot, message)
        elif message.state == ADDED:
            _complete(world, slot, message.at)
        elif message.whole:
            _piece_arrived(world, slot, message.at)
        elif message.state == DEPARTS:
            _queue(world, slot, message.at)
        else:
            _received(world, slot, message.at)
        if world.done >= world.shown + EVERY:
            world.shown = world.done
            return GOING


@compiled
def _take_link(world: Any, slot: int, message: Any) -> None:
    """Give a link to a message whose head has arrived, and send the head on."""
    way, width = connections(world)[message.connection], world.width
    number = number_at(world.routes, way.route + message.hop)
    link = link_at(world, number)
    partly = array_at(world.partly + number * width * 16, (width, 2), FLOAT)
    rates = array_at(world.rates + slot * width * 16, (width, 2), FLOAT)
    scratch = array_at(world.scratch, (2, 4 * width, 2), FLOAT)
    begin = transmit(link, partly, message, rates, scratch)
    if begin < 0.0:
        world.status = WIDE
        return
    message.tail += link.latency
    if world.segment:
        message.rate = INF
    else:
        for change in range(message.changes):
            rates[change, 0] += link.latency
    message.hop += 1
    if message.hop == way.hops:
        message.state += 1
        message.at = message.tail
        post_behind(world, number, slot, message.key, message.at)
    else:
        message.at = begin + link.latency
        post_behind(world, number, slot, message.key + ARRIVAL, message.at)


@compiled
def _set_out(world: Any, slot: int, time: float) -> None:
    """Schedule the arrival of a message's head at the first of its links."""
    message = messages(world)[slot]
    message.rate, message.tail = INF, 0.0
    message.changes = message.hop = message.left = 0
    message.state = TRAVELS
    message.at = time
    post(world, slot, message.key + ARRIVAL, time)


@compiled
def _send(world: Any, slot: int, time: float) -> None:
    message = messages(world)[slot]
    message.whole = 0
    number = connections(world)[message.connection].stream
    if number < 0:
        _set_out(world, slot, time)
    elif array_at(world.streams, number + 1, STREAM)[number].shared:
        message.state, message.left = DEPARTS, 0
        message.at = time
        post(world, slot, message.key + DEPARTURE, time)
    else:
        _queue(world, slot, time)


@compiled
def _queue(world: Any, slot: int, time: float) -> None:
    """Put a message behind its ranks' earlier data."""
    message = messages(world)[slot]
    number = connections(world)[message.connection].stream
    waiting(world)[slot].offset = message.next = 0
    message.state = TRAVELS
    stream = array_at(world.streams, number + 1, STREAM)[number]
    if stream.tail:
        messages(world)[stream.tail].next = slot
    else:
        stream.head = slot
    stream.tail = slot
    _fill(world, stream, time)


@compiled
def _fill(world: Any, stream: Any, time: float) -> None:
    """Send the pieces that fit into a route's window."""
    while stream.head:
        whole, cut = messages(world)[stream.head], waiting(world)[stream.head]
        size = world.segment
        if not size:
            size = max(-(-whole.nbytes // connections(world)[whole.connection].pieces), 1)
        nbytes = min(size, whole.nbytes - cut.offset)
        if nbytes > stream.room:
            return
        slot = room_for_message(world)
        if not slot:
            return
        stream.room -= nbytes
        piece = messages(world)[slot]
        piece.connection, piece.nbytes, piece.whole = whole.connection, nbytes, stream.head
        piece.key = whole.key + cut.offset // size
        cut.offset += nbytes
        waiting(world)[slot].offset = 0
        if cut.offset == whole.nbytes:
            waiting(world)[slot].offset = 1
            stream.head = whole.next
            if not stream.head:
                stream.tail = 0
        _set_out(world, slot, time)


@compiled
def _piece_arrived(world: Any, slot: int, time: float) -> None:
    piece = messages(world)[slot]
    number = connections(world)[piece.connection].stream
    stream = array_at(world.streams, number + 1, STREAM)[number]
    whole, last = piece.whole, waiting(world)[slot].offset
    stream.room += piece.nbytes
    leave(world, slot)
    _fill(world, stream, time)
    if last:
        messages(world)[whole].state = ARRIVED
        _received(world, whole, time)


@compiled
def _received(world: Any, slot: int, time: float) -> None:
    if time >= LONG_S and not world.num_now and not world.num_later:
        move_origin(world, time)
        time = 0.0
    message = messages(world)[slot]
    connection = message.connection
    way = connections(world)[connection]
    way.credits += 1
    way.to_arrive -= 1
    if not way.to_arrive:
        for place in range(way.later, way.later + way.laters):
            later = number_at(world.later_table, place)
            connections(world)[later].held -= 1
            _advance(world, later, time)
    if world.gamma and message.reduce:
        adder = array_at(world.adders, way.target + 1, FLOAT)
        gamma = world.gamma if way.target < world.ranks else 0.0
        adder[way.target] = end = max(time, adder[way.target]) + message.nbytes * gamma
        message.state, message.left = ADDED, 0
        message.at = end
        post(world, slot, message.key, end)
    else:
        _complete(world, slot, time)
    _advance(world, connection, time)


@compiled
def _complete(world: Any, slot: int, time: float) -> None:
    """Mark the chunks ready at the receiver and release the transfers that wait for them."""
    message = messages(world)[slot]
    world.finished = max(world.finished, time)
    world.done += 1
    connection = message.connection
    leave(world, slot)
    if world.streamed:
        way = connections(world)[connection]
        if message.reduce:
            way.summed += 1
        else:
            way.plain += 1
        for place in range(way.wake, way.wake + way.wakes):
            _advance(world, number_at(world.wake_table, place), time)
        return
    brings = waiting(world)[slot].brings
    while brings:
        gate = edges(world)[brings].value
        brings = unchain(world, brings)
        _relieve(world, gate, time)


@compiled
def _relieve(world: Any, number: int, time: float) -> None:
    """Count down a gate; at the last one, release the transfers that wait for it and the gates behind it."""
    gate = gates(world)[number]
    gate.lacks -= 1
    gate.ready = max(gate.ready, time)
    if gate.lacks:
        return
    time, waits, behind = gate.ready, gate.waiting, gate.behind
    lift(world, number)
    forget(world, number)
    while waits:
        slot = edges(world)[waits].value
        waits = unchain(world, waits)
        held = waiting(world)[slot]
        held.missing -= 1
        held.ready = max(held.ready, time)
        if not held.missing:
            _advance(world, messages(world)[slot].connection, time)
    while behind:
        later = edges(world)[behind].value
        behind = unchain(world, behind)
        _relieve(world, later, time)


@compiled
def _advance(world: Any, connection: int, time: float) -> None:
    """Put the connection's permitted transfers on the network, after an event at ``time``."""
    way = connections(world)[connection]
    way.clear = max(way.clear, time)
    if world.streamed:
        while way.sent < way.count and way.credits and not way.held and _fed(world, connection):
            _send_by_rule(world, connection)
        return
    while way.head and way.credits and not way.held:
        slot = way.head
        held = waiting(world)[slot]
        if held.missing:
            return
        way.head = messages(world)[slot].next
        way.credits -= 1
        _send(world, slot, max(way.clear, held.ready))
        if not way.head:
            way.tail = 0
            if way.taken < way.count:
                array_at(world.dry, world.num_dry + 1, INT)[world.num_dry] = connection
                world.num_dry += 1


@compiled
def _fed(world: Any, connection: int) -> bool:
    """Check whether the data of the connection's next transfer are complete."""
    way = connections(world)[connection]
    for place in range(way.need, way.need + way.needs):
        need = array_at(world.need_table, place + 1, NEED)[place]
        feeder = connections(world)[need.whom]
        complete = feeder.summed
        if complete == feeder.sums:
            complete += feeder.plain
        if needed(way.sent + need.shift, feeder.count, world.modulus) >= complete:
            return False
    return True


@compiled
def _send_by_rule(world: Any, connection: int) -> None:
    slot, way = room_for_message(world), connections(world)[connection]
    if not slot:
        way.credits = 0
        return
    message = messages(world)[slot]
    chunk = (way.first + world.turn * way.sent) % world.modulus
    bounds = array_at(world.bounds, world.num_bounds, INT)
    message.connection = connection
    message.nbytes = bounds[chunk + 1] - bounds[chunk]
    message.reduce = 1 if way.sent < way.sums else 0
    message.key = way.order + (way.sent << world.place_shift)
    way.sent += 1
    way.credits -= 1
    _send(world, slot, way.clear)


@compiled
def _refill(world: Any) -> bool:
    """Take steps until every connection with more to send knows its next transfer, if any."""
    starts = array_at(world.starts, world.num_steps + 1, INT)
    while world.num_dry and world.status == GOING:
        connection = array_at(world.dry, world.num_dry, INT)[world.num_dry - 1]
        way = connections(world)[connection]
        while not way.head:
            if world.status != GOING:
                return True
            if world.step == world.num_steps:
                return False
            _take_step(world, starts[world.step], starts[world.step + 1])
            world.step += 1
        world.num_dry -= 1
        _advance(world, connection, way.clear)
    return True


@compiled
def _take_step(world: Any, begin: int, end: int) -> None:
    """Queue a step's transfers, each waiting for the data that its source has yet to receive."""
    moves, bounds = array_at(world.moves, end, MOVE), array_at(world.bounds, world.num_bounds, INT)
    for row in range(begin, end):
        slot, move = room_for_message(world), moves[row]
        if not slot:
            return
        message, way = messages(world)[slot], connections(world)[move.connection]
        stop = move.chunk + move.span
        message.connection, message.reduce = move.connection, move.reduce
        message.nbytes = bounds[stop] - bounds[move.chunk]
        message.key = way.order + (way.taken << world.place_shift)
        message.next = 0
        held = waiting(world)[slot]
        held.missing = held.brings = 0
        held.ready = 0.0
        close_over(world, slot, way.source, move.chunk, stop)
        if way.tail:
            messages(world)[way.tail].next = slot
        else:
            way.head = slot
        way.tail = slot
        way.taken += 1
        move.slot = slot
    for row in range(begin, end):
        move = moves[row]
        target = connections(world)[move.connection].target
        shut(world, move.slot, target, move.chunk, move.chunk + move.span)


def _entry(sources: int) -> Any:
    # Numba's cache checks a function's file and closure, not the other functions compiled into it
    @entry
    def play(world: Any) -> Any:
        """Play events, from time 0 on; return why it stopped."""
        return _play(world) if sources else OVER

    return play


_MODULES = states, agenda, shutting, fifo, clock
play = _entry(fingerprint(*(str(module.__file__) for module in _MODULES)))
