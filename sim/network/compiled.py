"""Compiled: the ``fifo`` rule of `ringside.sim.network.fifo`, a link's effect on a message.

Links and messages are records with the same field names; rates over time are rows (moment, rate).
"""

from typing import Any

import numpy as np

from ringside.sim.jit import compiled

INF = np.inf

_ROUNDING = 1e-12


@compiled
def transmit(link: Any, partly: Any, message: Any, rates: Any, scratch: Any) -> Any:
    """Carry a message whose head arrives; return when its first byte leaves, or -1 without memory for rates.

    ``partly`` and ``rates`` have the link's ``parts`` and the message's ``changes`` rows.
    """
    at = message.at
    if link.bandwidth == INF:
        return at
    if link.parts and partly[link.parts - 1, 0] <= at:
        link.free = partly[link.parts - 1, 0]
        link.parts = 0
    if link.parts or message.changes:
        return _share(link, partly, message, rates, scratch)
    if message.rate >= link.bandwidth or not message.nbytes:
        start = max(at, link.free)
        link.free = end = start + message.nbytes / link.bandwidth
        message.tail = max(end, message.tail)
        message.rate = link.bandwidth
        return start
    if link.free <= at:
        partly[0, 0], partly[0, 1] = at, link.bandwidth - message.rate
        partly[1, 0], partly[1, 1] = message.tail, link.bandwidth
        link.parts = 2
        return at
    return _share(link, partly, message, rates, scratch)


@compiled
def _share(link: Any, partly: Any, message: Any, rates: Any, scratch: Any) -> Any:
    parts, changes, time = link.parts, message.changes, message.at
    if not parts:
        partly[0, 0], partly[0, 1] = link.free, link.bandwidth
        parts = 1
    if not message.nbytes:
        start = max(time, partly[0, 0])
        message.tail = max(start, message.tail)
        return start
    waiting = 0.0
    last = rates[changes - 1, 0] if changes else message.tail
    if message.rate == INF or last <= time:
        rates[0, 0], rates[0, 1] = time, 0.0
        changes, waiting = 1, float(message.nbytes)
    elif not changes:
        rates[0, 0], rates[0, 1] = time, message.rate
        rates[1, 0], rates[1, 1] = message.tail, 0.0
        changes = 2
    leaving, rest = scratch[0], scratch[1]
    left_by, rests = _pass(leaving, rest, rates, changes, waiting, partly, parts, time)
    if max(left_by, rests) > len(partly):
        return -1.0
    link.parts = 0
    if rests == 1:
        link.free = rest[0, 0]
    else:
        link.free = 0.0
        partly[:rests] = rest[:rests]
        link.parts = rests
    message.changes = 0
    if not left_by:  # earlier than moments can resolve
        message.rate = INF
        message.tail = max(rest[0, 0], message.tail)
        return rest[0, 0]
    message.rate = leaving[0, 1]
    if left_by > 2:
        rates[:left_by] = leaving[:left_by]
        message.changes = left_by
    message.tail = max(leaving[left_by - 1, 0], message.tail)
    return leaving[0, 0]


@compiled
def _pass(
    leaving: Any, rest: Any, rates: Any, changes: int, waiting: float, left: Any, parts: int, time: float
) -> tuple[int, int]:
    """Fill ``leaving`` and ``rest`` as `ringside.sim.network.fifo._pass` does; return their rows."""
    left_by = rests = came = 0
    freed = -1
    while freed + 1 < parts and left[freed + 1, 0] <= time:
        freed += 1
    while True:
        coming = rates[came, 1]
        room = left[freed, 1] if freed >= 0 else 0.0
        if not waiting and came == changes - 1:
            break
        until = np.inf
        if came + 1 < changes:
            until = rates[came + 1, 0]
        if freed + 1 < parts:
            until = min(until, left[freed + 1, 0])
        emptied = np.inf
        if waiting:
            passing = room
            if room > coming:
                emptied = time + waiting / (room - coming)
        else:
            passing = coming if coming <= room * (1 + _ROUNDING) else room
        spare = room - passing
        left_by = _then(leaving, left_by, time, passing)
        rests = _then(rest, rests, time, spare if spare > room * _ROUNDING else 0.0)
        if emptied <= until:
            until, waiting = emptied, 0.0
        else:
            waiting = max(waiting + (coming - passing) * (until - time), 0.0)
        time = until
        while came + 1 < changes and rates[came + 1, 0] <= time:
            came += 1
        while freed + 1 < parts and left[freed + 1, 0] <= time:
            freed += 1
    left_by = _then(leaving, left_by, time, 0.0)
    rests = _then(rest, rests, time, room)
    for later in range(freed + 1, parts):
        rests = _then(rest, rests, left[later, 0], left[later, 1])
    return left_by, rests


@compiled
def _then(rates: Any, rows: int, time: float, rate: float) -> int:
    """Set the rate from ``time`` on, as in `fifo._then`; return the number of rows."""
    if rows and rates[rows - 1, 0] == time:
        rows -= 1
    if rate != (rates[rows - 1, 1] if rows else 0.0):
        rates[rows, 0], rates[rows, 1] = time, rate
        rows += 1
    return rows
