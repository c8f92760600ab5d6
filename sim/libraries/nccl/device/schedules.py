"""NCCL's algorithms as schedules of slices of chunks on channels.

Every channel carries a part of its own, over a ring or a tree of its own. A ring passes chunks in loops, one
chunk per rank and loop, each sent as one or two slices; trees, broadcast and reduce pass chunks down a
pipeline; `switched` and `pat` have the others. Within a channel a rank sends in program order, so a loop's
first chunk waits for the last one of the loop before (src/device/all_reduce.h, all_gather.h,
reduce_scatter.h, broadcast.h, reduce.h and src/enqueue.cc, v2.30.7).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import zip_longest

import numpy as np
from numpy.typing import NDArray

from ringside.sim.algorithms.trees.tree import waves
from ringside.sim.collective import Collective
from ringside.sim.effort import consider_chunks
from ringside.sim.libraries.nccl.chunks import Chunking, all_reduce_loops, channel_bytes, chunking
from ringside.sim.libraries.nccl.communicator import Communicator
from ringside.sim.libraries.nccl.device import pat, switched
from ringside.sim.libraries.nccl.device.connect import heads, rings, trees
from ringside.sim.libraries.nccl.device.pat import aggregated
from ringside.sim.libraries.nccl.device.switched import HEADED, switches
from ringside.sim.libraries.nccl.names import ALGORITHMS_OF, PROTOCOLS, PROTOCOLS_OF
from ringside.sim.libraries.nccl.tuner import check_function
from ringside.sim.schedule import Chunks, Schedule, Step, step
from ringside.topologies.names import one_of

Ints = NDArray[np.int64]

PIPELINED = ("broadcast", "reduce")
"""The collectives that use a ring as a line, from or to the root."""

_GATHERED = ("all_gather", "reduce_scatter")


@dataclass(frozen=True, eq=False, slots=True)
class ChannelPart:
    """One channel's part: ``pieces`` holds the bytes of its slices in memory order.

    The pieces are of one block, cut by ``cuts``; ``loops`` chunks make them up, or, in an all-reduce
    of a ring or over heads, that number for every rank or head.
    """

    channel: int
    loops: int
    pieces: Ints
    cuts: Chunking


def schedule(comm: Communicator, collective: Collective, algorithm: str, protocol: str) -> Schedule:
    """Return all channels of one collective."""
    check_schedulable(comm, collective, algorithm, protocol)
    carried = dict(enumerate(carried_bytes(comm, collective, algorithm, protocol)))
    return _schedule(comm, collective, algorithm, protocol, carried, len(carried))


def channel_schedule(
    comm: Communicator, collective: Collective, algorithm: str, protocol: str, *channels: int
) -> Schedule:
    """Return some channels' part of the collective, as a collective of its own: the bytes that they carry."""
    check_schedulable(comm, collective, algorithm, protocol)
    carried = carried_bytes(comm, collective, algorithm, protocol)
    some = {channel: carried[channel] for channel in channels}
    blocks = comm.ranks if collective.kind in _GATHERED else 1
    alone = replace(collective, nbytes=sum(some.values()) * blocks)
    return _schedule(comm, alone, algorithm, protocol, some, len(carried))


def carried_bytes(
    comm: Communicator, collective: Collective, algorithm: str, protocol: str
) -> tuple[int, ...]:
    """Return the bytes of one block on each channel in use; without any, one channel carries none."""
    blocks = comm.ranks if collective.kind in _GATHERED else 1
    nbytes = collective.nbytes // collective.itemsize // blocks * collective.itemsize * blocks
    return channel_bytes(comm, collective.kind, algorithm, protocol, nbytes, collective.itemsize) or (0,)


def check_schedulable(comm: Communicator, collective: Collective, algorithm: str, protocol: str) -> None:
    """Raise ValueError for a collective without a schedule."""
    check_function(collective.kind)
    able = ALGORITHMS_OF[collective.kind]
    if algorithm not in able:
        raise ValueError(f"NCCL has no {algorithm} {collective.kind}; write one of {', '.join(able)}")
    if protocol not in PROTOCOLS:
        raise ValueError(f"unknown NCCL protocol {protocol!r}; write {one_of(PROTOCOLS, protocol)}")
    if protocol not in PROTOCOLS_OF[algorithm]:
        raise ValueError(f"NCCL's {algorithm} has no {protocol}; write {', '.join(PROTOCOLS_OF[algorithm])}")
    if collective.ranks != comm.ranks:
        raise ValueError(
            f"a collective of {collective.ranks} ranks on {comm.nodes} nodes x {comm.gpus} GPUs = "
            f"{comm.ranks} ranks; write the communicator's number of ranks"
        )
    lacking = _lacking(comm, collective.kind, algorithm)
    if lacking:
        raise ValueError(f"NCCL's {algorithm} {collective.kind} {lacking}; write another --algorithm")


def _lacking(comm: Communicator, kind: str, algorithm: str) -> str:
    """Return the reason why an algorithm has no schedule on these machines, if so."""
    if algorithm not in comm.usable:
        if algorithm.startswith("nvls"):
            return "needs NVSwitch, 2 GPUs a node of Hopper or later, a rank on each, and NCCL_NVLS_ENABLE"
        return f"needs a network that adds: NCCL_COLLNET_ENABLE=1, on {max(2, comm.nodes)} nodes or more"
    match algorithm:
        case "pat" if comm.gpus > 1:
            return f"needs nodes of one rank, but these have {comm.gpus}"
        case "nvls_tree" if comm.nodes == 1:
            return "is a tree of nodes, but there is one node"
        case "nvls" if comm.nodes > 1 and not comm.collnet:
            return "on several nodes needs a network that adds, NCCL_COLLNET_ENABLE=1"
        case "nvls" | "collnet_direct" if kind != "all_reduce" and comm.gpus > len(heads(comm, algorithm)):
            return f"needs a head for every GPU, but has {len(heads(comm, algorithm))} for {comm.gpus}"
        case "collnet_direct" if not comm.system.nvswitch:
            return "needs NVSwitch"
    return ""


def _schedule(
    comm: Communicator,
    collective: Collective,
    algorithm: str,
    protocol: str,
    carried: Mapping[int, int],
    used: int,
) -> Schedule:
    """Return some channels of a collective that uses ``used`` in all."""
    cuts = {
        nbytes: cutting(comm, collective.kind, algorithm, protocol, nbytes, used)
        for nbytes in set(carried.values())
    }
    parts = [
        _part(comm, collective, algorithm, channel, nbytes, cuts[nbytes])
        for channel, nbytes in carried.items()
    ]
    firsts = np.cumsum([0, *(len(part.pieces) for part in parts)])
    makers = [
        _steps(comm, collective, algorithm, part, int(first), int(firsts[-1]))
        for part, first in zip(parts, firsts[:-1], strict=True)
    ]

    def steps() -> Iterator[Step]:
        return _together([make() for make in makers])

    credits = next(iter(cuts.values())).credits
    if algorithm == "pat":
        credits *= max(aggregated(comm.ranks, nbytes, cut)[0] for nbytes, cut in cuts.items())
    elif algorithm.startswith("nvls"):
        # all heads' chunks share a connection to the switch; data handed out again delay sums
        number = len(heads(comm, algorithm))
        credits = max(credits, number) if collective.kind == "all_reduce" else credits * number
    between = () if algorithm in ("ring", "tree", "pat") else switches(comm)
    return Schedule(collective, algorithm, _chunks(collective, parts), steps, credits, switches=between)


def _part(
    comm: Communicator, collective: Collective, algorithm: str, channel: int, nbytes: int, cuts: Chunking
) -> ChannelPart:
    consider_chunks(nbytes // cuts.chunk)
    if algorithm in ("ring", *HEADED) and collective.kind == "all_reduce":
        shares = comm.ranks if algorithm == "ring" else len(heads(comm, algorithm))
        loops = all_reduce_loops(nbytes, shares, cuts.chunk) or (0,)
        # one chunk per rank, or head; in the last loop the last ones may be short or empty
        ends = np.minimum(np.cumsum(np.repeat(loops, shares)), nbytes)
        chunks, num_loops = np.diff(ends, prepend=0), len(loops)
    else:
        chunks = np.array(even_pieces(nbytes, cuts.chunk))
        num_loops = len(chunks)
    return ChannelPart(channel, num_loops, _slices(chunks, cuts, collective.itemsize), cuts)


def cutting(comm: Communicator, kind: str, algorithm: str, protocol: str, nbytes: int, used: int) -> Chunking:
    """Return how a channel's ``nbytes`` of a block are cut; CollNet cuts by all ``used`` channels' bytes."""
    whole = nbytes * (comm.ranks if kind in _GATHERED else 1)
    if algorithm.startswith("collnet"):
        return chunking(comm, kind, algorithm, protocol, whole * used, used)
    return chunking(comm, kind, algorithm, protocol, whole)


def even_pieces(nbytes: int, size: int) -> list[int]:
    """Return ``nbytes`` in pieces of ``size``, the last with the rest; one empty piece for 0 bytes."""
    full, rest = divmod(nbytes, size)
    return [size] * full + ([rest] if rest or not full else [])


def _slices(chunks: Ints, cuts: Chunking, itemsize: int) -> Ints:
    """Return every chunk's slices, the last ones of small chunks empty."""
    sizes, which = np.unique(chunks, return_inverse=True)
    first = np.array([cuts.slice_bytes(int(chunk), itemsize) for chunk in sizes])
    ahead = np.arange(cuts.slices) * first[:, None]
    slices: Ints = np.clip(sizes[:, None] - ahead, 0, first[:, None])[which]
    return slices.ravel()


def _chunks(collective: Collective, parts: list[ChannelPart]) -> Chunks:
    """Return all blocks cut alike; elements that do not divide evenly lengthen a block's last piece."""
    pieces = np.concatenate([part.pieces for part in parts])
    blocks, elements = collective.num_blocks, collective.nbytes // collective.itemsize
    starts = [block * elements // blocks * collective.itemsize for block in range(blocks)]
    inside = np.cumsum(pieces) - pieces
    bounds = np.append((np.array(starts)[:, None] + inside).ravel(), collective.nbytes)
    block = np.repeat(np.arange(blocks), len(pieces))
    return Chunks(bounds.astype(np.int64), block)


def _steps(
    comm: Communicator, collective: Collective, algorithm: str, part: ChannelPart, first: int, per_block: int
) -> Callable[[], Iterator[Step]]:
    """Return a function that makes one channel's steps; its pieces begin at ``first`` of ``per_block``."""
    if algorithm == "ring" and collective.kind not in PIPELINED:
        order = _from_rank(rings(comm)[part.channel], 0)
        return lambda: _loops(collective.kind, order, part, first, per_block)
    count = len(part.pieces)
    if algorithm == "pat":
        parts = aggregated(comm.ranks, int(part.pieces.sum()), part.cuts)[1]
        return lambda: pat.loops(comm.ranks, collective.kind, parts, part.channel, count, first, per_block)
    if algorithm != "tree" and algorithm != "ring":
        return lambda: switched.loops(comm, collective.kind, algorithm, part.channel, count, first, per_block)
    own = range(first, first + count)
    parent = pipeline(comm, collective, algorithm, part.channel)
    up, down = collective.kind != "broadcast", collective.kind != "reduce"
    return lambda: waves(parent, own, up=up, down=down, channel=part.channel)


def pipeline(comm: Communicator, collective: Collective, algorithm: str, channel: int) -> Ints:
    """Return each rank's parent, -1 at the root, in a channel's tree, or in the line cut from its ring."""
    if algorithm == "tree":
        return trees(comm)[channel].parent
    order = _from_rank(rings(comm)[channel], collective.root)
    # away from the root, or towards it
    order = order[::-1] if collective.kind == "broadcast" else np.roll(order, -1)
    parent = np.full(comm.ranks, -1, dtype=np.int64)
    parent[order[:-1]] = order[1:]
    return parent


def _from_rank(ring: Ints, rank: int) -> Ints:
    return np.roll(ring, -int(np.flatnonzero(ring == rank)[0]))


def _loops(kind: str, ring: Ints, part: ChannelPart, first: int, per_block: int) -> Iterator[Step]:
    """Yield a ring's loops, one after another; in each, ranks pass chunk after chunk to their successors."""
    ranks = len(ring)
    place, successor = np.arange(ranks), np.roll(ring, -1)
    slices = np.arange(part.cuts.slices)
    src, dst = np.repeat(ring, part.cuts.slices), np.repeat(successor, part.cuts.slices)
    reducing = 0 if kind == "all_gather" else ranks - 1
    for loop in range(part.loops):
        for turn in range(2 * (ranks - 1) if kind == "all_reduce" else ranks - 1):
            passed = (place - turn - (kind != "all_gather")) % ranks
            if kind == "all_reduce":
                chunk = first + (loop * ranks + passed) * part.cuts.slices
            else:
                chunk = ring[passed] * per_block + first + loop * part.cuts.slices
            pieces = (chunk[:, None] + slices).ravel()
            yield step(src, dst, pieces, reduce=turn < reducing, channel=part.channel)


def _together(channels: list[Iterator[Step]]) -> Iterator[Step]:
    """Yield channels concurrently: the n-th steps of all as one step."""
    for steps in zip_longest(*channels):
        moved = [step for step in steps if step is not None]
        fields = ("src", "dst", "chunk", "span", "channel", "reduce")
        yield Step(*(np.concatenate([getattr(step, field) for step in moved]) for field in fields))
