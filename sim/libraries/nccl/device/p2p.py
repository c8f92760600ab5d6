"""Point-to-point collectives: all_to_all, gather, scatter and sendrecv, which bypass NCCL's tuner.

NCCL runs them as sends and receives, up to eight peers in one batch (src/enqueue.cc, src/graph/paths.cc,
v2.30.7), as `p2p_schedule` does; it predicts no time for them. The time here is Ringside's own estimate:

    base + waves * hop + max(bytes inside / NVLink or PCIe, bytes between / NIC, part / connection)

for the busiest rank: base and hop are the tuner's figures for rings with the Simple protocol, a wave is all
batches of eight peers that have channels of their own, and traffic inside the node and over the network
overlap. A message goes in parts, each on a channel, whose connection has a rate of its own. Without NVLink
what stays and what leaves passes the GPU's slot, which needs the time of their sum. In all_to_all every GPU
has its share of the node's NICs; the root of gather and scatter has only its own NIC, because data arrive
beside its GPU; sendrecv passes a node's edge at one GPU. For an uneven all_to_all inside and between are the
busiest ranks' sends or receives.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ringside.sim.collective import Collective
from ringside.sim.libraries.nccl.communicator import MAX_CHANNELS, Communicator
from ringside.sim.libraries.nccl.constants import BASE_US
from ringside.sim.libraries.nccl.figures import hop_us
from ringside.sim.libraries.nccl.graph.system import GB, System, nics_used
from ringside.topologies.names import one_of

KINDS = ("all_to_all", "gather", "scatter", "sendrecv")

Floats = NDArray[np.float64]

PEERS_PER_BATCH = 8
KIB = 1024

CONNECTION = 14 * GB
"""Bytes/s of one channel's connection between nodes, by which NCCL counts the channels that fill a card
(P2P_PER_CHANNEL_NET_BW, src/graph/paths.cc, v2.29.2)."""

LL_CHANNEL = 16 * 1024
"""Bytes up to which a channel's part goes by LL (NCCL_P2P_LL_THRESHOLD, src/enqueue.cc, v2.30.7)."""

_BYTES_US = 1e-6
"""One byte a second in bytes a microsecond."""


@dataclass(frozen=True, slots=True)
class PointToPoint:
    """How NCCL carries one point-to-point collective.

    Data go in chunks of ``chunk`` bytes over up to ``channels`` channels to each peer, in ``rounds``
    batches; ``time_us`` is the estimate above, in microseconds.
    """

    chunk: int
    channels: int
    rounds: int
    time_us: float


def point_to_point(
    comm: Communicator, kind: str, nbytes: int, uneven: Collective | None = None
) -> PointToPoint:
    """Return how ``nbytes`` move: one rank's buffer of all_to_all or sendrecv, or the root's.

    ``uneven`` is an all_to_all with splits, which give each rank's bytes for each other.
    """
    if kind not in KINDS:
        raise ValueError(f"unknown point-to-point collective {kind!r}; write {one_of(KINDS, kind)}")
    peers = 1 if kind == "sendrecv" else comm.ranks - 1
    rounds = -(-peers // PEERS_PER_BATCH)
    if uneven is None or uneven.splits is None:
        inside, between = bytes_of_busiest(comm, kind, nbytes)
        largest = [nbytes if kind == "sendrecv" else nbytes // comm.ranks] * 2
    else:
        inside, between = (float(figures.max()) for figures in exchanged(comm, uneven))
        largest = [int(messages.max()) for messages in _messages(comm, uneven)]
    moving = max(inside / rate_inside(comm, kind), between / rate_between(comm, kind) if between else 0.0)
    if kind != "sendrecv" and not comm.system.nvlink:  # of sends to one neighbour, each is inside or between
        moving = max(moving, (inside + between) / comm.system.pcie)
    part_inside, part_between = (min(part_size(comm, message), message) for message in largest)
    if between:
        moving = max(moving, part_between / CONNECTION)
    if inside and comm.system.nvlink:
        moving = max(moving, part_inside / comm.system.nvlink_rate)
    channels = channels_per_peer(comm)
    waves = -(-rounds * channels // all_channels(comm))
    time = BASE_US["ring"][2] + waves * _hop_us(comm) + moving * 1e6
    return PointToPoint(chunk_of(comm), channels, rounds, time)


def send_columns(comm: Communicator, kind: str, nbytes: int) -> dict[str, float]:
    """Return what the form needs of one collective, by the name of its array."""
    message = nbytes if kind == "sendrecv" else nbytes // comm.ranks
    channels = max(-(-message // part_size(comm, message)), 1)
    inside, between = bytes_of_busiest(comm, kind, 1 if kind == "sendrecv" else comm.ranks)
    return {
        "channels": float(channels),
        "message": message / channels,
        "peers_inside": float(inside),
        "peers_between": float(between),
        "lanes": float(all_channels(comm)),
        "chunk": float(chunk_of(comm)),
        "low": float(LL_CHANNEL * channels_per_peer(comm)),
        "lane": (comm.system.nvlink_rate if comm.system.nvlink else rate_inside(comm, kind)) * _BYTES_US,
        "link": rate_inside(comm, kind) * _BYTES_US,
        "card": rate_between(comm, kind) * _BYTES_US,
    }


def part_size(comm: Communicator, nbytes: int) -> int:
    """Return the bytes of a message that each of its channels takes, as long as there are that many.

    That is half a chunk to a chunk, or 1/8 to 32 inside a node; parts grow where channels run out.
    """
    chunk, channels = chunk_of(comm), channels_per_peer(comm)
    least, most = (chunk // 2, chunk) if comm.nodes > 1 else (chunk // 8, chunk * 32)
    at_first = channels
    while at_first > 1 and at_first * comm.ranks > all_channels(comm):
        at_first //= 2
    count = min(at_first, max(-(-nbytes // least), 1))
    size = max(least, -(-nbytes // count))
    while size > most and count <= channels // 2:
        count *= 2
        size = -(-nbytes // count)
    return size


def bytes_of_busiest(comm: Communicator, kind: str, nbytes: int) -> tuple[float, float]:
    """Return the bytes that the busiest rank exchanges inside its node, and with other nodes."""
    if kind == "sendrecv":
        return (nbytes if comm.gpus > 1 else 0), (nbytes if comm.nodes > 1 else 0)
    part = nbytes / comm.ranks
    return (comm.gpus - 1) * part, (comm.ranks - comm.gpus) * part


def exchanged(comm: Communicator, collective: Collective) -> tuple[Floats, Floats]:
    """Return each rank's sent, then received, bytes inside its node, and with other nodes, by its splits."""
    inside, between = _messages(comm, collective)
    return np.stack([inside.sum(1), inside.sum(0)]), np.stack([between.sum(1), between.sum(0)])


def _messages(comm: Communicator, collective: Collective) -> tuple[Floats, Floats]:
    """Return the bytes from each rank to each other inside its node, and on other nodes, by its splits."""
    nbytes = np.array(collective.splits, dtype=np.float64) * collective.itemsize
    np.fill_diagonal(nbytes, 0)
    node = np.arange(comm.ranks) // comm.gpus
    is_inside = node[:, None] == node
    return np.where(is_inside, nbytes, 0), np.where(is_inside, 0, nbytes)


def rate_inside(comm: Communicator, kind: str) -> float:
    """Return the bytes/s at which a rank reaches the others of its node."""
    system = comm.system
    if not system.nvlink:
        return _through_cpu(system, comm.gpus)
    if kind == "sendrecv" and not system.nvswitch:
        return min(system.nvlink_rate, system.nvlink)
    return _nvlink_among(system, comm.gpus) or system.nvlink


def rate_between(comm: Communicator, kind: str) -> float:
    """Return the bytes/s at which a rank reaches other nodes."""
    share = nics_used(comm.system, comm.gpus) / comm.gpus if kind == "all_to_all" else 1
    return comm.system.nic_path * share


def _hop_us(comm: Communicator) -> float:
    inside = "nvlink" if comm.system.nvlink else "pci"
    return hop_us("net" if comm.nodes > 1 else inside, "ring", "simple", comm)


def chunk_of(comm: Communicator) -> int:
    """Return the bytes in which a send goes."""
    if comm.nodes > 1:
        grace_blackwell = comm.system.cpu == "arm" and comm.system.compute_capability >= 100
        return (256 if grace_blackwell else 128) * KIB
    return (512 if comm.system.nvlink else 128) * KIB


def channels_per_peer(comm: Communicator) -> int:
    """Return the channels that one send may use: enough for the slowest kind of path, a power of two.

    Between nodes the channels must have room for all peers. Before 2.29 two filled any card, and a channel
    had up to four.
    """
    system, total = comm.system, all_channels(comm)
    wanted = [MAX_CHANNELS]
    if comm.gpus > 1:
        path = system.nvlink if system.nvswitch else system.nvlink_rate
        links = round(path / system.nvlink_rate) if system.nvlink else 1
        wanted.append(2 * max(links, 1))
    nics = max(1, system.nics // system.gpus)
    if comm.nodes > 1 and comm.constants.sends_by_rate:
        wanted.append(max(nics, -int(-nics * system.nic_path // CONNECTION)))
    elif comm.nodes > 1:
        wanted.append(max(nics, 2 if 2 * comm.ranks <= 4 * total else 1))
    channels = _power_of_two(min(wanted))
    if not comm.constants.sends_by_rate:
        return min(channels, total)
    while channels > 1 and channels * -(-comm.ranks // PEERS_PER_BATCH) > total:
        channels //= 2
    return channels


def all_channels(comm: Communicator) -> int:
    """Return the channels that all sends and receives of a rank share."""
    return _power_of_two(comm.channels)


def _power_of_two(count: int) -> int:
    """Return the smallest power of two that is at least ``count``."""
    return 1 << (count - 1).bit_length()


def _nvlink_among(system: System, gpus: int) -> float:
    """Return the bytes/s of NVLink at each GPU towards the other GPUs used; 0 without NVLink."""
    if gpus == 1 or system.nvswitch:
        return system.nvlink
    return system.nvlink * (gpus - 1) / max(system.gpus - 1, 1)


def _through_cpu(system: System, gpus: int) -> float:
    """Return the bytes/s between GPUs without NVLink: PCIe through a CPU, and the other socket if used."""
    slot = system.pcie * 5 / 6 if system.cpu == "intel" else system.pcie
    return min(slot, system.socket) if 2 * gpus > system.ranks else slot
