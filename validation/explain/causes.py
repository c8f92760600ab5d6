"""Causes of slow collectives: how each is described, what it affects, how to check it."""

from dataclasses import dataclass

import numpy as np

SLOWER = tuple(float(share) for share in 2.0 ** -np.arange(0.25, 5.01, 0.25))
"""Shares of a bandwidth."""

LONGER = tuple(float(factor) for factor in 2.0 ** np.arange(0.5, 5.01, 0.25))
"""Factors on a latency."""

WAITS = tuple(float(wait) for wait in 2.0 ** np.arange(1, 12.01, 0.5))
"""Microseconds."""

Value = float | str | tuple[float, float]


@dataclass(frozen=True, slots=True)
class SlowCause:
    """A cause; ``looks_at`` names the affected part of the machine, ``says`` holds the value as ``{0}``.

    ``values`` are those tried; ``free`` counts the figures in one that are fitted, not chosen by name.
    """

    key: str
    looks_at: str
    says: str
    settle: str
    values: tuple[Value, ...]
    free: int = 1

    def sentence(self, value: Value) -> str:
        """Return the description with its value."""
        return self.says.format(*(value if isinstance(value, tuple) else (value,)))


LINK = SlowCause(
    "link_rate",
    "link rate between nodes",
    "a node's cards carry {0:.2f} of the family's bandwidth",
    "ib_write_bw or sendrecv_perf between two nodes; link speed and width, GPUDirect, congestion",
    SLOWER,
)
INSIDE = SlowCause(
    "inside_rate",
    "link rate inside a node",
    "a GPU's links in the node carry {0:.2f} of the family's bandwidth",
    "nvidia-smi nvlink -s, nvidia-smi topo -m; NCCL_P2P_LEVEL, NCCL_P2P_DISABLE; power and clock limits",
    SLOWER,
)
BETWEEN_LATENCY = SlowCause(
    "between_latency",
    "latency between nodes",
    "a hop between nodes takes {0:.1f} times the family's latency",
    "ib_write_lat between two nodes; NCCL_DEBUG=INFO names the network plugin; GPUDirect, the proxy's CPU",
    LONGER,
)
SOCKETS = SlowCause(
    "sockets",
    "RDMA between nodes",
    "sockets instead of RDMA: {0:.2f} of the family's bandwidth, {1:.1f} times its latency between nodes",
    "NCCL_DEBUG=INFO: NET/Socket, or IB without GPUDirect; NCCL_IB_DISABLE, NCCL_NET, NCCL_NET_GDR_LEVEL",
    tuple((share, longer) for share in SLOWER[1::2] for longer in LONGER[0::3]),
    free=2,
)
INSIDE_LATENCY = SlowCause(
    "inside_latency",
    "latency inside a node",
    "a hop inside a node takes {0:.1f} times the family's latency",
    "nvidia-smi topo -m for the paths; GPU clocks; NCCL_P2P_LEVEL",
    LONGER,
)
WAIT = SlowCause(
    "wait",
    "wait per collective",
    "every collective takes {0:.3g} us more, at every size",
    "run one process per GPU; CPU binding and load of each host; leave out one host at a time",
    WAITS,
)
CHANNELS = SlowCause(
    "channels",
    "channels in use",
    "no more than {0:.0f} of a GPU's channels are in use",
    "NCCL_DEBUG=INFO shows the channels; unset NCCL_MAX_NCHANNELS, NCCL_MAX_CTAS; GPUs with fewer SMs",
    (1.0, 2.0, 4.0, 6.0, 8.0, 12.0, 16.0),
)
PROTOCOL = SlowCause(
    "protocol",
    "protocol",
    "one protocol is used at every size: {0}",
    "unset NCCL_PROTO, look into nccl.conf; NCCL_DEBUG=INFO with NCCL_DEBUG_SUBSYS=TUNING shows the choice",
    ("ll", "ll128", "simple"),
    free=0,
)
ALGORITHM = SlowCause(
    "algorithm",
    "algorithm",
    "one algorithm is used at every size: {0}",
    "unset NCCL_ALGO and NCCL_NVLS_ENABLE, look into nccl.conf; NCCL_DEBUG_SUBSYS=TUNING shows the choice",
    ("ring", "tree"),
    free=0,
)
PROCESS = SlowCause(
    "process",
    "GPUs of one process",
    "one thread launches on {0:.0f} GPUs in turn",
    "one process per GPU: mpirun or srun with -g 1",
    (2.0, 4.0, 8.0),
)


def cards(number: int) -> SlowCause:
    """Return the cause for a node with ``number`` network cards."""
    return SlowCause(
        "cards",
        "network cards",
        f"{{0:.0f}} of a node's {number} network cards are in use",
        "NCCL_DEBUG=INFO lists the cards in use; NCCL_IB_HCA, NCCL_SOCKET_IFNAME; ibstat on each node",
        tuple(float(count) for count in range(1, number)),
    )


HOST_LINKS = SlowCause(
    "host_links",
    "one host's links",
    "the links of one host, or one of them, carry {0:.2f} of their bandwidth",
    "iperf3 or sendrecv between every two hosts; ethtool for speed and errors; ringside pairs names the host",
    SLOWER,
)
ALL_LINKS = SlowCause(
    "all_links",
    "all links",
    "every link carries {0:.2f} of its bandwidth",
    "iperf3 between some hosts: if all pairs are slow it is the network, or other traffic on it",
    SLOWER,
)
MESSAGE = SlowCause(
    "message_latency",
    "latency of a message",
    "a message takes {0:.1f} times its normal latency",
    "ping or sockperf between hosts; CPU frequency, interrupt moderation, load of a host",
    LONGER,
)
