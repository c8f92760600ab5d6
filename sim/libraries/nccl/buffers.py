"""Memory of a GPU that NCCL allocates for a communicator (src/init.cc, src/transport/*.cc, v2.30.7).

Each connection has a buffer of each protocol in the receiver's memory, and 2 MiB in the sender's; where
readers pull, as over NVLink of A100, the Simple protocol's is the sender's, and the sum is the same. Rings
connect a rank to two others in each channel; trees add the way back, and switch reductions buffers of their
own. Sends connect each pair of ranks of a node in many channels; across nodes they use one buffer, which
every communicator has.

A100 with NVLink show it: a communicator of two GPUs takes 544 MiB, one of four 688 on the rank at the end of
its trees (NVIDIA/nccl#964). On 8 H100 the connections of an all-to-all take 3.3 GB, in buffers of 10 and
2 MiB (NVIDIA/nccl#1685).
"""

from collections.abc import Collection

from ringside.sim.libraries.nccl.communicator import Communicator
from ringside.sim.libraries.nccl.device.p2p import KINDS, all_channels, channels_per_peer, chunk_of

MIB = 1 << 20
GRANULE = 2 * MIB
"""Allocations are multiples of this (CUDA_IPC_MIN, and cuMem's granularity)."""

LL, LL128, SIMPLE = 512 * 1024, 4_915_200, 4 * MIB
"""Bytes of a connection's buffer by protocol (computeBuffSizes)."""

SHARED_STEPS = 16
"""Chunks per channel of the buffer of sends between nodes (NCCL_SHARED_STEPS, src/transport/net.cc)."""

NVLS_NBYTES = 8 * 128 * 1024
"""Bytes of a switch reduction's buffer per channel, head and direction: 8 steps of NCCL_NVLS_CHUNKSIZE."""


def _allocated(nbytes: int) -> int:
    return -(-nbytes // GRANULE) * GRANULE


RECEIVING = _allocated(LL + LL128 + SIMPLE + 1)
"""Bytes of the receiver of a connection: its buffers and a header."""

INSIDE = RECEIVING + GRANULE
"""Bytes of a rank that sends on one connection and receives on another, inside a node."""

BETWEEN = RECEIVING + _allocated(LL128 + SIMPLE)
"""The same between nodes: the card reads the sender's buffers; LL's is in the host's memory."""


def buffers_nbytes(comm: Communicator, kinds: Collection[str]) -> dict[str, int]:
    """Return the bytes that the fullest rank holds for these kinds of collectives, by purpose.

    ``sendrecv`` exchanges with two neighbours, as pipelines do. Everything that NCCL may choose for a kind is
    connected: it connects an algorithm when it is first used.
    """
    reduces, sends = set(kinds) - set(KINDS), set(kinds) & set(KINDS)
    nbytes = {"sends between nodes": all_channels(comm) * SHARED_STEPS * chunk_of(comm)}
    if reduces:
        nbytes["rings"] = _rings(comm)
        nbytes["trees"] = _trees(comm) if comm.ranks > 2 and reduces & {"all_reduce"} else 0
        nbytes["switch reductions"] = comm.nvls_channels * 2 * NVLS_NBYTES * comm.gpus
    if sends:
        peers = min(comm.gpus - 1, 2 if sends == {"sendrecv"} else comm.gpus)
        nbytes["sends inside nodes"] = peers * channels_per_peer(comm) * INSIDE
    return {name: size for name, size in nbytes.items() if size}


def _rings(comm: Communicator) -> int:
    """Return the bytes of all channels' rings: each leaves and enters a node at one of its GPUs."""
    at_edge = -(-comm.channels // comm.gpus) if comm.nodes > 1 else 0
    return (comm.channels - at_edge) * INSIDE + at_edge * BETWEEN


def _trees(comm: Communicator) -> int:
    """Return what trees add: the way back inside a node; between nodes a parent and two children."""
    if comm.nodes == 1:
        return comm.channels * INSIDE
    at_edge = -(-comm.channels // comm.gpus)
    return (comm.channels - at_edge) * INSIDE + at_edge * 3 * BETWEEN
