"""How long NCCL's rings and trees take, in closed form; docs/model_nccl.md derives it.

Each wire carries its share of bandwidth and adds a latency to every message (see `wires` beside this);
what is left to count is how often a chunk waits for a wire, and how often for a latency.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from sim.collective import Collective
from sim.libraries.nccl.communicator import Communicator
from sim.libraries.nccl.device.chunks import Chunking, all_reduce_loops, chunking
from sim.libraries.nccl.device.connect import rings, trees
from sim.libraries.nccl.device.schedules import PIPELINED, check_schedulable, even_pieces
from sim.libraries.nccl.device.wires import Channel, Wire, channels

Seconds = float
Floats = NDArray[np.float64]


def closed_form(comm: Communicator, collective: Collective, algorithm: str, protocol: str) -> Seconds:
    """From the first byte sent to the last received, in seconds: that of the slowest channel."""
    check_schedulable(comm, collective, algorithm, protocol)
    kind, blocks = collective.kind, comm.ranks if collective.kind in ("all_gather", "reduce_scatter") else 1
    times = []
    for channel in channels(comm, collective, algorithm, protocol):
        cuts = chunking(comm, kind, algorithm, protocol, channel.nbytes * blocks)
        if algorithm == "tree":
            way = 2 * _up_the_tree(comm, channel, min(cuts.chunk, channel.nbytes))
            times.append(way + _behind(channel, cuts))
        elif kind in PIPELINED:
            way = _along_the_ring(comm, collective, channel, min(cuts.chunk, channel.nbytes))
            times.append(way + _behind(channel, cuts))
        else:
            times.append(_rotations(comm, kind, channel, cuts, collective.itemsize))
    return max(times)


def _rotations(comm: Communicator, kind: str, channel: Channel, cuts: Chunking, itemsize: int) -> Seconds:
    """Loop after loop, every wire carries a chunk a turn; latencies add up where slices do not hide them."""
    rate = min(wire.bandwidth for wire in (channel.inside, channel.between))
    turns, loops = comm.ranks - 1, even_pieces(channel.nbytes, cuts.chunk)
    if kind == "all_reduce":
        turns, loops = 2 * turns, [*all_reduce_loops(channel.nbytes, comm.ranks, cuts.chunk)] or [0]
    # a ring passes node after node, all alike
    latency = np.full(comm.gpus, channel.inside.latency)
    latency[-1] = channel.between.latency
    first = [min(cuts.slice_bytes(chunk, itemsize), chunk) for chunk in loops]
    hidden = [(chunk - ahead) / rate for chunk, ahead in zip(loops, first, strict=True)]
    before = _longest(latency - hidden[0], (len(loops) - 1) * (turns - 1))
    last = _longest(latency - hidden[-1], turns - 1, then=latency)
    free = turns * sum(loops) / rate + before + last
    return max(free, _credited(channel, turns * len(loops), sum(first) / len(first), hidden[-1], cuts))


def _credited(channel: Channel, chunks: int, ahead: float, hidden: Seconds, cuts: Chunking) -> Seconds:
    """How long a wire between nodes takes to pass ``chunks`` chunks where its credits hold it up, else 0.

    They do where a window of chunks comes sooner from inside the node than its first slice, of
    ``ahead`` bytes, is through. The chunks of the last window then follow each other as they come.
    """
    window = cuts.credits // cuts.slices
    through, come = _hop(channel.between, ahead), _hop(channel.inside, ahead)
    if through <= window * come:
        return 0.0
    return -(-chunks // window) * through + (chunks - 1) % window * come + hidden


def _longest(gain: Floats, hops: int, then: Floats | None = None) -> Seconds:
    """The most that up to ``hops`` neighbouring wires sum up to, and ``then`` the next; ``gain`` repeats."""
    period = len(gain)
    rounds = max(hops // period - 1, 0)
    if gain.sum() <= 0:
        hops, rounds = min(hops, period), 0
    left = hops - rounds * period
    place = (np.arange(period)[:, None] + np.arange(left + 1)) % period
    sums = np.cumsum(gain[place], axis=1) - gain[place]
    if then is not None:
        sums = sums + then[place]
    return float(rounds * gain.sum() + sums.max())


def _up_the_tree(comm: Communicator, channel: Channel, chunk: int) -> Seconds:
    """A chunk's way to the root from where it is longest."""
    inside, between = _hop(channel.inside, chunk), _hop(channel.between, chunk)
    return max(hops * inside + crossings * between for hops, crossings in _ways_up(comm, channel.number))


@lru_cache(maxsize=4096)
def _ways_up(comm: Communicator, number: int) -> frozenset[tuple[int, int]]:
    """How many hops inside nodes and between them any rank of a channel's tree is from the root."""
    parent = trees(comm)[number].parent
    crossing = parent // comm.gpus != np.arange(comm.ranks) // comm.gpus
    ways, rank = np.zeros((comm.ranks, 2), dtype=np.int64), np.arange(comm.ranks)
    while (below := parent[rank] >= 0).any():
        ways[:, 0] += below & ~crossing[rank]
        ways[:, 1] += below & crossing[rank]
        rank = np.where(below, parent[rank], rank)
    return frozenset((int(hops), int(crossings)) for hops, crossings in ways)


def _along_the_ring(comm: Communicator, collective: Collective, channel: Channel, chunk: int) -> Seconds:
    """A chunk's way over all wires but that by which a broadcast enters, and a reduce leaves, the root."""
    ring = rings(comm)[channel.number]
    place = int(np.flatnonzero(ring == collective.root)[0]) % comm.gpus
    spared = place == (0 if collective.kind == "broadcast" else comm.gpus - 1)
    crossings, hops = comm.nodes - spared, comm.ranks - 1
    return crossings * _hop(channel.between, chunk) + (hops - crossings) * _hop(channel.inside, chunk)


def _behind(channel: Channel, cuts: Chunking) -> Seconds:
    """What the chunks after the first add: the slower wire's time for them, or a wait for credits."""
    chunks = even_pieces(channel.nbytes, cuts.chunk)
    others = len(chunks) - 1
    if not others:
        return 0.0
    nbytes = sum(chunks[1:-1]) + chunks[-1]
    return max(
        max(nbytes / wire.bandwidth, others // cuts.credits * _hop(wire, chunks[0]))
        for wire in (channel.inside, channel.between)
    )


def _hop(wire: Wire, nbytes: float) -> Seconds:
    return wire.latency + nbytes / wire.bandwidth
