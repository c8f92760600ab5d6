"""Compiled: the ranks of a star one by one, a round of time each; see `ringside.sim.engine.rounds`.

A rank's data are in the order of the ranks, so that they are prefetched before its turn.
"""

from typing import Any

import numpy as np

from ringside.sim.engine.compiled import world
from ringside.sim.engine.compiled.world import LINE, fetch, needed
from ringside.sim.jit import compiled, entry, fingerprint

EVERY = 200_000
"""Transfers between two returns for progress reports."""

_AHEAD = 8
"""Distance in ranks between the current one and the one being prefetched."""

_INF = np.inf


@compiled
def _play(star: Any) -> Any:
    """Play rounds; return whether there are more."""
    state, latency = star.state[0], star.latency
    shown = state.done
    while state.until < _INF and state.done < shown + EVERY:
        head = _settle(star, state.until + latency)
        until = (state.until + latency + state.least) + latency
        arrival, left = _act(star, until)
        head = min(head, left + latency)
        # nothing happens before known events, or events that follow from transfers under way
        state.until = max(until, min(arrival, (head + state.least) + latency))
    return state.until < _INF


@compiled
def _settle(star: Any, until: float) -> float:
    """Compute arrival times of all heads that reach a rank's link before ``until``.

    Return when the next head comes.
    """
    ways, times, latency, free = star.ways, star.times, star.latency, star.inward
    following, at = _INF, (star.ways_at, star.times_at, star.mask + 1)
    for rank in range(len(free)):
        if rank + _AHEAD < len(free) and star.heads[rank + _AHEAD] < until:
            begin, end = star.in_begin[rank + _AHEAD], star.in_begin[rank + _AHEAD + 1]
            _expect(at, star.ins, begin, end)
        head = star.heads[rank]
        while head < until:
            onward, first = _INF, -1
            for place in range(star.in_begin[rank], star.in_begin[rank + 1]):
                other = ways[star.ins[place]].head
                # of simultaneous heads the first connection's
                if other == head and first < 0:
                    first = place
                else:
                    onward = min(onward, other)
            number = star.ins[first]
            way = ways[number]
            slot, cost = way.settled & star.mask, _cost(star, way, way.settled)
            free[rank] = end = max(head, free[rank]) + cost
            # as it left its source's link, a latency ago
            times[number, slot] = arrival = max(end, times[number, slot] + cost + latency) + latency
            way.coming, way.freeing = min(way.coming, arrival), min(way.freeing, arrival)
            source = star.source[first]
            star.arrivals[rank] = min(star.arrivals[rank], arrival)
            star.arrivals[source] = min(star.arrivals[source], arrival)
            way.settled += 1
            way.head = times[number, way.settled & star.mask] + latency if way.settled < way.sent else _INF
            head = min(onward, way.head)
        star.heads[rank] = head
        following = min(following, head)
    return following


@compiled
def _act(star: Any, until: float) -> tuple[float, float]:
    """Let every rank receive arrivals before ``until``, take its credits back, and send what it may.

    Return when the next settled transfer arrives, and when the first of those sent now leaves.
    """
    ways, times, mask, state = star.ways, star.times, star.mask, star.state[0]
    following = left = _INF
    at = star.ways_at, star.times_at, star.mask + 1
    for rank in range(len(star.arrivals)):
        if rank + _AHEAD < len(star.arrivals) and star.arrivals[rank + _AHEAD] < until:
            begin, end = star.out_begin[rank + _AHEAD], star.out_begin[rank + _AHEAD + 1]
            _expect(at, star.outs, begin, end)
        now = star.arrivals[rank]
        while now < until:
            onward = _INF
            for place in range(star.in_begin[rank], star.in_begin[rank + 1]):
                number = star.ins[place]
                way = ways[number]
                while way.coming == now:
                    way.arrived += 1
                    state.done += 1
                    state.finished = max(state.finished, now)
                    way.coming = times[number, way.arrived & mask] if way.arrived < way.settled else _INF
                onward = min(onward, way.coming)
            for number in range(star.out_begin[rank], star.out_begin[rank + 1]):
                way = ways[number]
                while way.freeing == now:
                    way.returned += 1
                    way.freeing = times[number, way.returned & mask] if way.returned < way.settled else _INF
                onward = min(onward, way.freeing)
                while way.sent < way.count and way.sent - way.returned < star.credits and _fed(star, way):
                    leaves = max(now, star.outward[rank])
                    star.outward[rank] = leaves + _cost(star, way, way.sent)
                    times[number, way.sent & mask] = leaves
                    head, target = leaves + star.latency, star.target[number]
                    if way.sent == way.settled:
                        way.head = head
                    star.heads[target] = min(star.heads[target], head)
                    left = min(left, leaves)
                    way.sent += 1
                    if way.sent + star.credits > way.usual:
                        state.least = star.least
            now = onward
        star.arrivals[rank] = now
        following = min(following, now)
    return following, left


@compiled
def _fed(star: Any, way: Any) -> bool:
    """Check whether the data of the connection's next transfer have arrived."""
    for place in range(way.need, way.need + way.needs):
        feeder = star.ways[star.whom[place]]
        if needed(way.sent + star.shift[place], feeder.count, len(star.seconds)) >= feeder.arrived:
            return False
    return True


@compiled
def _cost(star: Any, way: Any, transfer: int) -> Any:
    """Return a link's seconds for one of a connection's transfers."""
    chunk = way.first + star.turn * transfer
    if chunk < 0 or chunk >= len(star.seconds):
        chunk %= len(star.seconds)
    return star.seconds[chunk]


@compiled
def _expect(places: tuple[int, int, int], connections: Any, begin: int, end: int) -> None:
    """Prefetch the state of a block of connections, and of their transfers, two cache lines each."""
    ways_at, times_at, slots = places
    for place in range(begin, end):
        number = connections[place]
        fetch(ways_at + number * LINE)
        row = times_at + number * slots * 8
        fetch(row)
        if slots * 8 > LINE:
            fetch(row + LINE)


def _entry(sources: int) -> Any:
    # as in `loop`: a change of compiled code must change the closure that Numba's cache checks
    @entry
    def play(star: Any) -> Any:
        """Play rounds; return whether there are more."""
        return _play(star) if sources else False

    return play


play = _entry(fingerprint(world.__file__))
