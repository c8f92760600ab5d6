"""Times of NCCL's rings, trees and NVLS, without playing every message; docs/model_nccl.md derives them.

Each wire carries its share of bandwidth and adds a latency to every message (see `wires`); the form
counts how often a chunk waits for a wire, for a slot, and for a latency.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from ringside.sim.collective import Collective
from ringside.sim.libraries.library import Candidate, Estimate
from ringside.sim.libraries.nccl.chunks import Chunking, all_reduce_loops, chunking
from ringside.sim.libraries.nccl.communicator import Communicator
from ringside.sim.libraries.nccl.device.connect import rings, shares, trees
from ringside.sim.libraries.nccl.device.fabric import shared
from ringside.sim.libraries.nccl.device.machine import nvls_port
from ringside.sim.libraries.nccl.device.plays import Channel, Wire, channels
from ringside.sim.libraries.nccl.device.schedules import (
    PIPELINED,
    carried_bytes,
    check_schedulable,
    cutting,
    even_pieces,
)
from ringside.sim.libraries.nccl.device.traffic import cable_bytes
from ringside.sim.libraries.nccl.figures import hop_us
from ringside.topologies.units import format_duration

Seconds = float
Floats = NDArray[np.float64]

_PRECISION = 13
"""Decimals of a second to which two states of a ring are treated as equal."""


def has_closed_form(comm: Communicator, kind: str, algorithm: str) -> bool:
    """Return whether a closed form exists: for rings, trees, and NVLS on one node with one crossing."""
    return algorithm in ("tree", "ring") or (algorithm, comm.nodes, kind == "all_reduce") == (
        "nvls",
        1,
        False,
    )


def closed_form(comm: Communicator, collective: Collective, algorithm: str, protocol: str) -> Seconds:
    """Return the seconds from the first byte sent to the last received, on the slowest channel."""
    check_schedulable(comm, collective, algorithm, protocol)
    if not has_closed_form(comm, collective.kind, algorithm):
        raise ValueError(
            f"NCCL's {algorithm} {collective.kind} on {comm.nodes} nodes has no closed form; "
            "write --engine simpy"
        )
    if algorithm == "nvls":
        return _through_the_switch(comm, collective)
    kind, blocks = collective.kind, comm.ranks if collective.kind in ("all_gather", "reduce_scatter") else 1
    times = []
    for channel in channels(comm, collective, algorithm, protocol):
        cuts = chunking(comm, kind, algorithm, protocol, channel.nbytes * blocks)
        if algorithm == "tree":
            times.append(_up_and_down(comm, channel, cuts))
        elif kind in PIPELINED:
            way = _along_the_ring(comm, collective, channel, min(cuts.chunk, channel.nbytes))
            times.append(way + _behind(channel, cuts))
        else:
            times.append(_around(comm, kind, channel, cuts, collective.itemsize))
    return max(times)


def added_by_fabric(comm: Communicator, collective: Collective, algorithm: str, protocol: str) -> Seconds:
    """Return the time that a fabric adds to ``ring``, ``tree`` or ``nvls_tree``, which ignore it.

    For rings and trees it is added to the closed form; NVLSTree sends between nodes what a tree does.
    """
    if algorithm in ("ring", "tree"):
        bare = replace(comm, network=None)
        with_it, without = (closed_form(one, collective, algorithm, protocol) for one in (comm, bare))
        return max(with_it - without, 0.0)
    carried = carried_bytes(comm, collective, algorithm, protocol)
    fabric, (_, card) = shared(comm, "tree", len(carried)), shares(comm, "tree", len(carried))
    climbs = 2 * (comm.nodes.bit_length() - 1)
    return max(carried) * max(1 / fabric.bandwidth - 1 / card, 0.0) + climbs * fabric.latency


def _around(comm: Communicator, kind: str, channel: Channel, cuts: Chunking, itemsize: int) -> Seconds:
    """Return the time of a ring's loops, one after another, each with one turn per chunk to forward."""
    ring = _Ring(comm, channel, cuts, itemsize)
    turns, loops = comm.ranks - 1, even_pieces(channel.nbytes, cuts.chunk)
    if kind == "all_reduce":
        turns, loops = 2 * turns, [*all_reduce_loops(channel.nbytes, comm.ranks, cuts.chunk)] or [0]
    for chunk in sorted(set(loops), reverse=True):
        ring.repeat(partial(ring.loop, chunk, turns), loops.count(chunk))
    return max(float(arrivals.max()) for arrivals in ring.flying)


class _Ring:
    """The sends of one node's ranks, turn after turn; all nodes of a ring act alike.

    ``flying`` has the arrivals of the last slices that occupy slots, an array of ranks each; ``free`` is when
    each rank's wire is free.
    """

    def __init__(self, comm: Communicator, channel: Channel, cuts: Chunking, itemsize: int) -> None:
        wires = (
            [channel.between] if comm.nodes == 1 else [channel.inside] * (comm.gpus - 1) + [channel.between]
        )
        self._rate = np.array([wire.bandwidth for wire in wires])
        self._latency = np.array([wire.latency for wire in wires])
        self._cuts, self._itemsize = cuts, itemsize
        self.free: Floats = np.zeros(len(wires))
        self.flying = deque([self.free] * cuts.credits, maxlen=cuts.credits)

    def loop(self, chunk: int, turns: int) -> None:
        """Send each rank's own chunk, then in each turn its predecessor's previous one."""
        ahead = min(self._cuts.slice_bytes(chunk, self._itemsize), chunk)
        parts = [ahead] + [chunk - ahead] * (self._cuts.slices - 1)
        self._turn(parts, own=True)
        self.repeat(partial(self._turn, parts, own=False), turns - 1)

    def _turn(self, parts: list[int], *, own: bool) -> None:
        came = [np.roll(self.flying[-place], 1) for place in range(len(parts), 0, -1)]
        for part, arrival in zip(parts, came, strict=True):
            start = np.maximum(self.free, self.flying[0])
            if not own:
                start = np.maximum(start, arrival)
            self.free = start + part / self._rate
            self.flying.append(self.free + self._latency)

    def repeat(self, act: Callable[[], None], times: int) -> None:
        """Repeat an action ``times`` times; extrapolate once every repetition adds the same time."""
        seen: dict[bytes, tuple[int, Seconds]] = {}
        done = 0
        while done < times:
            now = float(self.free[0])
            state = np.round(np.array([self.free, *self.flying]) - now, _PRECISION).tobytes()
            if state in seen:
                before, then = seen[state]
                skipped, left = divmod(times - done, done - before)
                self._wait(skipped * (now - then))
                for _ in range(left):
                    act()
                return
            seen[state] = done, now
            act()
            done += 1

    def _wait(self, seconds: Seconds) -> None:
        self.free = self.free + seconds
        for _ in range(len(self.flying)):
            self.flying.append(self.flying[0] + seconds)


def _up_and_down(comm: Communicator, channel: Channel, cuts: Chunking) -> Seconds:
    """Return the time up to the root and down: the first chunk's path and the pace of later ones.

    If a GPU's port serves both directions: the time to its first send, of twice the data, and of the
    remaining path.
    """
    chunk = min(cuts.chunk, channel.nbytes)
    parent = trees(comm)[channel.number].parent
    crossing = parent // comm.gpus != np.arange(comm.ranks) // comm.gpus
    hops = np.where(crossing, _hop(channel.between, chunk), _hop(channel.inside, chunk))
    below = _farthest_below(parent, hops)
    seconds = 2 * float(below.max()) + _behind(channel, cuts)
    if channel.port:
        child = np.flatnonzero((parent >= 0) & ~crossing)
        # those whose parent has a parent inside the node as well
        child = child[(parent[parent[child]] >= 0) & ~crossing[parent[child]]]
        waits = below[child] + below[parent[child]]
        port = channel.inside.latency + 2 * channel.nbytes / channel.inside.bandwidth
        seconds = max(seconds, float(waits.max()) + port)
    return seconds


def _through_the_switch(comm: Communicator, collective: Collective) -> Seconds:
    """Return the time of all blocks through one side of a GPU's port, and one chunk through the other."""
    kind, carried = collective.kind, carried_bytes(comm, collective, "nvls", "simple")
    rate = nvls_port(comm) / len(carried)
    blocks = comm.gpus - (kind == "all_gather")
    times = []
    for nbytes in set(carried):
        chunk = cutting(comm, kind, "nvls", "simple", nbytes, len(carried)).chunk
        times.append((blocks * nbytes + min(chunk, nbytes)) / rate)
    return max(times) + hop_us("nvlink", "nvls", "simple", comm) * 1e-6


def _farthest_below(parent: NDArray[np.int64], hops: Floats) -> Floats:
    """Return a chunk's time to each rank along its longest path, without its hop upwards."""
    child = np.flatnonzero(parent >= 0)
    below = np.zeros(len(parent))
    while True:
        raised = below.copy()
        np.maximum.at(raised, parent[child], below[child] + hops[child])
        if (raised == below).all():
            return below
        below = raised


def _along_the_ring(comm: Communicator, collective: Collective, channel: Channel, chunk: int) -> Seconds:
    """Return a chunk's time over all wires except that into a broadcast's root, or out of a reduce's."""
    ring = rings(comm)[channel.number]
    place = int(np.flatnonzero(ring == collective.root)[0]) % comm.gpus
    spared = place == (0 if collective.kind == "broadcast" else comm.gpus - 1)
    crossings, hops = comm.nodes - spared, comm.ranks - 1
    return crossings * _hop(channel.between, chunk) + (hops - crossings) * _hop(channel.inside, chunk)


def _behind(channel: Channel, cuts: Chunking) -> Seconds:
    """Return the time that later chunks add: the slower wire's for them, or a wait for credits."""
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


def on_fabric(
    comm: Communicator, collective: Collective, candidate: Candidate, alone: Estimate, *, played: bool = False
) -> Estimate:
    """Add a fabric's time to an estimate, and describe its bottleneck; the relative band stays the same.

    An estimate ``played`` over links includes the fabric's time.
    """
    algorithm, factor = candidate.algorithm, 1.0
    if algorithm in ("ring", "tree", "nvls_tree"):
        note = (
            f"fabric: {shared(comm, 'ring' if algorithm == 'ring' else 'tree', alone.channels).description}"
        )
        if not played or algorithm == "nvls_tree":
            more = added_by_fabric(comm, collective, algorithm, candidate.protocol)
            note += f"; it adds {format_duration(more, 4)} by closed form" if more else ""
            factor += more / alone.time_s
    elif cable_bytes(comm, collective, algorithm, candidate.protocol) is None:
        note = f"the time of {algorithm} excludes contention in the fabric's switches"
    else:
        note = ""
    caveat = "; ".join(filter(None, (alone.caveat, note)))
    time_s, low, high = (end * factor for end in (alone.time_s, alone.time_lo_s, alone.time_hi_s))
    return replace(alone, time_s=time_s, time_lo_s=low, time_hi_s=high, caveat=caveat)
