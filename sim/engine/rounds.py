"""Pipelines on a star by rounds: every rank's share of a time interval at once, instead of event by event.

On a star of equal links a transfer crosses two: its source's, to the switch, and its target's, from there. A
rank's sends at a moment depend on the data and credits that arrived there by then. Their arrival depends on
which heads came to the link earlier. So ranks learn of each other late: data that leave at t come to the
other's link a latency L after t, and arrive, or return a credit, a chunk's time T and L later still. If all
departures before t are known, so are all heads before t + L, and so all arrivals before t + 2L + T. That
interval is a round. In it the order of the ranks does not matter, and each rank does what it does in
`ringside.sim.engine.compiled.loop`, in the same order: the same operations on the same numbers.

T is the smallest chunk's time only from the moment when such a chunk may be sent; before, it is the usual
one.
"""

from typing import Any, NamedTuple

import numpy as np

from ringside.sim import effort, jit
from ringside.sim.engine.wiring import Floats, Ints, SimulatedCollective, Wiring, needs
from ringside.sim.schedule import Schedule
from ringside.sim.streams import TransferStreams

_MOST_CONNECTIONS = 64
"""Connections per rank, in or out: all are examined whenever one of them moves."""

_LEAST_SHARE = 1 / 64
"""Minimum ratio of a round with the smallest chunk to the usual one; below it rounds are mostly empty."""

_EXACT = 1e-14
"""Minimum ratio of a latency to the current time, so that adding the latency changes it."""

_MOMENTS = ("head", "coming", "freeing")
_COUNTS = ("sent", "settled", "arrived", "returned", "first", "count", "usual", "need", "needs")

WAY = np.dtype([(name, np.float64) for name in _MOMENTS] + [(name, np.int32) for name in _COUNTS], align=True)
"""A connection; a cache line.

When the next head comes to its target's link, the next transfer arrives, and the next credit is back; the
numbers of transfers sent, with a known arrival, arrived, and with their credit returned; the first chunk, the
number of transfers, the number before any shorter than usual, and where its needs are."""

STATE = np.dtype([(name, np.float64) for name in ("until", "least", "finished")] + [("done", np.int64)])
"""The moment up to which all departures are known; the least time of a chunk that may be sent; the moment of
the last arrival; and the number of arrivals."""


class Star(NamedTuple):
    """The state of the compiled rounds.

    The connections, ``ways``, are numbered by source. A row of ``times`` has a connection's moments, by
    number of transfer: when it left its source, and, once known, when it arrives. ``outs`` and ``ins`` are
    the connections by source and by target, where each rank's begin at ``out_begin`` and ``in_begin``.
    """

    ways: Any
    times: Floats
    ways_at: int
    times_at: int
    """The addresses of both."""
    mask: int
    """These bits of a transfer's number are its place in a row."""
    outs: Ints
    out_begin: Ints
    target: Ints
    ins: Ints
    in_begin: Ints
    source: Ints
    """By place in ``ins``."""
    whom: Ints
    shift: Ints
    """The needs, by connection: see `ringside.sim.streams.Needs`."""
    outward: Floats
    inward: Floats
    """When a rank's link to the switch is free, and the one from it."""
    heads: Floats
    arrivals: Floats
    """When the next head comes to a rank's link, and the next transfer or credit arrives."""
    seconds: Floats
    """By chunk, on any link."""
    least: float
    latency: float
    turn: int
    credits: int
    state: Any


def star_of(schedule: Schedule, wiring: Wiring, gamma: float) -> Star | None:
    """Return the star to play the schedule on by rounds, if it is one and the schedule a pipeline."""
    streams, size = schedule.steps, len(wiring.count)
    if not isinstance(streams, TransferStreams) or schedule.after or gamma or not _is_star(wiring):
        return None
    from ringside.sim.engine.compiled.world import lines

    order = np.argsort(wiring.place)
    src, dst, column = wiring.src[order], wiring.dst[order], wiring.column[order]
    ins, ends = np.argsort(dst, kind="stable"), np.arange(schedule.ends + 1)
    out_begin, in_begin = np.searchsorted(src, ends), np.searchsorted(dst[ins], ends)
    if max(np.diff(out_begin).max(), np.diff(in_begin).max()) > _MOST_CONNECTIONS:
        return None
    seconds, latency = np.diff(schedule.chunks.bounds) / wiring.bandwidth[0], float(wiring.latency[0])
    values, many = np.unique(seconds, return_counts=True)
    least, usual, most = float(values[0]), float(values[many.argmax()]), float(values[-1])
    if latency <= _EXACT * 2 * float(wiring.count.sum()) * (latency + most):
        return None
    if 2 * latency + least < _LEAST_SHARE * (2 * latency + usual):
        return None
    credits = int(min(schedule.credits, wiring.count.max()))
    ways = lines(size, WAY)
    ways[:] = np.zeros(1, dtype=WAY)
    ways["head"] = ways["coming"] = ways["freeing"] = np.inf
    ways["count"], ways["first"] = wiring.count[order], streams.first[column]
    ways["usual"] = _before_shorter(streams, seconds, usual)[column]
    rows = needs(wiring, streams)
    rows[:, :2] = wiring.place[rows[:, :2]]
    rows = rows[np.argsort(rows[:, 0])]
    begin = np.searchsorted(rows[:, 0], np.arange(size + 1))
    ways["need"], ways["needs"] = begin[:-1], np.diff(begin)
    # a slot is reused when its old transfer's credit may be back, but the transfer not yet received
    slots = 1 << (2 * credits - 1).bit_length()
    times = lines(size * slots, np.dtype(np.float64)).reshape(size, slots)
    state = np.zeros(1, dtype=STATE)
    state["least"] = least if (ways["usual"] < credits).any() else usual
    return Star(
        ways, times, ways.ctypes.data, times.ctypes.data, slots - 1,
        outs=np.arange(size), out_begin=out_begin, target=dst, ins=ins, in_begin=in_begin, source=src[ins],
        whom=np.ascontiguousarray(rows[:, 1]), shift=np.ascontiguousarray(rows[:, 2]),
        outward=np.zeros(schedule.ends), inward=np.zeros(schedule.ends),
        heads=np.full(schedule.ends, np.inf), arrivals=np.zeros(schedule.ends),
        seconds=seconds, least=least, latency=latency, turn=streams.turn, credits=credits, state=state,
    )  # fmt: skip


def _is_star(wiring: Wiring) -> bool:
    """Check that each connection uses its source's own link, then its target's, all equal."""
    cut = wiring.segment or (wiring.stream >= 0).any()
    if cut or wiring.within or (np.diff(wiring.start) != 2).any():
        return False
    up, down = wiring.links[::2], wiring.links[1::2]
    alike = np.ptp(wiring.bandwidth) == np.ptp(wiring.latency) == 0
    apart = len(np.intersect1d(up, down)) == 0
    return bool(alike and apart and _one_to_one(up, wiring.src) and _one_to_one(down, wiring.dst))


def _one_to_one(some: Ints, others: Ints) -> bool:
    there, back = np.empty(some.max() + 1, dtype=np.int64), np.empty(others.max() + 1, dtype=np.int64)
    there[some], back[others] = others, some
    return bool((there[some] == others).all() and (back[others] == some).all())


def _before_shorter(streams: TransferStreams, seconds: Floats, usual: float) -> Ints:
    """Return the number of each connection's chunks before its first one shorter than usual."""
    modulus = len(seconds)
    shorter = np.sort(streams.turn * np.flatnonzero(seconds < usual) % modulus)
    first = streams.turn * streams.first % modulus
    ahead = np.concatenate([shorter, shorter + modulus, [3 * modulus]])
    counts: Ints = ahead[np.searchsorted(ahead, first)] - first
    return counts


def simulate(star: Star, transfers: int) -> SimulatedCollective:
    """Return the time of ``transfers`` transfers, and the number played."""
    from ringside.sim.engine.compiled.rounds import play

    if not jit.is_kept(play):
        effort.say("compiling the rounds of pipelines, once on this machine; about ten seconds")
    while play(star):
        effort.show(int(star.state[0]["done"]), transfers)
    return SimulatedCollective(float(star.state[0]["finished"]), int(star.state[0]["done"]), engine="fast")
