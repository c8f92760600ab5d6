"""all_to_all, gather, scatter and sendrecv as schedules: NCCL's sends and receives, cut and put on channels.

Ranks meet their peers in rounds: in each a rank sends to the one a given number of nodes and of local ranks
ahead of it, node after node; the numbers are triangular, and occur once each below a power of two. A
message is cut into parts, one per channel, whose number keeps them neither tiny nor
large; a part goes in chunks. Eight rounds share a set of channels, and sets are used in turn, so
with very many peers a rank delays a message until that of an earlier batch on the same
channels has arrived (src/enqueue.cc and src/init.cc, v2.30.7).
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ringside.sim.collective import Collective
from ringside.sim.effort import consider_chunks
from ringside.sim.libraries.nccl.chunks import STEPS
from ringside.sim.libraries.nccl.communicator import Communicator
from ringside.sim.libraries.nccl.device.p2p import (
    PEERS_PER_BATCH,
    PointToPoint,
    all_channels,
    part_size,
    point_to_point,
)
from ringside.sim.libraries.nccl.device.schedules import even_pieces
from ringside.sim.schedule import Chunks, Schedule, Step, even_chunks, step

Ints = NDArray[np.int64]


def p2p_schedule(comm: Communicator, collective: Collective) -> Schedule:
    """Return all messages of a point-to-point collective."""
    if collective.ranks != comm.ranks:
        raise ValueError(
            f"a collective of {collective.ranks} ranks on {comm.ranks}; write {comm.ranks} ranks"
        )
    way = point_to_point(comm, collective.kind, collective.nbytes, collective)
    chunks, first, channel = _cut(comm, collective, way)
    peers = rounds(comm)
    sets = max(all_channels(comm) // way.channels, 1)

    def steps() -> Iterator[Step]:
        for number, (nodes, locals_) in enumerate(peers):
            src, dst, block = _messages(collective, comm, nodes, locals_)
            if collective.splits is not None:  # a rank with no data for another sends nothing
                sends = np.diff(chunks.bounds[first])[block] > 0
                src, dst, block = src[sends], dst[sends], block[sends]
            many = np.diff(first)[block]
            pieces = np.repeat(first[block] - np.cumsum(many) + many, many) + np.arange(many.sum())
            channels = number // PEERS_PER_BATCH % sets * way.channels + channel[pieces]
            yield step(src.repeat(many), dst.repeat(many), pieces, channel=channels, reduce=False)

    return Schedule(collective, "p2p", chunks, steps, STEPS, _waits(comm, collective, peers, sets))


def _cut(comm: Communicator, collective: Collective, way: PointToPoint) -> tuple[Chunks, Ints, Ints]:
    """Return all chunks, each message's first chunk, and each chunk's channel among a message's own.

    Parts of one size are cut alike; one that is an element shorter lacks it at its end.
    """
    starts, itemsize = even_chunks(collective).bounds, collective.itemsize
    most = np.diff(starts)
    if collective.splits is None:
        elements = collective.space // itemsize
        most = np.full(len(most), -(-elements // len(most)) * itemsize)
    cuts = {}
    for nbytes in np.unique(most).tolist():
        parts = message_parts(comm, way, nbytes, itemsize)
        ends = np.cumsum([size for part in parts for size in part])
        cuts[nbytes] = ends, np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    counts = np.array([len(cuts[nbytes][0]) for nbytes in most.tolist()])
    consider_chunks(int(counts.sum()))
    first = np.append(0, np.cumsum(counts))
    inside = np.concatenate([cuts[nbytes][0] for nbytes in most.tolist()])
    ends = starts[:-1].repeat(counts) + np.minimum(inside, np.diff(starts).repeat(counts))
    chunks = Chunks(np.append(0, ends).astype(np.int64), np.repeat(np.arange(len(most)), counts))
    return chunks, first, np.concatenate([cuts[nbytes][1] for nbytes in most.tolist()])


def rounds(comm: Communicator) -> list[tuple[int, int]]:
    """Return the offsets in nodes and local ranks of a rank's peer in each round, except itself."""
    return [
        (nodes, local)
        for nodes in _triangular(comm.nodes)
        for local in _triangular(comm.gpus)
        if nodes or local
    ]


def message_parts(comm: Communicator, way: PointToPoint, nbytes: int, itemsize: int) -> list[list[int]]:
    """Return the chunks of each part of a message."""
    size = -(-part_size(comm, nbytes) // itemsize) * itemsize
    chunk = max(way.chunk // itemsize, 1) * itemsize
    return [even_pieces(part, chunk) for part in even_pieces(nbytes, max(size, itemsize))]


def _triangular(count: int) -> Iterator[int]:
    """Return 0, 1, 3, 6, 10, ... modulo the power of two that holds ``count``, those below ``count``."""
    power, number = 1 << (count - 1).bit_length(), 0
    for following in range(1, power + 1):
        if number < count:
            yield number
        number = (number + following) % power


def _messages(
    collective: Collective, comm: Communicator, nodes: int, locals_: int
) -> tuple[Ints, Ints, Ints]:
    """Return the senders, blocks and receivers of a round."""
    src = np.arange(comm.ranks)
    node, local = src // comm.gpus, src % comm.gpus
    dst = (node + nodes) % comm.nodes * comm.gpus + (local + locals_) % comm.gpus
    match collective.kind:
        case "all_to_all":
            return src, dst, src * comm.ranks + dst
        case "gather":
            sends, block = dst == collective.root, src
        case "scatter":
            sends, block = src == collective.root, dst
        case _:
            sends, block = dst == (src + 1) % comm.ranks, src
    return src[sends], dst[sends], block[sends]


def _waits(
    comm: Communicator, collective: Collective, peers: list[tuple[int, int]], sets: int
) -> dict[tuple[int, int], tuple[int, int]]:
    """Return the earlier message of its rank that each one waits for: the last batch's on its channels."""
    ahead = PEERS_PER_BATCH * sets
    waits = {}
    for early, late in zip(peers[:-ahead], peers[ahead:], strict=True):
        pairs = [_messages(collective, comm, *numbers)[:2] for numbers in (early, late)]
        before = dict(zip(*(column.tolist() for column in pairs[0]), strict=True))
        for src, dst in zip(*(column.tolist() for column in pairs[1]), strict=True):
            if src in before:
                waits[src, dst] = src, before[src]
    return waits
