"""All that the compiled loop knows: one record, and the arrays of records that it points to.

`ringside.sim.engine.compiled.make` makes it of a plan and a topology, and keeps the arrays. Place 0 of the
messages, and of all that is behind gates, is nobody's.
"""

from typing import Any

import numpy as np

from ringside.sim.engine.compiled.memory import LINE, array_at
from ringside.sim.jit import compiled


def _record(ints: str, floats: str = "", *, short: str = "", tiny: str = "") -> Any:
    """A record, its widest fields first; ``short`` are 32 bits, ``tiny`` 16, so that more fits the caches.

    One that is longer than a cache line is some lines long.
    """
    fields: list[tuple[str, Any]] = [(name, np.float64) for name in floats.split()] + [
        (name, np.int64) for name in ints.split()
    ]
    fields += [(name, np.int32) for name in short.split()]
    fields += [(name, np.int16) for name in tiny.split()]
    length = np.dtype(fields, align=True).itemsize
    if length > LINE:
        fields += [(f"_{number}", np.int32) for number in range(-length % LINE // 4)]
    return np.dtype(fields, align=True)


INT = np.dtype(np.int64)
FLOAT = np.dtype(np.float64)

LINK = _record("", "bandwidth latency free last_at", short="parts last")
"""A link is free from a moment on, or partly: so many ``parts`` say what is left of it from when on.

``last`` is the last of the messages that have left it and to which nothing has happened since, a queue, and
``last_at`` is when something happens to it.
"""

MESSAGE = _record(
    "nbytes key", "at tail rate", short="connection next left whole", tiny="hop changes state reduce"
)
"""A transfer, or, where ``whole`` is its transfer, a piece; a cache line.

``left`` is 1 above the number of the link in whose queue it is. The rest is as in
`ringside.sim.network.fifo.Message` and `ringside.sim.engine.events`; ``next`` is the next one in a queue.
"""

WAITING = _record("offset", "ready", short="missing brings")
"""What else there is to a transfer with gates or pieces; a piece's ``offset`` says whether it is the last."""

CONNECTION = _record(
    "order",
    "clear",
    short="route hops credits sent to_arrive held target stream source pieces head tail "
    "count sums summed plain first need needs wake wakes later laters taken",
)
"""Its route, what its transfers need, whom they wake and who waits for the last one are so many in tables."""

NEED = _record("whom shift")
STREAM = _record("head tail shared", "room")
"""What ranks have to send each other in pieces; ``shared`` where several connections do, in a window."""

LATER = _record("key", "time", short="slot connection")
NOW = _record("key", short="slot connection")
MOVE = _record("connection chunk span reduce slot")
GATE = _record("lacks closed waiting behind end begin stop", "ready")
RANGE = _record("begin stop gate before after")
EDGE = _record("next value")

_ARRAYS = (
    "links partly messages waiting rates scratch connections routes need_table wake_table later_table "
    "streams later now bounds adders gates ranges edges entries moves starts dry"
)
"""Each is known by its address."""

_COUNTS = (
    "num_links num_connections num_bounds num_ends num_steps num_dry num_later num_now num_gates ranks room "
    "width status begun spare fresh done to_do streamed segment turn modulus step place_shift shown "
    "spare_gate fresh_gate spare_range fresh_range spare_edge fresh_edge"
)

WORLD = _record(f"{_ARRAYS} {_COUNTS}", "gamma finished until within origin")

TRAVELS, ARRIVED, ADDED, DEPARTS = range(4)
"""A message's ``state``: on its way, all of it delivered, added to what its receiver has, or sent but yet
to join what others send on the same way."""

GOING, OVER, HUNGRY, FULL, WIDE = range(5)
"""What becomes of a run: it goes on; nothing is left to happen; it wants further steps; it lacks room for
messages; or for rates over time."""

ARRIVAL = 1 << 62
"""Added to the keys of heads that arrive, which come after all deliveries of an instant."""

DEPARTURE = 1 << 61
"""Added to the keys of messages that join what others send on the same way: between the two."""


@compiled
def messages(world: Any) -> Any:
    """The messages under way or waiting."""
    return array_at(world.messages, world.room, MESSAGE)


@compiled
def waiting(world: Any) -> Any:
    """What else there is to some of them, in the same places."""
    return array_at(world.waiting, world.room, WAITING)


@compiled
def link_at(world: Any, number: int) -> Any:
    """One link."""
    return array_at(world.links, number + 1, LINK)[number]


@compiled
def connections(world: Any) -> Any:
    """The connections, in order of first use."""
    return array_at(world.connections, world.num_connections, CONNECTION)


@compiled
def gates(world: Any) -> Any:
    """The gates."""
    return array_at(world.gates, world.num_gates, GATE)


@compiled
def ranges(world: Any) -> Any:
    """The ranges of chunks that gates hold back."""
    return array_at(world.ranges, 2 * world.num_gates, RANGE)


@compiled
def edges(world: Any) -> Any:
    """What chains of values are made of."""
    return array_at(world.edges, 6 * world.num_gates, EDGE)


@compiled
def entries(world: Any) -> Any:
    """By end, the range where its chain is entered."""
    return array_at(world.entries, world.num_ends, INT)


@compiled
def number_at(address: int, place: int) -> Any:
    """One number of a table."""
    return array_at(address, place + 1, INT)[place]


@compiled
def needed(number: int, count: int, modulus: int) -> Any:
    """Which of a connection's transfers is meant: not one past the last but one of an earlier turn."""
    if number >= count:
        number -= -(-(number - count + 1) // modulus) * modulus
    return number


@compiled
def room_for_message(world: Any) -> Any:
    """A place for one more message; 0 where there is none."""
    slot = world.spare
    if slot:
        world.spare = messages(world)[slot].next
        return slot
    slot = world.fresh
    if slot == world.room:
        world.status = FULL
        return 0
    world.fresh = slot + 1
    return slot


@compiled
def leave(world: Any, slot: int) -> None:
    """Give a message's place back."""
    messages(world)[slot].next = world.spare
    world.spare = slot
