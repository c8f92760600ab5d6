"""Requests of a rank to its device and to other ranks, in the order of its host."""

import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ringside.real.record.script import places
from ringside.sim.recorded.job import COMPUTE, Action, HostWait

HOST = "host"
"""The lane of waits of the host."""

OnPost = Callable[[int, Action, str, Sequence[int]], None]
"""What to do with an entry: its number, action and lane, and the entries that it waits for."""

_ROUND = 512
"""Bytes to which PyTorch rounds a tensor of CUDA memory, kMinBlockSize of ``CUDACachingAllocator.cpp``."""


@dataclass(slots=True)
class Posted:
    """One entry: numbers of its action and its place, its lane, and earlier entries that it waits for."""

    action: int
    lane: str
    after: tuple[int, ...]
    place: int | None


class _Kept(weakref.ref[Any]):
    """A storage of the device: its address while it lives, its number, and its bytes."""

    __slots__ = ("address", "nbytes", "number")

    address: int
    number: int
    nbytes: int


class Line:
    """A stream as the tape sees it: its last entry, and what the next one waits for besides."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.last: int | None = None
        self.pending: set[int] = set()

    def reached(self) -> set[int]:
        """Return the entries that must end before what comes next on the line."""
        return self.pending | ({self.last} if self.last is not None else set())


@dataclass
class Tape:
    """All that a rank did so far."""

    with_places: bool = False
    entries: list[Posted] = field(default_factory=list)
    actions: dict[Action, int] = field(default_factory=dict)
    places: dict[str, int] = field(default_factory=dict)
    memory: list[tuple[int, int, int]] = field(default_factory=list)
    """Changes of memory: the number of entries before it, the storage's number, bytes more or less."""
    notes: Counter[str] = field(default_factory=Counter)
    batch: int | None = None
    """The number of the batch of messages that is being posted."""
    batches: int = 0
    on_post: OnPost | None = None
    """What carries out entries as they are posted."""

    def __post_init__(self) -> None:
        self.default = self.current = Line(COMPUTE)
        self.lines: dict[str, Line] = {COMPUTE: self.default}
        self.in_flight: dict[int, int] = {}
        """Entries whose end no call waits for, but C++ does, by the number of their tensors' storage."""
        self.reduced: set[int] = set()
        """Storages of calls with futures: buckets of gradients."""
        self._kept: dict[int, _Kept] = {}
        """Storages of the device by their address."""
        self._numbers = 0

    def line(self, name: str) -> Line:
        """Return the line of this name."""
        return self.lines.setdefault(name, Line(name))

    def new_stream(self) -> Line:
        """Return the line of another stream."""
        return self.line(f"stream{len(self.lines)}")

    def post(self, action: Action, line: Line | None = None, after: Iterable[int] = ()) -> int:
        """Append an entry on a line, the current one by default; return its number."""
        line = line or self.current
        number = len(self.entries)
        waits = (line.pending | set(after)) - {line.last}
        line.pending = set()
        line.last = number
        self._append(action, line.name, waits)
        return number

    def wait(self, name: str, after: Iterable[int]) -> None:
        """Append a wait of the host for entries."""
        self._append(HostWait(name), HOST, set(after))

    def _append(self, action: Action, lane: str, after: Iterable[int]) -> None:
        place = None
        if self.with_places and (text := places.caller()):
            place = self.places.setdefault(text, len(self.places))
        known = self.actions.setdefault(action, len(self.actions))
        posted = Posted(known, lane, tuple(sorted(after)), place)
        self.entries.append(posted)
        if self.on_post is not None:
            self.on_post(len(self.entries) - 1, action, lane, posted.after)

    def reached(self) -> set[int]:
        """Return the last entries of all lines."""
        return {one.last for one in self.lines.values() if one.last is not None}

    def keep(self, storage: Any) -> None:
        """Count a storage of the device from now until it dies."""
        address = storage._cdata
        if address in self._kept:
            return
        kept = self._kept[address] = _Kept(storage, self._free)
        kept.address, kept.number, kept.nbytes = address, self._numbers, _rounded(storage.nbytes())
        self._numbers += 1
        self.memory.append((len(self.entries), kept.number, kept.nbytes))

    def _free(self, kept: Any) -> None:
        del self._kept[kept.address]
        self.memory.append((len(self.entries), kept.number, -kept.nbytes))

    def resized(self, storage: Any) -> bool:
        """Count a storage's new size; return whether it had none before."""
        kept = self._kept.get(storage._cdata)
        if kept is None:
            return False
        before, kept.nbytes = kept.nbytes, _rounded(storage.nbytes())
        self.memory.append((len(self.entries), kept.number, kept.nbytes - before))
        return before == 0

    def number_of(self, storage: Any) -> int | None:
        """Return a storage's number; None for one of the host."""
        kept = self._kept.get(storage._cdata)
        return None if kept is None else kept.number


TAPE = Tape()
"""The tape of this process."""


def _rounded(nbytes: int) -> int:
    return -(-nbytes // _ROUND) * _ROUND
