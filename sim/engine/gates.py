"""What a rank has yet to receive before it may send it on: the gates of its chunks."""

from bisect import bisect_left, insort
from collections.abc import Sequence
from typing import Any


class Gate:
    """Holds back what needs some chunks at one rank until ``missing`` transfers have brought them up to date.

    A gate that is ``closed`` takes no further transfers, because somebody waits for it already: those
    get gates of their own, which wait for this one.
    """

    __slots__ = ("behind", "closed", "incoming", "missing", "ready", "starts", "waiting")

    def __init__(self, incoming: "Incoming", start: int) -> None:
        self.incoming = incoming
        self.starts: tuple[int, ...] = (start,)
        """Where the ranges begin that it holds back."""
        self.missing = 0
        self.ready = 0
        """The tick at which the last transfer so far was complete."""
        self.closed = False
        self.waiting: list[Any] = []
        self.behind: tuple[Gate, ...] = ()


class Incoming:
    """The shut gates of one rank: which chunks each holds back, as ranges that do not overlap."""

    __slots__ = ("_gates", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._gates: dict[int, tuple[int, Gate]] = {}

    def over(self, first: int, stop: int) -> Sequence[tuple[int, int, Gate]]:
        """The ranges that have a chunk from ``first`` to before ``stop``, each with its gate."""
        starts = self._starts
        if not starts:
            return ()
        found = []
        place = bisect_left(starts, stop) - 1
        while place >= 0:
            start = starts[place]
            end, gate = self._gates[start]
            if end <= first:
                break
            found.append((start, end, gate))
            place -= 1
        return found[::-1]

    def shut(self, first: int, stop: int) -> list[Gate]:
        """The gates, together over just these chunks, that a further transfer to them belongs to."""
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
        """Hold back nothing any more."""
        for start in gate.starts:
            if start in self._gates and self._gates[start][1] is gate:
                self._remove(start)

    def _behind(self, gate: Gate, start: int, first: int, stop: int, end: int) -> Gate:
        """A gate for the part from ``first`` to ``stop`` of what another one holds back, behind that one."""
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
