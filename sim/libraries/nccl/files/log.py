"""NCCL's log with NCCL_DEBUG=INFO, as data (2.8 to 2.30).

Parsed are: communicators and their channel counts (NCCL_DEBUG_SUBSYS INIT), rings and trees (INIT
and GRAPH), the tuner's tables and the choice of every collective (TUNING). One log may hold many
ranks and communicators. Lines belong to the communicator that their thread began last; ranks of
several threads are joined by the communicator's id if the log has it, otherwise in the order in
which each rank joins communicators of one size. Truncated lines, and lines that ranks wrote into one
another, are skipped and counted; everything else in a log is skipped.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ringside.sim.libraries.nccl.communicator import MAX_CHANNELS
from ringside.sim.libraries.nccl.graph.system import GB
from ringside.sim.libraries.nccl.names import ALGORITHMS, FUNCTIONS, PROTOCOLS

PREFIX = re.compile(r"(?:(\S*?):(\d+:\d+) \[-?\d+\] )?NCCL INFO ?")
"""The prefix of every line: host, process and thread, device, unless truncated; a time may come first."""

_RANK = re.compile(r"\bcomm \S+ rank (\d+) nranks (\d+) ")
_IDENTITY = re.compile(r"\bcommId (0x[0-9a-f]+)")
_SHAPE = re.compile(r"comm \S+ rank (\d+) nRanks (\d+) nNodes (\d+) localRanks (\d+)\b")
_COUNTS = re.compile(
    r"(\d+) coll channels, (?:(\d+) (?:collnet|nvls) channels, )?(?:(\d+) nvls channels, )?\d+ p2p channels"
)
_VARIABLE = re.compile(r"(NCCL_[A-Z0-9_]+) set by environment to (\S+?)\.?$")
_CHANNEL = re.compile(r"Channel (\d+)/(\d+) :([\s\d]*?)(\.\.\.|…)?\s*")
_RING = re.compile(r"Ring (\d+) : (\d+) -> (\d+) -> (\d+)\s*")
_TREES = re.compile(r"(?:\[\d+\] -?\d+/-?\d+/-?\d+->\d+->-?\d+\s*)+(?:comm \S.*)?")
_TREE = re.compile(r"\[(\d+)\] (-?\d+)/(-?\d+)/(-?\d+)->(\d+)->(-?\d+)")
_GRAPH_TREE = re.compile(r"Tree (\d+) : (-?\d+) -> (\d+) -> (-?\d+)/(-?\d+)/(-?\d+)\s*")
_CELL = re.compile(r"\s*(\d+\.\d+)\s*/\s*(\d+\.\d+)\s*")
_CHOICE = re.compile(
    r"(\w+): (\d+) Bytes -> Algo (\w+) proto (\w+)(?:.*?channel\{Lo\.\.Hi\}=\{(\d+)\.\.(\d+)\})?"
)

_FUNCTIONS, _ALGORITHMS, _PROTOCOLS = (
    {name.lower(): word for word, name in table.items()} | {str(i): word for i, word in enumerate(table)}
    for table in (FUNCTIONS, ALGORITHMS, PROTOCOLS)
)
_ALGORITHMS["collnet"] = "collnet_direct"


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of the tuner's table as printed: microseconds, and bytes/s (0: not available)."""

    latency_us: float
    bandwidth: float


@dataclass(frozen=True, slots=True)
class LoggedOperation:
    """One collective and what NCCL chose for it; ``channels`` are the first and the last, if printed."""

    kind: str
    nbytes: int
    algorithm: str
    protocol: str
    channels: tuple[int, int] | None


@dataclass(slots=True)
class Session:
    """One rank's lines about one communicator; 0 and empty if missing.

    ``announced`` is the number of channels that the ring lines name, ``following`` the rank after each rank
    by channel. A session is ``done`` when the rank's log reports that the communicator is complete.
    """

    host: str
    identity: str = ""
    rank: int = -1
    ranks: int = 0
    nodes: int = 0
    gpus: int = 0
    channels: int = 0
    collnet_channels: int = 0
    nvls_channels: int = 0
    announced: int = 0
    done: bool = False
    rings: dict[int, tuple[int, ...]] = field(default_factory=dict)
    trees: dict[int, dict[int, tuple[int, tuple[int, ...]]]] = field(default_factory=dict)
    following: dict[int, dict[int, int]] = field(default_factory=dict)
    table: dict[tuple[str, str, str], Cell] = field(default_factory=dict)


class Reader:
    """Reads messages one after another."""

    def __init__(self) -> None:
        self.sessions: list[Session] = []
        self.operations: list[LoggedOperation] = []
        self.skipped = 0
        self.variables: dict[str, str] = {}
        self._hosts: dict[str, list[str]] = {}
        self._current: dict[str, Session] = {}
        self._columns: dict[str, list[tuple[str, str]]] = {}
        self._lines: tuple[tuple[str, Callable[[str, str], None]], ...] = (
            ("Channel ", self._channel),
            ("Ring ", self._ring),
            ("Trees ", self._trees),
            ("Tree ", self._tree),
            ("Algorithm ", self._header),
            ("Latency/AlgBw ", self._pairs),
            *((f"{name} |", self._row) for name in FUNCTIONS.values()),
        )

    def read(self, host: str, thread: str, message: str) -> None:
        """Read one message of a thread; count garbled ones."""
        writer = f"{self._host(host, thread)}:{thread}"
        try:
            self._take(writer, message)
        except ValueError:
            self.skipped += 1

    def _host(self, host: str, thread: str) -> str:
        """Return the writer's host; a truncated line may have lost or gained its beginning."""
        known = self._hosts.setdefault(thread, [])
        for other in known:
            if host.endswith(other) or other.endswith(host):
                return other
        known.append(host)
        return host

    def _take(self, writer: str, text: str) -> None:
        counts, choice = _COUNTS.match(text), _CHOICE.match(text)
        if "Init START" in text or "Init COMPLETE" in text:
            self._begun_or_done(writer, text)
        elif text.startswith("comm ") and "nRanks" in text:
            self._shape(writer, text)
        elif counts:
            own, second, third = counts.groups()
            matched = (
                own,
                (second if "collnet" in text else None),
                third or (second if "nvls" in text else None),
            )
            session = self._of(writer)
            session.channels, session.collnet_channels, session.nvls_channels = (
                _few(count or "0") for count in matched
            )
        elif choice:
            kind = _name(_FUNCTIONS, choice[1])
            pair = _name(_ALGORITHMS, choice[3]), _name(_PROTOCOLS, choice[4])
            used = (int(choice[5]), int(choice[6])) if choice[5] else None
            self.operations.append(LoggedOperation(kind, int(choice[2]), *pair, used))
        elif variable := _VARIABLE.match(text):
            self.variables[variable[1]] = variable[2]
        else:
            for beginning, take in self._lines:
                if text.startswith(beginning):
                    take(writer, text)
                    break

    def _of(self, writer: str) -> Session:
        """Return the communicator that a thread is setting up."""
        session = self._current.get(writer)
        return self._begin(writer) if session is None or session.done else session

    def _begin(self, writer: str) -> Session:
        session = self._current[writer] = Session(writer.rpartition(":")[0].rpartition(":")[0])
        self.sessions.append(session)
        return session

    def _begun_or_done(self, writer: str, text: str) -> None:
        done, identity = "Init COMPLETE" in text, _IDENTITY.search(text)
        rank, ranks = map(int, _search(_RANK, text).groups())
        if not rank < ranks:
            raise ValueError(f"rank {rank} of {ranks} cannot be")
        session = self._of(writer) if done else self._begin(writer)
        session.rank, session.ranks, session.done = rank, ranks, done
        session.identity = identity[1] if identity else session.identity

    def _shape(self, writer: str, text: str) -> None:
        rank, ranks, nodes, gpus = map(int, _search(_SHAPE, text).groups())
        if not rank < ranks or not 1 <= nodes <= ranks or not 1 <= gpus <= ranks:
            raise ValueError(f"rank {rank} of {ranks} on {nodes} nodes, {gpus} on this one, cannot be")
        session = self._of(writer)
        if session.nodes:
            session = self._begin(writer)
        session.rank, session.ranks, session.nodes, session.gpus = rank, ranks, nodes, gpus

    def _channel(self, writer: str, text: str) -> None:
        if "->" in text:
            return
        match = _whole(_CHANNEL, text)
        channel, announced, session = _few(match[1]), _few(match[2]), self._of(writer)
        session.announced = max(session.announced, announced)
        ring = tuple(map(int, match[3].split()))
        if match[4] or len(ring) < session.ranks:
            return  # cut off, perhaps within a number
        if sorted(ring) != list(range(session.ranks or len(ring))):
            raise ValueError(f"a ring is not the ranks 0 to {len(ring) - 1}, each once")
        start = ring.index(0) if ring else 0
        session.rings[channel] = ring[start:] + ring[:start]

    def _ring(self, writer: str, text: str) -> None:
        channel, _, rank, following = _whole(_RING, text).groups()
        self._of(writer).following.setdefault(_few(channel), {})[int(rank)] = int(following)

    def _trees(self, writer: str, text: str) -> None:
        trees = _whole(_TREES, text.removeprefix("Trees "))[0]
        for channel, *below, rank, above in _TREE.findall(trees):
            self._add_tree(writer, channel, rank, above, below)

    def _tree(self, writer: str, text: str) -> None:
        channel, above, rank, *below = _whole(_GRAPH_TREE, text).groups()
        self._add_tree(writer, channel, rank, above, below)

    def _add_tree(self, writer: str, channel: str, rank: str, above: str, below: list[str]) -> None:
        tree = self._of(writer).trees.setdefault(_few(channel), {})
        tree[int(rank)] = int(above), tuple(int(child) for child in below)

    def _header(self, writer: str, text: str) -> None:
        names = [_name(_ALGORITHMS, name) for name in text.replace("|", " ").split()[1:]]
        self._columns[writer] = [(name, protocol) for name in names for protocol in PROTOCOLS]

    def _pairs(self, writer: str, text: str) -> None:
        """Read the header of releases before 2.20: algorithm and protocol over every column."""
        cells = [cell.partition("/") for cell in text.rstrip(" |").split("|")[1:]]
        self._columns[writer] = [
            (_name(_ALGORITHMS, name.strip()), _name(_PROTOCOLS, protocol.strip()))
            for name, _, protocol in cells
        ]

    def _row(self, writer: str, text: str) -> None:
        name, *cells = text.rstrip(" |").split("|")
        columns = self._columns.get(writer, [])
        if len(cells) != len(columns):
            raise ValueError(f"{len(cells)} cells under a header of {len(columns)}")
        kind = _name(_FUNCTIONS, name.strip())
        for column, cell in zip(columns, cells, strict=True):
            latency, bandwidth = map(float, _whole(_CELL, cell).groups())
            self._of(writer).table[kind, *column] = Cell(latency, bandwidth * GB)


def _whole(pattern: re.Pattern[str], text: str) -> re.Match[str]:
    match = pattern.fullmatch(text)
    if match is None:
        raise ValueError(f"{text[:60]!r} breaks off or is garbled")
    return match


def _search(pattern: re.Pattern[str], text: str) -> re.Match[str]:
    match = pattern.search(text)
    if match is None:
        raise ValueError(f"{text[:60]!r} breaks off or is garbled")
    return match


def _few(channels: str) -> int:
    if int(channels) > MAX_CHANNELS:
        raise ValueError(f"{channels} channels are more than the {MAX_CHANNELS} that NCCL has")
    return int(channels)


def _name(table: dict[str, str], name: str) -> str:
    if name.lower() not in table:
        raise ValueError(f"{name!r} is none of {', '.join(word for word in table if not word.isdecimal())}")
    return table[name.lower()]


_VERSION = re.compile(r"\bNCCL version (\d+\.\d+(?:\.\d+)?)")


@dataclass(slots=True)
class LoggedCommunicator:
    """One communicator in a log; 0 and empty if missing in the log.

    ``rings`` has by channel the ranks from rank 0 on, if the log has all of them; ``trees`` by
    channel and rank the rank above and the ranks below (-1: none); ``table`` the tuner's cells by
    collective, algorithm and protocol. ``version`` is the log's, ``variables`` are those of its environment.
    """

    ranks: int = 0
    nodes: int = 0
    gpus: int = 0
    channels: int = 0
    collnet_channels: int = 0
    nvls_channels: int = 0
    rings: dict[int, tuple[int, ...]] = field(default_factory=dict)
    trees: dict[int, dict[int, tuple[int, tuple[int, ...]]]] = field(default_factory=dict)
    table: dict[tuple[str, str, str], Cell] = field(default_factory=dict)
    version: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Log:
    """A whole log; ``version`` is empty if it names none, ``skipped`` counts garbled lines."""

    version: str
    communicators: tuple[LoggedCommunicator, ...]
    operations: tuple[LoggedOperation, ...]
    skipped: int = 0


def parse_log(text: str) -> Log:
    """Parse a log; raise `ValueError` if no line of it is NCCL's."""
    reader = Reader()
    seen = False
    version = _VERSION.search(text)
    for line in text.splitlines():
        parts = list(PREFIX.finditer(line))
        seen |= bool(parts)
        if len(parts) > 1:
            reader.skipped += 1
        ends = [*(part.start() for part in parts[1:]), len(line)]
        for part, end in zip(parts, ends, strict=False):
            reader.read(part[1] or "", part[2] or "", line[part.end() : end].strip())
    if not seen:
        raise ValueError("NCCL log: no line with NCCL INFO; run with NCCL_DEBUG=INFO")
    release = version[1] if version else ""
    known = [_joined(group, reader, release) for group in _groups(reader.sessions)]
    return Log(release, tuple(known), tuple(reader.operations), reader.skipped)


def _groups(sessions: Sequence[Session]) -> list[list[Session]]:
    """Return the sessions of each communicator's ranks, in the order in which communicators began."""
    groups: list[list[Session]] = []
    shapeless = []
    for session in sessions:
        if not session.ranks:
            shapeless.append(session)
            continue
        group = next((group for group in groups if _belongs(session, group)), None)
        if group is None:
            groups.append([session])
        else:
            group.append(session)
    if len(groups) == 1:
        groups[0].extend(shapeless)
        return groups
    return [*groups, *([session] for session in shapeless)]


def _belongs(session: Session, group: list[Session]) -> bool:
    """Return whether the ids are equal, or may be, and the group has no session of that rank yet."""
    identities = {other.identity for other in group if other.identity}
    if session.identity and identities:
        return session.identity in identities
    shapes = {(other.ranks, other.nodes) for other in group if other.nodes}
    same = group[0].ranks == session.ranks and (
        not shapes or not session.nodes or (session.ranks, session.nodes) in shapes
    )
    return same and session.rank not in {other.rank for other in group}


def _joined(group: list[Session], reader: Reader, version: str) -> LoggedCommunicator:
    comm = LoggedCommunicator(version=version, variables=reader.variables)
    comm.ranks = max(session.ranks for session in group)
    comm.nodes = max(session.nodes for session in group)
    comm.gpus = next((session.gpus for session in group if session.gpus), 0)
    if not comm.nodes:
        _count_hosts(comm, group)
    following: dict[int, dict[int, int]] = {}
    for session in group:
        comm.channels = max(comm.channels, session.channels)
        comm.collnet_channels = max(comm.collnet_channels, session.collnet_channels)
        comm.nvls_channels = max(comm.nvls_channels, session.nvls_channels)
        comm.table |= session.table
        for channel, ring in session.rings.items():
            if sorted(ring) == list(range(comm.ranks or len(ring))):
                comm.rings.setdefault(channel, ring)
            else:
                reader.skipped += len(ring) == comm.ranks
        for channel, tree in session.trees.items():
            comm.trees.setdefault(channel, {}).update(tree)
        for channel, next_of in session.following.items():
            following.setdefault(channel, {}).update(next_of)
    for channel, next_of in following.items():
        _piece_together(comm, channel, next_of)
    announced = max(session.announced for session in group)
    comm.channels = comm.channels or announced or len(comm.trees)
    return comm


def _count_hosts(comm: LoggedCommunicator, group: list[Session]) -> None:
    """Set the number of nodes, which releases before 2.19 omit: the hosts, if every rank wrote."""
    hosts = {session.rank: session.host for session in group}
    if comm.ranks and set(hosts) == set(range(comm.ranks)):
        comm.nodes = len(set(hosts.values()))
        comm.gpus = list(hosts.values()).count(hosts[0])


def _piece_together(comm: LoggedCommunicator, channel: int, following: dict[int, int]) -> None:
    """Reconstruct a truncated ring from every rank's neighbours."""
    ring = [0]
    while ring[-1] in following and following[ring[-1]] not in ring:
        ring.append(following[ring[-1]])
    if len(ring) == comm.ranks:
        comm.rings.setdefault(channel, tuple(ring))
