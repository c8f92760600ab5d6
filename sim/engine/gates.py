"""Gates of a rank's chunks: the data it must receive before it may send them on."""

from bisect import bisect_left, insort
from collections.abc import Sequence
from typing import Any


class Gate:
    """Holds back users of some chunks at one rank until ``missing`` transfers have updated them.

    A gate that is ``closed`` accepts no further transfers, because a user already waits for it: these get
    their own gates, which wait for this one.
    """

    __slots__ = ("behind", "closed", "incoming", "missing", "ready", "starts", "waiting")

    def __init__(self, incoming: "Incoming", start: int) -> None:
        self.incoming = incoming
        self.starts: tuple[int, ...] = (start,)
        """Where the ranges that it holds back begin."""
        self.missing = 0
        self.ready = 0
        """The tick at which its latest transfer was complete."""
        self.closed = False
        self.waiting: list[Any] = []
        self.behind: tuple[Gate, ...] = ()


class Incoming:
    """The shut gates of one rank: the chunks each holds back, as disjoint ranges."""

    __slots__ = ("_gates", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._gates: dict[int, tuple[int, Gate]] = {}

    def over(self, first: int, stop: int) -> Sequence[tuple[int, int, Gate]]:
        """Yield the ranges with a chunk from ``first`` to before ``stop``, each with its gate."""
        starts = self._starts
        if not starts:
            return ()
        ranges = []
        place = bisect_left(starts, stop) - 1
        while place >= 0:
            start = starts[place]
            end, gate = self._gates[start]
            if end <= first:
                break
            ranges.append((start, end, gate))
            place -= 1
        return ranges[::-1]

    def shut(self, first: int, stop: int) -> list[Gate]:
        """Return the gates, over exactly these chunks, that a further transfer to them belongs to."""
        if not self._starts:
            return [self._gate(first, stop)]
        gates = []
        here = first
        for start, end, gate in self.over(first, stop):
            if here < start:
                gates.append(self._gate(here, start))
            here = min(end, stop)
            if gate.closed or start < first or end > stop:
                gates.append(self._behind(gate, start, max(start, first), here, end))
            else:
                gates.append(gate)
        if here < stop:
            gates.append(self._gate(here, stop))
        return gates

    def open(self, gate: Gate) -> None:
        """Release everything that a gate holds back."""
        for start in gate.starts:
            if start in self._gates and self._gates[start][1] is gate:
                self._remove(start)

    def _behind(self, gate: Gate, start: int, first: int, stop: int, end: int) -> Gate:
        """Return a gate for the part from ``first`` to ``stop`` of another gate's range, behind that gate."""
        gate.closed = True
        self._remove(start)
        for rest, until in ((start, first), (stop, end)):
            if rest < until:
                self._put(rest, until, gate)
                gate.starts += (rest,)
        new = self._gate(first, stop)
        new.missing = 1
        gate.behind += (new,)
        return new

    def _gate(self, start: int, stop: int) -> Gate:
        gate = Gate(self, start)
        self._put(start, stop, gate)
        return gate

    def _put(self, start: int, stop: int, gate: Gate) -> None:
        insort(self._starts, start)
        self._gates[start] = stop, gate

    def _remove(self, start: int) -> None:
        del self._starts[bisect_left(self._starts, start)]
        del self._gates[start]
