"""What NCCL writes about itself with NCCL_DEBUG=INFO, as data (2.8 to 2.30).

Read are: communicators and their channel counts (NCCL_DEBUG_SUBSYS INIT), rings and trees (INIT
and GRAPH), the tuner's tables and the choice of every collective (TUNING). One log may hold many
ranks and communicators; lines go to the communicator that their thread began last, and ranks of
several threads together by the communicator's id where the log has it, otherwise in the order in
which each rank joins communicators of one size. Lines that broke off, or that ranks wrote into one
another, are passed over and counted; everything else in a log is passed over.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from ringside.sim.libraries.nccl.files.log_lines import PREFIX, Cell, Operation, Reader, Session

_VERSION = re.compile(r"\bNCCL version (\d+\.\d+(?:\.\d+)?)")


@dataclass(slots=True)
class LoggedCommunicator:
    """What a log tells of one communicator; 0 and empty where it tells nothing.

    ``rings`` has by channel the ranks from rank 0 on, where the log has all of them; ``trees`` by
    channel and rank the rank above and the ranks below (-1: none); ``table`` the tuner's cells by
    collective, algorithm and protocol. ``version`` is the log's, ``collnet`` whether it asks for CollNet.
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
    collnet: bool = False


@dataclass(frozen=True, slots=True)
class Log:
    """A whole log; ``version`` is empty where it names none, ``skipped`` counts lines that are garbled."""

    version: str
    communicators: tuple[LoggedCommunicator, ...]
    operations: tuple[Operation, ...]
    skipped: int = 0


def parse_log(text: str) -> Log:
    """The log in a text; raise `ValueError` where no line of it is NCCL's."""
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
    """What the ranks of one communicator each told, in the order in which communicators began."""
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
    """Whether the ids are the same, or could be, and nobody of the same rank is there yet."""
    identities = {other.identity for other in group if other.identity}
    if session.identity and identities:
        return session.identity in identities
    shapes = {(other.ranks, other.nodes) for other in group if other.nodes}
    same = group[0].ranks == session.ranks and (
        not shapes or not session.nodes or (session.ranks, session.nodes) in shapes
    )
    return same and session.rank not in {other.rank for other in group}


def _joined(group: list[Session], reader: Reader, version: str) -> LoggedCommunicator:
    comm = LoggedCommunicator(version=version, collnet=reader.collnet)
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
    """Releases before 2.19 do not write how many nodes there are: as many as hosts, if every rank wrote."""
    hosts = {session.rank: session.host for session in group}
    if comm.ranks and set(hosts) == set(range(comm.ranks)):
        comm.nodes = len(set(hosts.values()))
        comm.gpus = list(hosts.values()).count(hosts[0])


def _piece_together(comm: LoggedCommunicator, channel: int, following: dict[int, int]) -> None:
    """A ring that was cut off, out of every rank's neighbours."""
    ring = [0]
    while ring[-1] in following and following[ring[-1]] not in ring:
        ring.append(following[ring[-1]])
    if len(ring) == comm.ranks:
        comm.rings.setdefault(channel, tuple(ring))
