"""Gloo, the library behind torch.distributed on CPUs: its collectives as torch 2.13 calls them.

From gloo's allreduce.cc, allgather.cc, broadcast.cc, reduce.cc, alltoall.cc and barrier.cc (commit 70dc3602,
2026-04-21). A receiver announces each receive to its sender, which holds the data back until then.
A collective posts its first receives as it begins, so its first message is delayed by one one-way
latency; later ones, as a rule, are not: see `ringside.sim.libraries.rules.RENDEZVOUS`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from math import inf

import numpy as np

from ringside.sim.algorithms.exchange import direct
from ringside.sim.collective import Collective
from ringside.sim.libraries import scheduled
from ringside.sim.libraries.library import Candidate
from ringside.sim.libraries.rules import GLOO, RENDEZVOUS
from ringside.sim.libraries.scheduled import Scheduled
from ringside.sim.schedule import Chunks, Ints, Schedule, Step, even_chunks, step
from ringside.sim.streams import TransferStreams
from ringside.topologies import Topology, ranks

MAX_SEGMENT = 1 << 20
"""Bytes of a segment; kMaxSegmentSize."""

IN_FLIGHT = 2
"""Segments of one rank in flight at once."""


def all_reduce(collective: Collective) -> Schedule:
    """Build the segmented ring: reduce-scatter, then all-gather, one segment at a time.

    Each rank's n-th of the data is cut into at least two segments of at most 1 MiB, two of them
    in flight at once; data flow to the rank before.
    """
    return _ring(collective, _segments(collective))


def reduce_scatter(collective: Collective) -> Schedule:
    """Build an all-reduce of everything, from which each rank keeps its part: twice the necessary bytes.

    Segments end where parts do; Gloo's, cut without regard to the parts, are at most some elements off.
    """
    plan = _ring(collective, even_chunks(collective, _per_rank(collective)))
    return replace(plan, algorithm="ring all-reduce")


def reduce(collective: Collective) -> Schedule:
    """Build the all-reduce's first half; then every rank sends its sum directly to the root."""
    ranks, per_rank = collective.ranks, _per_rank(collective)
    others = np.delete(np.arange(ranks), collective.root)

    def steps() -> Iterator[Step]:
        yield from _turning(ranks, per_rank, rounds=1)()
        for part in range(per_rank if len(others) else 0):
            yield step(others, collective.root, others * per_rank + part, reduce=False)

    return Schedule(collective, "ring", _segments(collective), steps, credits=IN_FLIGHT)


def all_gather(collective: Collective) -> Schedule:
    """Build a ring; every rank's part travels in two halves, both in flight at once."""
    ranks = collective.ranks
    rank = np.arange(ranks)

    def steps() -> Iterator[Step]:
        for s in range(ranks - 1):
            for half in range(2):
                yield step(rank, (rank + 1) % ranks, (rank - s) % ranks * 2 + half, reduce=False)

    return Schedule(collective, "ring", even_chunks(collective, 2), steps, credits=IN_FLIGHT)


def broadcast(collective: Collective) -> Schedule:
    """Build a binomial tree, the nearest rank first; every hop sends all data in one message.

    A rank posts all its messages at once, so they share its port and arrive together.
    """
    ranks, root = collective.ranks, collective.root

    def steps() -> Iterator[Step]:
        distance = 1
        while distance < ranks:
            sender = np.arange(min(distance, ranks - distance))
            yield step((sender + root) % ranks, (sender + distance + root) % ranks, 0, reduce=False)
            distance *= 2

    return Schedule(collective, "binomial_tree", even_chunks(collective), steps)


def all_to_all(collective: Collective, window: float = inf) -> Schedule:
    """Build direct sends between all ranks, all messages at once; the last rank begins last.

    A rank posts its i-th message before it announces the i-th receive (alltoall.cc), on the same socket for
    both directions of a pair. By the time the last one begins its peers have announced theirs, so its
    immediate messages precede its announcements, for which the first half of its peers wait. Messages within
    a socket's ``window`` are in the port at once, and an announcement leaves when all of them have; of larger
    ones, which take turns window by window, when that to the same peer has.
    """
    ranks = collective.ranks
    last, largest = _last_to_begin(collective)
    waiting = [(last + distance) % ranks for distance in range(1, ranks // 2 + 1)]
    after = {(peer, last): (last, (last - 1) % ranks if largest <= window else peer) for peer in waiting}
    return replace(direct.all_to_all(collective), algorithm="direct in turns", after=after)


def _last_to_begin(collective: Collective) -> tuple[int, float]:
    """Return the rank that begins an all-to-all last, and the bytes of its largest message.

    Of uneven parts it is who sends most, whose experts had most to compute.
    """
    if collective.splits is None:
        return collective.ranks - 1, collective.nbytes / collective.ranks
    sent = [[*row[:rank], *row[rank + 1 :]] for rank, row in enumerate(collective.splits)]
    last = max(range(collective.ranks), key=lambda rank: (sum(sent[rank]), rank))
    return last, max(sent[last], default=0) * collective.itemsize


def barrier_latencies(ranks: int) -> int:
    """Return a barrier's number of one-way latencies: ceil(log2 n) rounds of an announcement and a message.

    Dissemination: in round k every rank sends an empty message to the one 2**k further on.
    """
    return 2 * (ranks - 1).bit_length()


def _ring(collective: Collective, chunks: Chunks) -> Schedule:
    """Build n-1 rounds, then n-1 again, in which rank i passes the segments of a part to the rank before it.

    In the first round they are of the part of the rank after it, which the receiver adds; in each later
    round of the part after that.
    """
    ranks, per_rank = collective.ranks, _per_rank(collective)
    return Schedule(collective, "ring", chunks, _turning(ranks, per_rank, rounds=2), credits=IN_FLIGHT)


def _turning(ranks: int, per_rank: int, rounds: int) -> TransferStreams:
    rank, count = np.arange(ranks), (ranks - 1) * per_rank
    first = (rank + 1) % ranks * per_rank
    return TransferStreams.of(
        rank, (rank - 1) % ranks, first=first, count=rounds * count, sums=count, chunks=ranks * per_rank
    )


def _per_rank(collective: Collective) -> int:
    """Return the segments of each rank's n-th."""
    segments = max(-(-collective.nbytes // MAX_SEGMENT), 2 * collective.ranks)
    return -(-segments // collective.ranks)


def _segments(collective: Collective) -> Chunks:
    """Return segments of one size, in whole elements; the last ones are shorter, or empty."""
    segments = _per_rank(collective) * collective.ranks
    size = -(-collective.nbytes // (segments * collective.itemsize)) * collective.itemsize

    def cut() -> tuple[Ints, Ints]:
        bounds = np.minimum(np.arange(segments + 1) * size, collective.nbytes)
        return bounds, np.zeros(segments, dtype=np.int64)

    return Chunks.later(segments, cut)


def startup_s(collective: Collective, graph: Topology, latency: float) -> float:
    """Return the seconds before a collective's first message leaves, on ranks that begin at different times.

    All-gather sends before it announces a receive (allgather.cc): where the successor has already
    announced, the announcement queues behind half a part. Of two ranks the successor is also who waits for
    it, on the socket that has the half part before it (`Pair::send` of tcp/pair.cc); of more it waits on
    another one, so at most a window at the same port is ahead.
    It queues after the whole message where more than two ranks each send to the next.
    """
    if collective.ranks == 1:
        return 0.0
    if collective.kind == "all_gather":
        first = collective.nbytes / (2 * collective.ranks)
    elif collective.kind == "sendrecv" and collective.ranks > 2:
        first = float(collective.nbytes)
    else:
        return RENDEZVOUS * latency
    ports = (link["bandwidth"] for rank in ranks(graph) for _, _, link in graph.out_edges(rank, data=True))
    slowest: float = min(ports)
    ahead: float = first if collective.ranks == 2 else min(first, graph.graph.get("window", first))
    return RENDEZVOUS * latency + ahead / slowest


BUILDS = {
    "all_reduce": all_reduce,
    "reduce_scatter": reduce_scatter,
    "reduce": reduce,
    "all_gather": all_gather,
    "broadcast": broadcast,
    "all_to_all": all_to_all,
    "gather": direct.gather,
    "scatter": direct.scatter,
    "sendrecv": direct.sendrecv,
}
"""Gather and scatter are one message from each rank, or to each (gather.cc, scatter.cc); sendrecv is
torch.distributed's own."""


def schedule(collective: Collective, algorithm: str = "auto", window: float = inf) -> Schedule:
    """Return the library's own schedule over sockets of this window; a ring may be requested by name."""
    if collective.kind not in BUILDS or algorithm not in ("auto", "ring"):
        raise ValueError(
            f"no model of {algorithm} {collective.kind} in gloo; it has {', '.join(BUILDS)} "
            f"with --algorithm auto"
        )
    if collective.kind == "all_to_all":
        return all_to_all(collective, window)
    return BUILDS[collective.kind](collective)


def beside(collective: Collective, algorithm: str, placed: Sequence[int]) -> Schedule:
    """Return a collective's schedule beside others; it is the same on any machines."""
    return schedule(collective, algorithm)


class Gloo(Scheduled):
    """Gloo, with one algorithm for each collective."""

    name = "gloo"
    announces = True
    workers = GLOO.workers

    def candidates(self, collective: Collective) -> Sequence[Candidate]:
        """Return the single candidate."""
        return [Candidate(self.algorithm)]

    def choose(self, collective: Collective) -> Candidate:
        """Return the single candidate."""
        return Candidate(self.algorithm)

    def schedule(self, collective: Collective, candidate: Candidate) -> Schedule:
        """Return the library's own schedule, over the topology's sockets."""
        return schedule(collective, candidate.algorithm, self.graph.graph.get("window", inf))

    def launch_s(self, collective: Collective) -> float:
        """Return the seconds before the first message can leave: see `startup_s`."""
        return startup_s(collective, self.graph, self._preset.alpha)

    def barrier_s(self) -> float:
        """Return the seconds of its rounds of empty messages: see `barrier_latencies`."""
        return barrier_latencies(self.ranks) * self._preset.alpha


algorithms = ("auto",)
bind, build = partial(scheduled.bind, Gloo), schedule
