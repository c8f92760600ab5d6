"""Times of rounds of messages by MPI's point-to-point protocols, in closed form.

A message costs software overhead and the network's latency, which grows with every doubling of the distance
in ranks. Eager: bytes are copied on both sides and cross the wire. Rendezvous: sender and receiver first
agree in a round trip, then the wire takes bytes from buffer to buffer. The library takes the faster, so the
threshold is the round trip times the copy rate (LogGP: Alexandrov et al., SPAA 1995; the protocols: Open UCX,
documentation of UCX_RNDV_THRESH). Microseconds, bytes and GB/s.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ringside.sim.collective import Collective
from ringside.sim.libraries.mpi.rounds import ROUNDS, Round, Rounds

Floats = NDArray[np.float64]
Values = Mapping[str, float]
Way = tuple[str, str, str]
"""Collective, algorithm, and whether a rank is ``alone`` on its node or the node is ``shared``."""

MIB = 2.0**20
MAPPED = 32 * MIB
"""Bytes of blocks that malloc allocates from the system at every call (glibc, DEFAULT_MMAP_THRESHOLD_MAX)."""

FARTHEST = 5.0
"""Doublings of distance beyond which latency is constant: the network's diameter limits the hops."""

PROTOCOLS = ("auto", "eager", "rendezvous")


@dataclass(frozen=True, slots=True)
class NodePort:
    """The attachment of ranks to the network.

    ``rate`` is the rate of one rank's card, ``node_rate`` of all cards of its node, in GB/s; ``latency_us``
    is from node to node. ``per_node`` ranks share a node.
    """

    rate: float
    node_rate: float
    latency_us: float
    per_node: int = 1


@dataclass(frozen=True, slots=True)
class MpiTask:
    """A collective by one of its algorithms on ranks behind such ports."""

    collective: Collective
    algorithm: str
    port: NodePort


@dataclass(frozen=True, eq=False, slots=True)
class MpiTaskArrays:
    """Tasks as arrays: a column per round, with the number of its task, and a figure per task."""

    task: NDArray[np.int64]
    nbytes: Floats
    far: Floats
    times: Floats
    peers: Floats
    exchange: NDArray[np.bool_]
    queued: NDArray[np.bool_]
    inward: NDArray[np.bool_]
    added: Floats
    across: Floats
    wire: Floats
    latency: Floats
    size: Floats
    copied: Floats
    largest: Floats
    total: Floats
    touched: Floats
    ranks: Floats
    per_node: Floats
    message: Floats
    way: tuple[Way, ...]

    def __len__(self) -> int:
        return len(self.way)


def work_of(tasks: Sequence[MpiTask]) -> MpiTaskArrays:
    """Return the tasks as arrays."""
    forms = [_rounds(task.collective, task.algorithm) for task in tasks]
    rounds = [(place, task.port, one) for place, (task, parts) in enumerate(zip(tasks, forms, strict=True))
              for one in parts.rounds]  # fmt: skip
    across = np.array([_across(one.distance, one.exchange, port) for _, port, one in rounds])

    def column(figures: Sequence[float]) -> Floats:
        return np.array(figures, dtype=np.float64)

    rates = [max(1 / port.rate, part * port.per_node / port.node_rate)
             for (_, port, _), part in zip(rounds, across, strict=True)]  # fmt: skip
    return MpiTaskArrays(
        np.array([place for place, _, _ in rounds], dtype=np.int64),
        column([one.nbytes for _, _, one in rounds]),
        column([_far(one, port) for _, port, one in rounds]),
        column([one.times for _, _, one in rounds]),
        column([one.peers for _, _, one in rounds]),
        np.array([one.exchange for _, _, one in rounds], dtype=np.bool_),
        np.array([one.queued for _, _, one in rounds], dtype=np.bool_),
        np.array([one.inward for _, _, one in rounds], dtype=np.bool_),
        column([one.added for _, _, one in rounds]),
        across,
        column(rates) * 1e-3,
        column([port.latency_us for _, port, _ in rounds]),
        column([task.collective.nbytes for task in tasks]),
        column([parts.copied for parts in forms]),
        column([parts.scratch.largest for parts in forms]),
        column([parts.scratch.total for parts in forms]),
        column([parts.scratch.touched for parts in forms]),
        column([task.collective.ranks for task in tasks]),
        column([task.port.per_node for task in tasks]),
        column([max((one.nbytes for one in parts.rounds), default=0.0) for parts in forms]),
        tuple(
            (task.collective.kind, task.algorithm, "shared" if task.port.per_node > 1 else "alone")
            for task in tasks
        ),
    )


def _rounds(collective: Collective, algorithm: str) -> Rounds:
    """Return the rounds; none for a single rank."""
    return ROUNDS[collective.kind][algorithm](collective) if collective.ranks > 1 else Rounds(())


def _far(one: Round, port: NodePort) -> float:
    """Return the doublings of the distance in nodes; waits of consecutive rounds overlap."""
    if one.times > 1 or one.distance <= port.per_node:
        return 0.0
    return min(math.log2(one.distance / port.per_node), FARTHEST)


def _across(distance: int, exchange: bool, port: NodePort) -> float:
    """Return the share of a node's ranks with a partner on another node, for ranks in order."""
    if exchange:
        return float(distance >= port.per_node)
    return min(distance / port.per_node, 1.0)


def time_us(work: MpiTaskArrays, values: Values, protocol: str = "auto") -> Floats:
    """Return the microseconds of each task, by one of `PROTOCOLS`."""

    def summed(figures: Floats) -> Floats:
        return np.bincount(work.task, figures * work.times, minlength=len(work)).astype(np.float64)

    cold = 1 / (1 + (values["cache_MiB"] * MIB / np.maximum(work.size, 1.0)) ** 2)
    slowest = np.maximum(1 / values["cold_GBps"], work.per_node / values["memory_GBps"])
    a_byte = ((1 - cold) / values["warm_GBps"] + cold * slowest) * 1e-3
    allocated = (work.largest > MAPPED) | (
        (work.total > 1.9 * work.largest) & (work.largest >= values["kept_MiB"] * MIB)
    )
    fresh = np.where(allocated, work.touched, 0.0) / values["fresh_GBps"] * 1e-3
    messages = summed(messages_us(work, values, protocol))
    total: Floats = values["call_us"] + messages + (summed(work.added) + work.copied) * a_byte + fresh
    return total


def messages_us(work: MpiTaskArrays, values: Values, protocol: str = "auto") -> Floats:
    """Return the microseconds of each round, without repetitions."""
    far = work.far * values["far_us"]
    outside = values["overhead_us"] + work.latency + far
    latency = work.across * outside + (1 - work.across) * values["inside_us"]
    more = work.peers - 1
    wire = work.nbytes * work.wire / values["link"]
    inside = work.nbytes / values["inside_GBps"] * 1e-3
    wire = np.where(work.across > 0, wire, inside)
    copied = wire + work.nbytes / values["copy_GBps"] * 1e-3
    agreed = wire + values["handshake_us"] * np.where(work.exchange, 1.0, values["wait"])
    turns = np.maximum(work.nbytes - values["turns_MiB"] * MIB, 0.0) * work.wire / values["turns"]
    agreed = agreed + np.where(work.exchange & (work.across > 0), turns, 0.0)
    faster = np.minimum(copied, agreed)
    one = {"auto": faster, "eager": copied, "rendezvous": agreed}[protocol]
    a_peer = np.where(work.inward, values["take_us"], values["gap_us"])
    each = np.where(work.queued, faster, wire)
    total: Floats = latency + one + more * (a_peer + each)
    return total
