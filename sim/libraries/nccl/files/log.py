"""What NCCL writes about itself with NCCL_DEBUG=INFO, line by line into data (2.28 to 2.30).

Read are: communicators and their channel counts (NCCL_DEBUG_SUBSYS INIT), rings and trees (INIT
and GRAPH), the tuner's tables and the choice of every collective (TUNING). One log may hold many
ranks and communicators; lines go to the communicator that their thread began last, and ranks of
several threads together by the communicator's id where the log has it, otherwise in the order in
which each rank joins communicators of one size. Everything else in a log is passed over.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from sim.libraries.nccl.graph.system import GB
from sim.libraries.nccl.names import ALGORITHMS, FUNCTIONS, PROTOCOLS

_ADVICE = "give the log as NCCL wrote it, or take the broken line out"

_LINE = re.compile(r"(\S+:\d+:\d+) \[-?\d+\] NCCL INFO (.*)")
_VERSION = re.compile(r"NCCL version (\d+\.\d+\.\d+)")
_STARTED = re.compile(r"\bcommId (0x[0-9a-f]+) - Init START")
_COMM = re.compile(r"comm \S+ rank (\d+) nRanks (\d+) nNodes (\d+) localRanks (\d+)\b")
_COUNTS = re.compile(
    r"(\d+) coll channels, (?:\d+ collnet channels, )?(\d+) nvls channels, (\d+) p2p channels"
)
_CHANNEL = re.compile(r"Channel (\d+)/(\d+) :([\s\d]*?)(\.\.\.|…)?\s*")
_RING = re.compile(r"Ring (\d+) : (\d+) -> (\d+) -> (\d+)\s*")
_TREES = re.compile(r"(?:\[\d+\] -?\d+/-?\d+/-?\d+->\d+->-?\d+\s*)+")
_TREE = re.compile(r"\[(\d+)\] (-?\d+)/(-?\d+)/(-?\d+)->(\d+)->(-?\d+)")
_GRAPH_TREE = re.compile(r"Tree (\d+) : (-?\d+) -> (\d+) -> (-?\d+)/(-?\d+)/(-?\d+)\s*")
_CELL = re.compile(r"\s*(\d+\.\d+)\s*/\s*(\d+\.\d+)\s*")
_CHOICE = re.compile(
    r"(\w+): (\d+) Bytes -> Algo (\w+) proto (\w+)(?:.*?channel\{Lo\.\.Hi\}=\{(\d+)\.\.(\d+)\})?"
)

_BY_NAME = [
    {name.lower(): word for word, name in table.items()} | {str(i): word for i, word in enumerate(table)}
    for table in (FUNCTIONS, ALGORITHMS, PROTOCOLS)
]


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of the tuner's table as printed: microseconds, and bytes/s (0: not available)."""

    latency_us: float
    bandwidth: float


@dataclass(frozen=True, slots=True)
class Operation:
    """One collective and what NCCL chose for it; ``channels`` are the first and the last, if printed."""

    kind: str
    nbytes: int
    algorithm: str
    protocol: str
    channels: tuple[int, int] | None


@dataclass(slots=True)
class LoggedCommunicator:
    """What a log tells of one communicator; 0 and empty where it tells nothing.

    ``rings`` has by channel the ranks from rank 0 on, where the log has all of them; ``trees`` by
    channel and rank the rank above and the ranks below (-1: none); ``table`` the tuner's cells by
    collective, algorithm and protocol.
    """

    ranks: int = 0
    nodes: int = 0
    gpus: int = 0
    channels: int = 0
    nvls_channels: int = 0
    rings: dict[int, tuple[int, ...]] = field(default_factory=dict)
    trees: dict[int, dict[int, tuple[int, tuple[int, ...]]]] = field(default_factory=dict)
    table: dict[tuple[str, str, str], Cell] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Log:
    """A whole log; ``version`` is empty where NCCL's line with it is missing."""

    version: str
    communicators: tuple[LoggedCommunicator, ...]
    operations: tuple[Operation, ...]


def parse_log(text: str) -> Log:
    """The log in a text; raise `ValueError` with the line of what is not as NCCL writes it."""
    reader = _Reader()
    seen = False
    for number, line in enumerate(text.splitlines(), 1):
        version = _VERSION.search(line)
        if version and not reader.version:
            reader.version = version[1]
        match = _LINE.search(line)
        if match:
            seen = True
            try:
                reader.read(match[1], match[2].rstrip())
            except ValueError as error:
                raise ValueError(f"NCCL log, line {number}: {error}; {_ADVICE}") from None
    if not seen:
        raise ValueError("NCCL log: no line with NCCL INFO; run with NCCL_DEBUG=INFO")
    return reader.log()


class _Reader:
    """Sorts lines to communicators while it reads."""

    def __init__(self) -> None:
        self.version = ""
        self._known: dict[object, LoggedCommunicator] = {}
        self._current: dict[str, LoggedCommunicator] = {}
        self._ids: dict[str, str] = {}
        self._joined: dict[object, int] = {}
        self._columns: dict[str, list[str]] = {}
        self._next: dict[tuple[int, int], tuple[LoggedCommunicator, dict[int, int]]] = {}
        self._operations: list[Operation] = []
        self._lines: tuple[tuple[str, Callable[[str, str], None]], ...] = (
            ("comm ", self._comm),
            ("Channel ", self._channel),
            ("Ring ", self._ring),
            ("Trees ", self._trees),
            ("Tree ", self._tree),
            ("Algorithm ", self._header),
            *((f"{name} |", self._row) for name in FUNCTIONS.values()),
        )

    def read(self, thread: str, message: str) -> None:
        """Take in one message of a thread."""
        text = message.lstrip()
        started, counts, choice = _STARTED.search(text), _COUNTS.match(text), _CHOICE.match(text)
        if started:
            self._ids[thread] = started[1]
        elif counts:
            comm = self._of(thread)
            comm.channels, comm.nvls_channels = int(counts[1]), int(counts[2])
        elif choice:
            words = [_word(table, choice[group]) for table, group in zip(_BY_NAME, (1, 3, 4), strict=True)]
            used = (int(choice[5]), int(choice[6])) if choice[5] else None
            self._operations.append(Operation(words[0], int(choice[2]), words[1], words[2], used))
        else:
            for beginning, take in self._lines:
                if text.startswith(beginning):
                    take(thread, text)
                    break

    def log(self) -> Log:
        """What was read, once rings that were cut off are pieced together from every rank's neighbours."""
        for (_, channel), (comm, following) in self._next.items():
            ring = [0]
            while ring[-1] in following and following[ring[-1]] not in ring:
                ring.append(following[ring[-1]])
            if len(ring) == comm.ranks:
                comm.rings.setdefault(channel, tuple(ring))
        return Log(self.version, tuple(self._known.values()), tuple(self._operations))

    def _of(self, thread: str) -> LoggedCommunicator:
        if thread not in self._current:
            self._current[thread] = self._known.setdefault(thread, LoggedCommunicator())
        return self._current[thread]

    def _comm(self, thread: str, text: str) -> None:
        if "nRanks" not in text:
            return
        match = _match(_COMM, text)
        rank, ranks, nodes, gpus = map(int, match.groups())
        if not rank < ranks or not 1 <= nodes <= ranks or not 1 <= gpus <= ranks:
            raise ValueError(f"rank {rank} of {ranks} on {nodes} nodes, {gpus} on this one, cannot be")
        key: object = self._ids.pop(thread, None)
        if key is None:
            shape = rank, ranks, nodes, gpus
            self._joined[shape] = self._joined.get(shape, 0) + 1
            key = (*shape[1:], self._joined[shape])
        self._current[thread] = self._known.setdefault(key, LoggedCommunicator(ranks, nodes, gpus))

    def _channel(self, thread: str, text: str) -> None:
        if "->" in text:
            return
        comm, match = self._of(thread), _match(_CHANNEL, text)
        ring = tuple(map(int, match[3].split()))
        if match[4] or len(ring) < comm.ranks:
            return  # cut off, maybe within a number
        ranks = comm.ranks or len(ring)
        if sorted(ring) != list(range(ranks)):
            raise ValueError(f"a ring is not the ranks 0 to {ranks - 1}, each once")
        start = ring.index(0)
        comm.rings[int(match[1])] = ring[start:] + ring[:start]

    def _ring(self, thread: str, text: str) -> None:
        comm, (channel, _, rank, following) = self._of(thread), map(int, _match(_RING, text).groups())
        self._next.setdefault((id(comm), channel), (comm, {}))[1][rank] = following

    def _trees(self, thread: str, text: str) -> None:
        found = _match(_TREES, text.removeprefix("Trees "))[0]
        for channel, *below, rank, above in _TREE.findall(found):
            self._add_tree(thread, channel, rank, above, below)

    def _tree(self, thread: str, text: str) -> None:
        channel, above, rank, *below = _match(_GRAPH_TREE, text).groups()
        self._add_tree(thread, channel, rank, above, below)

    def _add_tree(self, thread: str, channel: str, rank: str, above: str, below: list[str]) -> None:
        tree = self._of(thread).trees.setdefault(int(channel), {})
        tree[int(rank)] = int(above), tuple(int(child) for child in below)

    def _header(self, thread: str, text: str) -> None:
        names = text.replace("|", " ").split()[1:]
        self._columns[thread] = [_word(_BY_NAME[1], name) for name in names]

    def _row(self, thread: str, text: str) -> None:
        name, *cells = text.rstrip(" |").split("|")
        columns = [(a, p) for a in self._columns.get(thread, []) for p in PROTOCOLS]
        if len(cells) != len(columns):
            raise ValueError(f"{len(cells)} cells under a header of {len(columns)}")
        kind = _word(_BY_NAME[0], name.strip())
        for column, cell in zip(columns, cells, strict=True):
            latency, bandwidth = map(float, _match(_CELL, cell).groups())
            self._of(thread).table[kind, *column] = Cell(latency, bandwidth * GB)


def _match(pattern: re.Pattern[str], text: str) -> re.Match[str]:
    match = pattern.match(text) if pattern is _COMM else pattern.fullmatch(text)
    if match is None:
        raise ValueError(f"{text[:60]!r} breaks off or is garbled")
    return match


def _word(table: dict[str, str], name: str) -> str:
    if name.lower() not in table:
        known = ", ".join(word for word in table if not word.isdecimal())
        raise ValueError(f"{name!r} is none of {known}")
    return table[name.lower()]
