"""How many channels and threads NCCL gives a collective, and which channels a small one really uses.

A channel is one thread block on each rank with its own rings and trees. Thread counts and
thresholds: src/graph/tuning.cc and src/enqueue.cc, v2.30.7.
"""

from sim.libraries.nccl.communicator import Communicator
from sim.libraries.nccl.graph.system import GB

MAX_THREADS = 640
WARP = 32

MIN_TRAFFIC = 32 * 1024
"""Bytes of traffic below which the scheduler does not open another channel."""


def max_threads(comm: Communicator, algorithm: str, protocol: str) -> int:
    """Threads of one channel before the size reduces them."""
    if algorithm not in ("ring", "tree") or protocol == "ll128":
        return MAX_THREADS
    ring = comm.graphs.ring
    slow = (algorithm, protocol) == ("ring", "simple") and ring.bw_intra * ring.channels <= 12 * GB
    return 256 if slow else 512


def launch(comm: Communicator, algorithm: str, protocol: str, nbytes: int) -> tuple[int, int]:
    """The most channels that a collective of ``nbytes`` may use, and the threads of each."""
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


def channel_bytes(
    comm: Communicator, kind: str, algorithm: str, protocol: str, nbytes: int, itemsize: int = 1
) -> tuple[int, ...]:
    """Bytes that each channel really carries, first channel first, for one collective alone.

    The bytes are of what NCCL counts: the whole buffer, or one rank's block for all_gather and
    reduce_scatter, whose ``nbytes`` is the total. Data are dealt in cells of 32 KiB of traffic, so
    that small messages use few channels.
    """
    whole = nbytes // comm.ranks if kind in ("all_gather", "reduce_scatter") else nbytes
    if not whole:
        return ()
    channels, _ = launch(comm, algorithm, protocol, nbytes)
    if algorithm in ("collnet_direct", "collnet_chain"):
        return _evenly(whole // itemsize, channels, itemsize)
    per_byte = _traffic_per_byte(kind, comm.ranks) * (4 if protocol == "ll" else 1)
    cell = _up(-(-MIN_TRAFFIC // per_byte), 16)
    share = _up(max(MIN_TRAFFIC, whole * per_byte) // channels, 16)
    cell_bytes = cell // itemsize * itemsize
    cells = -(-whole // cell)
    cells_each = min(cells, -(-share // (cell * per_byte)))
    limit = comm.nvls_channels if algorithm.startswith("nvls") else comm.channels
    counts = [count * cell_bytes for count in _dealt(cells, cells_each, limit)]
    counts[-1] -= cells * cell_bytes - whole
    return tuple(counts)


def _dealt(cells: int, each: int, limit: int) -> list[int]:
    """Cells of every channel: ``each``, the rest on the last, which takes more where channels run out."""
    full, rest = divmod(cells, each)
    if full + (rest > 0) <= limit:
        return [each] * full + [rest] * (rest > 0)
    if limit == 1:
        return [cells]
    middle, over = divmod(cells - each, limit - 1)
    return [each] + [middle] * (limit - 2) + [middle + over]


def _traffic_per_byte(kind: str, ranks: int) -> int:
    match kind:
        case "all_reduce":
            return 2
        case "all_gather" | "reduce_scatter":
            return ranks
        case _:
            return 1


def _thread_threshold(comm: Communicator, algorithm: str, protocol: str) -> int:
    """Bytes per thread below which NCCL takes fewer of them."""
    if algorithm.startswith("collnet"):
        return 512
    if protocol == "simple":
        return 64
    return 8 * comm.ranks if (algorithm, protocol) == ("ring", "ll") else 8


def _collnet_direct_channels(comm: Communicator, nbytes: int, threads: int, threshold: int) -> int:
    """Fewer channels in stairs 16, 8, 4, ..., each stair at half the threshold of the one above it."""
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


def _evenly(elements: int, channels: int, itemsize: int) -> tuple[int, ...]:
    each, rest = divmod(elements, channels)
    return tuple((each + (channel < rest)) * itemsize for channel in range(min(channels, elements)))


def _up(value: int, grain: int) -> int:
    return -(-value // grain) * grain
