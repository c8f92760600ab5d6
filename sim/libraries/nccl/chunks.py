"""How NCCL distributes data over channels, and cuts each channel's part into chunks and slices.

Every connection has `STEPS` slots per protocol. A chunk fills one or several slots, a slice is one
message, and a sender is at most `STEPS` slots ahead of its receiver (src/include/device.h,
src/init.cc and src/enqueue.cc, v2.30.7).
"""

from dataclasses import dataclass

from ringside.sim.libraries.nccl.communicator import Communicator
from ringside.sim.libraries.nccl.graph.system import GB
from ringside.sim.libraries.nccl.tuner import cost_table, launch

KIB = 1024

STEPS = 8
"""Slots of one connection."""

SLOT_PAYLOAD = {"simple": 512 * KIB, "ll": 32 * KIB, "ll128": 576_000}
"""Data bytes per slot: of 4 MiB; of 512 KiB, half of it flags; of 4,915,200 B, 15/16 of it data."""

WIRE_EFFICIENCY = {"simple": 1.0, "ll": 0.5, "ll128": 0.9375}
"""Data bytes per byte that the link carries."""

MIN_TRAFFIC = 32 * KIB
"""Bytes of traffic below which the scheduler does not open another channel."""

_GRAIN = {"simple": 512, "ll": 16, "ll128": 1920}

NVLS_CHUNK = 128 * KIB


@dataclass(frozen=True, slots=True)
class Chunking:
    """How one channel's part of a collective is cut.

    ``chunk`` is the data bytes of a chunk, sent as ``slices`` messages; ``credits`` slices may be in
    flight on one connection; one pass over the algorithm moves ``loop`` bytes of the channel.
    """

    chunk: int
    slices: int
    credits: int
    loop: int

    def slice_bytes(self, nbytes: int, itemsize: int = 1) -> int:
        """Return the size of the messages that carry ``nbytes`` of a chunk: proportional, with a minimum."""
        group = 16 * self.slices * itemsize
        return max(-(-nbytes // group) * 16 * itemsize, self.chunk // self.slices // 32)


def chunking(
    comm: Communicator, kind: str, algorithm: str, protocol: str, nbytes: int, channels: int = 1
) -> Chunking:
    """Return how ``nbytes`` on ``channels`` channels are cut (one channel's part, except for CollNet).

    ``nbytes`` counts all ranks' blocks for all_gather and reduce_scatter.
    """
    pipelined = (algorithm, protocol) == ("ring", "simple") and kind not in ("broadcast", "reduce")
    slots, slices = (4, 2) if pipelined else (1, 1)
    chunk = SLOT_PAYLOAD[protocol] * slots
    match algorithm:
        case "tree" if protocol == "ll128":
            chunk = _tree_ll128(comm, nbytes // channels, chunk)
        case "tree" if protocol == "simple" and comm.constants.tree_by_depth:
            chunk = _tree_by_depth(comm, nbytes // channels, chunk)
        case "nvls":
            chunk = _nvls(comm, nbytes, channels)
        case "nvls_tree":
            chunk = _nvls_tree(comm, nbytes, channels)
        case "pat":
            factor = 32 if kind == "all_gather" else 16
            while chunk * channels * factor > nbytes and chunk > 64 * KIB:
                chunk //= 2
        case "collnet_direct":
            part = nbytes // (channels * max(comm.collnet_heads, 1))
            chunk = _halved(part, chunk, (2 * 64, 128 * KIB), (2 * 8, 64 * KIB), (2 * 8, 32 * KIB))
        case "collnet_chain":
            depth = comm.gpus
            part = nbytes // channels
            steps = (64 * depth, 128 * KIB), (8 * depth, 64 * KIB), (depth, 32 * KIB)
            chunk = _halved(part, min(256 * KIB, chunk), *steps)
    chunk = chunk // _GRAIN[protocol] * _GRAIN[protocol]
    return Chunking(chunk, slices, STEPS // (slots // slices), channels * _blocks(comm, algorithm) * chunk)


def all_reduce_loops(nbytes: int, ranks: int, chunk: int) -> tuple[int, ...]:
    """Return the chunk of each pass of a ring over ``nbytes``: full ones, and a last one for the rest.

    A pass moves one chunk per rank; the last one's is a multiple of 16 B (src/device/all_reduce.h).
    """
    full, rest = divmod(nbytes, ranks * chunk)
    return (chunk,) * full + ((-(-rest // (16 * ranks)) * 16,) if rest else ())


def channel_bytes(
    comm: Communicator, kind: str, algorithm: str, protocol: str, nbytes: int, itemsize: int = 1
) -> tuple[int, ...]:
    """Return the bytes that each channel carries, first channel first, for one collective alone.

    The bytes are as NCCL counts them: the whole buffer, or one rank's block for all_gather and
    reduce_scatter, whose ``nbytes`` is the total. Data are distributed in cells of 32 KiB of traffic, so
    small messages use few channels.
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


def _blocks(comm: Communicator, algorithm: str) -> int:
    match algorithm:
        case "ring":
            return comm.ranks
        case "nvls" | "nvls_tree":
            return _heads(comm)
        case "collnet_direct":
            return max(comm.collnet_heads, 1)
        case _:
            return 1


def _heads(comm: Communicator) -> int:
    graph = comm.usable.get("nvls")
    return graph.channels if graph else 1


def _tree_ll128(comm: Communicator, part: int, chunk: int) -> int:
    hops = comm.nodes.bit_length() + 0.1 * comm.gpus
    return _halved(part, chunk, (hops * 64 / comm.gpus, 128 * KIB), (hops * 16 / comm.gpus, 32 * KIB))


def _tree_by_depth(comm: Communicator, part: int, chunk: int) -> int:
    """Return the chunk size of releases up to v2.18, smaller for small data on deep trees."""
    depth = comm.gpus + comm.nodes.bit_length() - 1
    return _halved(part, chunk, (8 * depth, 128 * KIB), (4 * depth, 64 * KIB), (depth, 32 * KIB))


def _halved(part: int, chunk: int, *rules: tuple[float, int]) -> int:
    """Halve a chunk while ``part`` has fewer than ``few`` of them, down to a floor, for each rule in turn."""
    for few, floor in rules:
        while part // chunk < few and chunk > floor:
            chunk //= 2
    return chunk


def _nvls(comm: Communicator, nbytes: int, channels: int) -> int:
    chunk = NVLS_CHUNK
    if comm.nodes > 1 and cost_table(comm, "all_reduce").rate("nvls", "simple") < 150 * GB:
        chunk = 32 * KIB
    ladder = (64, 64 * KIB), (8, 32 * KIB), (2, 16 * KIB)
    return _stepped(nbytes, channels * _heads(comm), chunk, ladder)


def _nvls_tree(comm: Communicator, nbytes: int, channels: int) -> int:
    chunk = 64 * KIB if comm.nodes >= 4 else NVLS_CHUNK
    ladder = (32, 256 * KIB), (16, 128 * KIB), (4, 64 * KIB), (1, 32 * KIB)
    return _stepped(nbytes, channels * _heads(comm), chunk, ladder)


def _stepped(nbytes: int, parallel: int, chunk: int, ladder: tuple[tuple[int, int], ...]) -> int:
    for times, smaller in ladder:
        if nbytes < times * parallel * chunk and chunk > smaller:
            chunk = smaller
    return chunk


def _dealt(cells: int, each: int, limit: int) -> list[int]:
    """Return every channel's cells: ``each``, and the rest on the last channel."""
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


def _evenly(elements: int, channels: int, itemsize: int) -> tuple[int, ...]:
    each, rest = divmod(elements, channels)
    return tuple((each + (channel < rest)) * itemsize for channel in range(min(channels, elements)))


def _up(value: int, grain: int) -> int:
    return -(-value // grain) * grain
