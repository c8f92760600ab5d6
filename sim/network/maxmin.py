"""Rates of flows that share links max-min fairly, solved again only where flows begin or end.

Rates are max-min fair if no flow's can be raised except by lowering that of one with no more (Bertsekas and
Gallager, "Data Networks", 1992, section 6.5.2): every flow crosses a link that is full and on which no other
has a larger rate. They are computed by filling: all rates rise together until a link is full; its flows keep
theirs then, and the others rise on.

A flow that begins or ends changes only the rates of flows reachable from it over shared links. So links and
flows are listed in each other, and only the part connected to a change is filled again. The two functions
here that do so accept lists, or arrays compiled by Numba where it is installed. The arithmetic is the same,
in the same order.
"""

from collections.abc import Callable, Iterable
from functools import cache
from math import inf
from typing import Any, NamedTuple

import numpy as np

from ringside.sim import effort
from ringside.sim.clock import AT_MOST_S, SIMULTANEOUS
from ringside.sim.jit import available, entry, is_kept

ALIKE = 1e-12
"""Rates that differ by no more than this share are one rate."""

MUCH = 300_000
"""Number of filled flows that justifies importing the compiler, which takes half a second."""


class _State(NamedTuple):
    """Links by number, streams by number, and one place for each link of each stream's route."""

    bandwidth: Any
    head: Any
    """The first place among those of the flows on a link; -1 where there is none."""
    room: Any
    """While filling: a link's remaining rate."""
    rising: Any
    """While filling: the number of a link's flows without a rate yet."""
    link_seen: Any
    way: Any
    """The first place of each stream; one more than streams."""
    left: Any
    """Bytes that a flow had to carry at ``since``."""
    since: Any
    rate: Any
    end: Any
    """When a flow ends if nothing changes."""
    is_on: Any
    place: Any
    """Where a stream stands among ``on``."""
    on: Any
    """The streams that have a flow."""
    stream_seen: Any
    link: Any
    owner: Any
    after: Any
    before: Any


_FLOATS = ("bandwidth", "room", "left", "since", "rate", "end")


def _change(
    state: _State, links: Any, ended: Any, num_ended: int, begun: Any, begin: Any, nbytes: Any,
    num_begun: int, num_on: int,
) -> tuple[int, int]:  # fmt: skip
    """End and begin flows; return the numbers of streams with a flow and of changed ``links``."""
    head, link_seen = state.head, state.link_seen
    way, left, since, rate, end = state[5:10]
    is_on, place, on = state[10:13]
    link, after, before = state.link, state.after, state.before
    count = 0
    for each in range(num_ended + num_begun):
        begins = each >= num_ended
        stream = begun[each - num_ended] if begins else ended[each]
        if begins:
            left[stream], since[stream] = nbytes[each - num_ended], begin[each - num_ended]
            if is_on[stream]:  # one message behind another: no rate changes
                end[stream] = since[stream] + left[stream] / rate[stream]
                continue
            is_on[stream], rate[stream], end[stream] = 1, 0.0, inf
            place[stream], on[num_on] = num_on, stream
            num_on += 1
        else:
            is_on[stream] = 0
            num_on -= 1
            last = on[num_on]
            on[place[stream]], place[last] = last, place[stream]
        for at in range(way[stream], way[stream + 1]):
            a = link[at]
            if not link_seen[a]:
                link_seen[a] = 1
                links[count] = a
                count += 1
            if begins:
                after[at], before[at] = head[a], -1
                if head[a] >= 0:
                    before[head[a]] = at
                head[a] = at
            else:
                if before[at] >= 0:
                    after[before[at]] = after[at]
                else:
                    head[a] = after[at]
                if after[at] >= 0:
                    before[after[at]] = before[at]
    return num_on, count


def _gather(state: _State, links: Any, count: int) -> tuple[int, int]:
    """Gather all links connected to the first ``count``; return the numbers of links and flows."""
    bandwidth, head, room, rising, link_seen, way = state[:6]
    stream_seen, link, owner, after = state[13:17]
    flows, here = 0, 0
    while here < count:
        a = links[here]
        here += 1
        number, at = 0, head[a]
        while at >= 0:
            number += 1
            flow = owner[at]
            if not stream_seen[flow]:
                stream_seen[flow] = 1
                flows += 1
                for each in range(way[flow], way[flow + 1]):
                    b = link[each]
                    if not link_seen[b]:
                        link_seen[b] = 1
                        links[count] = b
                        count += 1
            at = after[at]
        rising[a], room[a] = number, bandwidth[a]
    for each in range(count):
        link_seen[links[each]] = 0
    return count, flows


def _fill(state: _State, links: Any, count: int, to_rise: int, narrow: Any, time: float) -> None:
    """Give all flows on the first ``count`` links, ``to_rise`` in number, their rates."""
    head, room, rising = state[1:4]
    way, left, since, rate, end = state[5:10]
    stream_seen, link, owner, after = state[13:17]
    while to_rise:
        least, kept = inf, 0
        for each in range(count):
            a = links[each]
            if rising[a]:
                links[kept] = a
                kept += 1
                share = room[a] / rising[a]
                if share < least:
                    least = share
        count, full = kept, 0
        for each in range(count):
            a = links[each]
            if room[a] <= least * (1 + ALIKE) * rising[a]:
                narrow[full] = a
                full += 1
        for each in range(full):
            at = head[narrow[each]]
            while at >= 0:
                flow = owner[at]
                at = after[at]
                if not stream_seen[flow]:
                    continue
                stream_seen[flow] = 0
                to_rise -= 1
                for other in range(way[flow], way[flow + 1]):
                    b = link[other]
                    rising[b] -= 1
                    room[b] -= least
                if rate[flow] != least:
                    now = max(time, since[flow])  # a flow about to begin does so at its own moment
                    left[flow] = max(left[flow] - rate[flow] * (now - since[flow]), 0.0)
                    since[flow], rate[flow] = now, least
                    end[flow] = now + left[flow] / least


def _next_ends(state: _State, num_on: int, ending: Any, origin: float) -> tuple[float, int]:
    """Return when the next flows end, and their number: the first streams of ``ending``."""
    end, on, first = state.end, state.on, inf
    for each in range(num_on):
        if end[on[each]] < first:
            first = end[on[each]]
    until, count = first + min(max(first - origin, 0.0) * SIMULTANEOUS, AT_MOST_S), 0
    for each in range(num_on):
        if end[on[each]] <= until:
            ending[count] = on[each]
            count += 1
    return first, count


def _settle(
    state: _State, links: Any, narrow: Any, flows: Any, ended: Any, num_ended: int, begun: Any, begin: Any,
    nbytes: Any, num_begun: int, time: float, origin: float, num_on: int,
) -> tuple[int, int, float, int]:  # fmt: skip
    """End flows, begin flows, and give all affected flows their rates.

    Return the number of streams with a flow now, the number filled, when the next ends, and how many do so
    then: the first of ``flows``.
    """
    num_on, count = _change(state, links, ended, num_ended, begun, begin, nbytes, num_begun, num_on)
    count, filled = _gather(state, links, count)
    _fill(state, links, count, filled, narrow, time)
    next_end, ending = _next_ends(state, num_on, flows, origin)
    return num_on, filled, next_end, ending


@cache
def _compiled() -> Callable[..., tuple[int, int, float, int]]:
    """Return `_settle` as machine code."""
    settle = entry(_settle, _change, _gather, _fill, _next_ends)
    if not is_kept(settle):
        effort.say("compiling the fair network, once on this machine; about 20 seconds")
    return settle


class LinkSharing:
    """Links, streams over them, and the flow that each stream has at the moment, if any.

    `begin` and `end` collect changes, `settle` applies them. Streams are numbered in order of opening.
    """

    def __init__(self, bandwidths: Iterable[float]) -> None:
        self._state = _State(*([] for _ in _State._fields))
        self._state.way.append(0)
        self._links: Any = []
        self._narrow: Any = []
        self._flows: Any = []
        self._settle: Callable[..., tuple[int, int, float, int]] = _settle
        self._begun: dict[int, tuple[float, int]] = {}
        self._ended: dict[int, None] = {}
        self._num_on = 0
        self._filled = 0
        for bandwidth in bandwidths:
            self.add_link(bandwidth)
        self.next_end = inf
        """When the next flows end, in seconds; infinite where there are none."""
        self.ending: list[int] = []
        """Their streams."""

    def add_link(self, bandwidth: float) -> int:
        """Add a link of ``bandwidth`` bytes/s; return its number."""
        self._hold(_settle)
        for column, value in zip(self._state[:5], (float(bandwidth), -1, 0.0, 0, 0), strict=True):
            column.append(value)
        self._links.append(0)
        self._narrow.append(0)
        return len(self._links) - 1

    def open(self, links: Iterable[int]) -> int:
        """Open a stream over at least one link, each once; return its number."""
        self._hold(_settle)
        state, stream = self._state, len(self._flows)
        for link in links:
            state.link.append(link)
            state.owner.append(stream)
            state.after.append(-1)
            state.before.append(-1)
        state.way.append(len(state.link))
        for column, value in zip(state[6:14], (0.0, 0.0, 0.0, inf, 0, 0, 0, 0), strict=True):
            column.append(value)
        self._flows.append(0)
        return stream

    def begin(self, stream: int, nbytes: int, time: float) -> None:
        """Make a stream that carries nothing, or just ends, carry ``nbytes``, at least one.

        It does so from ``time`` on, the moment that is settled next or one simultaneous with it.
        """
        self._ended.pop(stream, None)
        self._begun[stream] = time, nbytes

    @property
    def is_idle(self) -> bool:
        """Return whether no stream has or is about to have a flow."""
        return not self._num_on and not self._begun

    def end(self, stream: int) -> None:
        """End a stream's flow, if any."""
        if self._state.is_on[stream]:
            self._ended[stream] = None

    def end_of(self, stream: int) -> float:
        """Return when its flow ends if nothing changes, in seconds."""
        return float(self._state.end[stream])

    def rates(self) -> dict[int, float]:
        """Return the bytes/s of every stream with a flow."""
        state = self._state
        return {int(stream): float(state.rate[stream]) for stream in state.on[: self._num_on]}

    def settle(self, time: float, origin: float = 0.0) -> None:
        """Apply the begun and ended flows at ``time``, in seconds after ``origin``."""
        pays = self._filled > MUCH or _compiled.cache_info().currsize
        if pays and self._settle is _settle and available():
            self._hold(_compiled())
        ended: Any = list(self._ended)
        begun: Any = list(self._begun)
        begin: Any = [begin for begin, _ in self._begun.values()]
        nbytes: Any = [nbytes for _, nbytes in self._begun.values()]
        if self._settle is not _settle:
            ended, begun, nbytes = (np.array(given, np.int64) for given in (ended, begun, nbytes))
            begin = np.array(begin, np.float64)
        self._num_on, filled, self.next_end, ending = self._settle(
            self._state, self._links, self._narrow, self._flows,
            ended, len(ended), begun, begin, nbytes, len(begun), time, origin, self._num_on,
        )  # fmt: skip
        self._filled += filled
        self.ending = [int(stream) for stream in self._flows[:ending]]
        self._ended.clear()
        self._begun.clear()

    def move_origin(self, seconds: float) -> None:
        """Move the origin of all moments by ``seconds``."""
        state = self._state
        for stream in state.on[: self._num_on]:
            state.since[stream] -= seconds
            state.end[stream] -= seconds
        self.next_end -= seconds

    def _hold(self, settle: Callable[..., tuple[int, int, float, int]]) -> None:
        """Keep all state in lists for the interpreter, or in arrays for the compiled function."""
        if settle is self._settle:
            return
        self._settle = settle
        columns: tuple[Any, ...] = (*self._state, self._links, self._narrow, self._flows)
        if settle is _settle:
            columns = tuple(column.tolist() for column in columns)
        else:
            kinds = [np.float64 if name in _FLOATS else np.int64 for name in _State._fields] + [np.int64] * 3
            columns = tuple(map(np.array, columns, kinds))
        self._state = _State(*columns[:-3])
        self._links, self._narrow, self._flows = columns[-3:]
