"""NCCL's log with NCCL_DEBUG=INFO, as data (2.8 to 2.30).

Parsed are: communicators and their channel counts (NCCL_DEBUG_SUBSYS INIT), rings and trees (INIT
and GRAPH), the tuner's tables and the choice of every collective (TUNING). One log may hold many
ranks and communicators. Lines belong to the communicator that their thread began last; ranks of
several threads are joined by the communicator's id if the log has it, otherwise in the order in
which each rank joins communicators of one size. Truncated lines, and lines that ranks wrote into one
another, are skipped and counted; everything else in a log is skipped.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ringside.sim.libraries.nccl.files.log_lines import PREFIX, Cell, LoggedOperation, Reader, Session

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
