"""The compiled loop's state: one record, and the arrays of records that it points to.

`ringside.sim.engine.compiled.make` makes it of a plan and a topology, and keeps the arrays. Place 0 of the
messages, and of the gates' tables, is unused.
"""

from typing import Any

import numba
import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ringside.sim.jit import compiled


@compiled
def move_origin(world: Any, time: float) -> None:
    """Count from ``time``, at which nothing is under way and all earlier events are over."""
    world.origin += time
    world.until -= time
    world.finished = 0.0
    for number in range(world.num_links):
        link = link_at(world, number)
        link.free = 0.0
        link.parts = 0
    for number in range(world.num_connections):
        connections(world)[number].clear = 0.0
    adders = array_at(world.adders, world.num_ends, FLOAT)
    for end in range(world.num_ends):
        adders[end] = 0.0
    for slot in range(world.fresh):
        waiting(world)[slot].ready = 0.0
    for gate in range(world.fresh_gate):
        gates(world)[gate].ready = 0.0


LINE = 64
"""Bytes of a cache line."""


def _as_pointer(context: Any, address: Any) -> Any:
    """Return an address as a pointer."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(address), generate


_pointer: Any = intrinsic(_as_pointer)
_carray: Any = vars(numba)["carray"]
_ir: Any = vars(cgutils)["ir"]


def lines(count: int, dtype: Any) -> Any:
    """Return records aligned to cache lines, if their length is a multiple of one."""
    room = np.empty(count * dtype.itemsize + LINE, dtype=np.uint8)
    begin = -room.ctypes.data % LINE
    return room[begin : begin + count * dtype.itemsize].view(dtype)


@compiled
def array_at(address: int, shape: Any, dtype: Any) -> Any:
    """Return the array of records or numbers at an address."""
    return _carray(_pointer(address), shape, dtype)


def _fetch(context: Any, address: Any) -> Any:
    """Prefetch the cache line at an address, by LLVM's prefetch."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer, number = cgutils.voidptr_t, _ir.IntType(32)
        taken = _ir.FunctionType(_ir.VoidType(), [pointer, number, number, number])
        prefetch = builder.module.declare_intrinsic("llvm.prefetch", [pointer], taken)
        # read access, maximum locality, data cache
        how = number(0), number(3), number(1)
        builder.call(prefetch, [builder.inttoptr(arguments[0], pointer), *how])
        return context.get_dummy_value()

    return types.void(address), generate


fetch: Any = intrinsic(_fetch)


def _record(ints: str, floats: str = "", *, short: str = "", tiny: str = "") -> Any:
    """Return a record type, widest fields first; ``short`` are 32 bits, ``tiny`` 16, to fit the caches.

    A record longer than a cache line is padded to whole lines.
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
"""A link is free from a moment on, or partly: ``parts`` rows give the remaining rate over time.

``last`` is the last message in the queue of those that have left it and have an event ahead, and ``last_at``
is the time of that event."""

MESSAGE = _record(
    "nbytes key", "at tail rate", short="connection next left whole", tiny="hop changes state reduce"
)
"""A transfer, or, where ``whole`` is its transfer, a piece; a cache line.

``left`` is 1 above the number of the link in whose queue it is. The rest is as in
`ringside.sim.network.fifo.Message` and `ringside.sim.engine.events`; ``next`` is the next one in a queue."""

WAITING = _record("offset", "ready", short="missing brings")
"""Further fields of a transfer with gates or pieces; a piece's ``offset`` says whether it is the last."""

CONNECTION = _record(
    "order",
    "clear",
    short="route hops credits sent to_arrive held target stream source pieces head tail "
    "count sums summed plain first need needs wake wakes later laters taken",
)
"""Numbers of entries in tables: its route, its transfers' needs, the connections it wakes, and those that
wait for its last transfer."""

NEED = _record("whom shift")
STREAM = _record("head tail shared", "room")
"""Data that ranks have to send each other in pieces; ``shared`` where several connections do, in a window."""

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
"""A message's ``state``: under way, all delivered, added to the receiver's data, or sent but not yet queued
with others on the same route."""

GOING, OVER, HUNGRY, FULL, WIDE = range(5)
"""The state of a run: it continues; nothing is left to happen; it needs further steps; it lacks memory for
messages; or for rates over time."""

ARRIVAL = 1 << 62
"""Added to the keys of arriving heads, which come after all deliveries of an instant."""

DEPARTURE = 1 << 61
"""Added to the keys of messages that queue with others on the same route: between the two."""


@compiled
def messages(world: Any) -> Any:
    """Return the messages under way or waiting."""
    return array_at(world.messages, world.room, MESSAGE)


@compiled
def waiting(world: Any) -> Any:
    """Return further fields of some messages, in the same places."""
    return array_at(world.waiting, world.room, WAITING)


@compiled
def link_at(world: Any, number: int) -> Any:
    """Return one link."""
    return array_at(world.links, number + 1, LINK)[number]


@compiled
def connections(world: Any) -> Any:
    """Return the connections, in order of first use."""
    return array_at(world.connections, world.num_connections, CONNECTION)


@compiled
def gates(world: Any) -> Any:
    """Return the gates."""
    return array_at(world.gates, world.num_gates, GATE)


@compiled
def ranges(world: Any) -> Any:
    """Return the ranges of chunks that gates hold back."""
    return array_at(world.ranges, 2 * world.num_gates, RANGE)


@compiled
def edges(world: Any) -> Any:
    """Return the elements of chains of values."""
    return array_at(world.edges, 6 * world.num_gates, EDGE)


@compiled
def entries(world: Any) -> Any:
    """Return, by end, the range where its chain is entered."""
    return array_at(world.entries, world.num_ends, INT)


@compiled
def number_at(address: int, place: int) -> Any:
    """Return one number of a table."""
    return array_at(address, place + 1, INT)[place]


@compiled
def needed(number: int, count: int, modulus: int) -> Any:
    """Return the transfer number that a need refers to: past the last it is one of an earlier turn."""
    if number >= count:
        number -= -(-(number - count + 1) // modulus) * modulus
    return number


@compiled
def room_for_message(world: Any) -> Any:
    """Return a place for one more message, or 0 without memory."""
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
    """Free a message's place."""
    messages(world)[slot].next = world.spare
    world.spare = slot
