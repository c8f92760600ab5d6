"""NCCL's choice: the algorithm and protocol whose predicted time is least (src/enqueue.cc, v2.30.7).

    time_us = latency * q + nbytes / bandwidth

q is 1 unless several collectives are queued in one group. The predicted times are NCCL's estimates,
in microseconds (`CostTable.times_us`), not measurements. The pair determines how many channels a
collective may use, and how many threads each has: a channel is one thread block on each rank with its own
rings and trees. Thread counts and thresholds: src/graph/tuning.cc and src/enqueue.cc, v2.30.7.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ringside.sim.libraries.nccl.communicator import Communicator
from ringside.sim.libraries.nccl.figures import bandwidth, latency_us
from ringside.sim.libraries.nccl.graph.graph import PathClass
from ringside.sim.libraries.nccl.graph.system import GB
from ringside.sim.libraries.nccl.names import ALGORITHMS, ALGORITHMS_OF, FUNCTIONS, PROTOCOLS, PROTOCOLS_OF
from ringside.sim.libraries.nccl.pins import Pins

Floats = NDArray[np.float64]

_RING, _TREE, _NVLS_TREE = (list(ALGORITHMS).index(name) for name in ("ring", "tree", "nvls_tree"))
_SIMPLE = list(PROTOCOLS).index("simple")

MAX_THREADS = 640
WARP = 32

MAX_COLLNET_GPUS = 8
MAX_NVLS_GPUS = 32

_SCALED = frozenset({"avg", "mulsum"})
"""Reductions that multiply or divide as well: ncclAvg and pre-multiplied sums (nccl-tests' ``mulsum``)."""

_NVLS_REDOPS = {
    **dict.fromkeys(
        ("int32", "uint32", "int64", "uint64", "float16", "bfloat16"), frozenset({"sum", "min", "max"})
    ),
    **dict.fromkeys(("float32", "float64"), frozenset({"sum"})),
}
"""Types that NVSwitch can reduce, under torch's names."""

DISABLED = np.inf
"""The time of unavailable pairs (NCCL writes -1)."""


DOUBTFUL = 1.3
"""How many times the least estimate another may be, so that it may be what runs.

Between 64 KiB and 4 MiB several sites change protocol at smaller sizes than the tuner of their release.
"""


@dataclass(frozen=True, slots=True)
class Choice:
    """NCCL's choice for one collective: at most ``channels`` channels of ``threads`` threads each.

    ``rivals`` are the pairs whose estimates are at most `DOUBTFUL` times the least.
    """

    algorithm: str
    protocol: str
    time_us: float
    channels: int
    threads: int
    rivals: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, eq=False, slots=True)
class CostTable:
    """The tuner's table for one collective: rows in the order of `ALGORITHMS`, columns of `PROTOCOLS`.

    ``latency_us`` and ``bandwidth`` (bytes/s, 0 if disabled) are the values that NCCL prints if
    NCCL_DEBUG_SUBSYS includes TUNING.
    """

    comm: Communicator
    kind: str
    dtype: str
    redop: str
    latency_us: Floats
    bandwidth: Floats

    def times_us(self, nbytes: ArrayLike, queued: int = 1) -> Floats:
        """Return predicted microseconds, infinite if unavailable; sizes x algorithms x protocols.

        ``nbytes`` is as in nccl-tests: the total for all_gather and reduce_scatter. ``queued``
        collectives of this size wait in one group.
        """
        sizes = np.asarray(nbytes, dtype=np.int64)
        rate = self.bandwidth * _corrections(self.comm, self.kind, sizes)
        latency = np.broadcast_to(self.latency_us, rate.shape).copy()
        if self.kind == "all_reduce" and self.comm.nodes > 1:
            factor = self.comm.constants.plateau[self.comm.system.compute_capability >= 80]
            latency[..., _RING, _SIMPLE] *= np.where(_on_plateau(self.comm, sizes), factor, 1.0)
        operations = -(-queued // self.comm.channels)
        repeats = np.full((len(ALGORITHMS), 1), -(-operations // 8))
        repeats[_RING] = operations
        moving = np.divide(sizes[..., None, None], rate, out=np.full(rate.shape, DISABLED), where=rate > 0)
        times = latency * repeats + moving * 1e6
        if self.dtype.startswith("float8") and self.comm.ranks > 8:
            times[..., _RING, :] *= 1024  # so long a chain of float8 sums loses too much precision
        return np.asarray(times, dtype=np.float64)

    def rate(self, algorithm: str, protocol: str) -> float:
        """Return the bytes/s of one pair, 0 if disabled."""
        return float(self.bandwidth[list(ALGORITHMS).index(algorithm), list(PROTOCOLS).index(protocol)])

    def pairs(self, sizes: Sequence[int]) -> list[tuple[str, str]]:
        """Return NCCL's choice at each size: algorithm and protocol."""
        times = self.times_us(np.array(sizes, dtype=np.int64)).reshape(len(sizes), -1)
        if len(sizes) and np.isinf(times.min(axis=1)).any():
            raise ValueError(self._refusal())
        names = [(algorithm, protocol) for algorithm in ALGORITHMS for protocol in PROTOCOLS]
        return [names[place] for place in times.argmin(axis=1)]

    def jumps(self, most: int) -> list[int]:
        """Return sizes below ``most`` at which a time may jump; between them times are linear."""
        steps = [1 << power for power in range(6, most.bit_length()) if 1 << power < most]
        ranks = self.comm.ranks
        by_ranks = self.comm.constants.plateau_by_ranks
        return sorted({*steps, ranks * 4096 if by_ranks else 64 * self.comm.channels * ranks})

    def choose(self, nbytes: int, queued: int = 1) -> Choice:
        """Return the pair with the least time; among equals the earlier row, then the earlier column."""
        times = self.times_us(nbytes, queued)
        row, column = divmod(int(times.argmin()), len(PROTOCOLS))
        if times[row, column] == DISABLED:
            raise ValueError(self._refusal())
        algorithm, protocol = list(ALGORITHMS)[row], list(PROTOCOLS)[column]
        channels, threads = launch(self.comm, algorithm, protocol, nbytes)
        close = np.argwhere(times <= DOUBTFUL * times[row, column]).tolist()
        rivals = tuple((list(ALGORITHMS)[a], list(PROTOCOLS)[p]) for a, p in close if (a, p) != (row, column))
        return Choice(algorithm, protocol, float(times[row, column]), channels, threads, rivals)

    def _refusal(self) -> str:
        free = replace(self.comm, settings=replace(self.comm.settings, pins=Pins()))
        table = cost_table(free, self.kind, self.dtype, self.redop)
        names, protocols = list(ALGORITHMS.values()), list(PROTOCOLS.values())
        possible = [f"{names[row]}/{protocols[column]}" for row, column in np.argwhere(table.bandwidth > 0)]
        return self.comm.settings.pins.refusal(self.kind, self.dtype, possible)


@lru_cache(maxsize=4096)
def cost_table(comm: Communicator, kind: str, dtype: str = "float32", redop: str = "sum") -> CostTable:
    """Return the tuner's table for one collective; ``dtype`` is torch's name, ``redop`` nccl-tests'."""
    check_function(kind)
    shape = len(ALGORITHMS), len(PROTOCOLS)
    latency, rate = np.zeros(shape), np.zeros(shape)
    for row, algorithm in enumerate(ALGORITHMS):
        for column, protocol in enumerate(PROTOCOLS):
            if enabled(comm, kind, algorithm, protocol, dtype, redop):
                latency[row, column] = latency_us(comm, kind, algorithm, protocol)
                rate[row, column] = bandwidth(comm, kind, algorithm, protocol)
    return CostTable(comm, kind, dtype, redop, latency, rate)


def check_function(kind: str) -> None:
    """Raise ValueError for a collective that NCCL's tuner does not know."""
    if kind not in FUNCTIONS:
        raise ValueError(
            f"{kind!r} is not in NCCL's tuner, which knows {', '.join(FUNCTIONS)}; "
            "all_to_all, gather, scatter and sendrecv are sends and receives"
        )


def enabled(comm: Communicator, kind: str, algorithm: str, protocol: str, dtype: str, redop: str) -> bool:
    """Return whether NCCL considers this pair (src/graph/tuning.cc and src/enqueue.cc, v2.30.7)."""
    if algorithm not in ALGORITHMS_OF[kind] or protocol not in PROTOCOLS_OF[algorithm]:
        return False
    if algorithm not in comm.constants.algorithms:
        return False
    pins = comm.settings.pins
    if algorithm not in pins.algorithms[kind]:
        return False
    pinned = pins.protocols.get(kind)
    if pinned is not None and protocol not in pinned:
        return False
    if protocol == "ll128" and pinned is None and not _ll128_is_safe(comm, algorithm):
        return False
    match algorithm:
        case "pat":
            return _pat(comm, kind, redop)
        case "nvls" | "nvls_tree":
            return _nvls(comm, kind, algorithm, dtype, redop)
        case "collnet_direct" | "collnet_chain":
            return _collnet(comm, kind, algorithm)
        case _:
            return True


def max_threads(comm: Communicator, algorithm: str, protocol: str) -> int:
    """Return the threads of one channel before the size reduces them."""
    if algorithm not in ("ring", "tree") or protocol == "ll128":
        return MAX_THREADS
    ring = comm.graphs.ring
    slow = (algorithm, protocol) == ("ring", "simple") and ring.bw_intra * ring.channels <= 12 * GB
    return 256 if slow else 512


def launch(comm: Communicator, algorithm: str, protocol: str, nbytes: int) -> tuple[int, int]:
    """Return the maximum channels of a collective of ``nbytes``, and the threads of each."""
    threads = max_threads(comm, algorithm, protocol)
    if algorithm == "nvls_tree" or (algorithm == "nvls" and comm.nodes == 1):
        return comm.nvls_channels, threads
    if algorithm == "nvls":
        return min(comm.nvls_channels, comm.channels), threads
    if algorithm == "pat":  # NCCL never sets the thread count by which it would take fewer channels
        return comm.channels, threads
    threshold = _thread_threshold(comm, algorithm, protocol)
    if algorithm == "collnet_direct":
        return _collnet_direct_channels(comm, nbytes, threads, threshold), threads
    channels = max(1, min(comm.channels, nbytes // (threads * threshold)))
    while nbytes < channels * threads * threshold and threads % 128 == 0:
        threads //= 2
    if algorithm == "tree":
        return channels, MAX_THREADS
    if protocol == "simple" and algorithm == "ring":
        threads += WARP
    return channels, max(threads, 3 * WARP)


def _ll128_is_safe(comm: Communicator, algorithm: str) -> bool:
    """Return whether every path keeps the order of 128-byte stores, which LL128 requires."""
    graph, capability = comm.usable.get(algorithm), comm.system.compute_capability
    worst = PathClass.PXN if capability >= 90 else PathClass.PXB
    known = comm.constants.ll128_capabilities
    return (
        graph is not None
        and (capability in known if known else capability >= 70)
        and graph.type_intra <= (PathClass.NVB if comm.constants.ll128_over_nvb else PathClass.NVL)
        and graph.type_inter <= worst
    )


def _pat(comm: Communicator, kind: str, redop: str) -> bool:
    if comm.system.compute_capability < 60 or (kind == "reduce_scatter" and redop in _SCALED):
        return False
    return comm.gpus == 1 if comm.settings.pat is None else comm.settings.pat


def _nvls(comm: Communicator, kind: str, algorithm: str, dtype: str, redop: str) -> bool:
    if kind != "all_gather" and redop not in _NVLS_REDOPS.get(dtype, frozenset()):
        return False
    if kind != "all_reduce" and comm.gpus > MAX_NVLS_GPUS:
        return False
    if algorithm == "nvls_tree":
        return comm.nodes > 1
    return comm.nodes == 1 or (comm.collnet and _heads_suffice(comm, kind))


def _collnet(comm: Communicator, kind: str, algorithm: str) -> bool:
    if not comm.collnet or comm.gpus > MAX_COLLNET_GPUS:
        return False
    return algorithm == "collnet_chain" or (comm.system.nvswitch and _heads_suffice(comm, kind))


def _heads_suffice(comm: Communicator, kind: str) -> bool:
    """Return whether there is a NIC per GPU, which gathers and scatters through the network need."""
    return kind == "all_reduce" or comm.gpus <= comm.collnet_heads


def _on_plateau(comm: Communicator, sizes: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return the sizes at which Simple rings over several nodes wait longer than their hops."""
    if comm.constants.plateau_by_ranks:
        return sizes >= comm.ranks / 16 * 65536
    return sizes // (comm.channels * comm.ranks) >= 64


def _corrections(comm: Communicator, kind: str, sizes: NDArray[np.int64]) -> Floats:
    """Return trees' share of their bandwidth at each size; 1 for all others."""
    factors = np.ones((*sizes.shape, len(ALGORITHMS), len(PROTOCOLS)))
    if kind != "all_reduce":
        return factors
    table = np.array([comm.constants.correction[protocol] for protocol in PROTOCOLS]).T
    step = np.frexp((sizes >> 6).astype(np.float64))[1] - 1
    inside = (step >= 0) & (step < len(table) - 1)
    factors[..., _TREE, :] = np.where(inside[..., None], table[np.where(inside, step, 0)], 1.0)
    blackwell = comm.system.compute_capability >= 100 and comm.system.cpu not in ("arm", "power")
    if blackwell and comm.constants.nvls_tree_corrected:
        inside = (step >= 0) & (step < len(table))
        factors[..., _NVLS_TREE, :] = np.where(inside[..., None], table[np.where(inside, step, 0)], 1.0)
    return factors


def _thread_threshold(comm: Communicator, algorithm: str, protocol: str) -> int:
    """Return the bytes per thread below which NCCL uses fewer threads."""
    if algorithm.startswith("collnet"):
        return 512
    if protocol == "simple":
        return 64
    return 8 * comm.ranks if (algorithm, protocol) == ("ring", "ll") else 8


def _collnet_direct_channels(comm: Communicator, nbytes: int, threads: int, threshold: int) -> int:
    """Return fewer channels in stairs 16, 8, 4, ..., each stair at half the threshold of the one above it."""
    channels, stair = comm.channels, 16
    while stair >= 1:
        while nbytes < channels * threads * comm.collnet_heads * threshold and channels > stair:
            if channels == stair + stair // 2:
                threshold //= 2
            channels -= 1
        if nbytes >= channels * threads * comm.collnet_heads * threshold:
            break
        stair //= 2
    return channels
