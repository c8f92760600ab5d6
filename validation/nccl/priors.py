"""The physical parameters of a machine's NCCL times, and their priors before any measurement.

Each is positive; a prior is log-normal. Latencies are factors on the constants of NCCL's own tuner,
bandwidths begin at the data sheet's. Microseconds and GB/s. Five for rings inside a node (links, hops,
Simple's hops, gap, own part) were chosen near what fits to V100, A100, H100 and B200 find, by the errors of
the scorecard.
"""

from dataclasses import dataclass

from ringside.sim.libraries.nccl.graph.system import GB, System, nvlink_in_datasheet
from ringside.sim.libraries.nccl.message_times import ALGORITHMS, PROTOCOLS


@dataclass(frozen=True, slots=True)
class Prior:
    """A prior: ``value``, and ``sigma``, its standard deviation in natural logarithms."""

    name: str
    value: float
    sigma: float
    meaning: str


NVLS_TREE = 0.4
"""The usual factor on NCCL's latency of a level of a tree of switches."""

_TORCH = Prior("torch_us", 22.0, 0.3, "a call from PyTorch, for which an idle GPU waits")


def priors(system: System) -> tuple[Prior, ...]:
    """Return the priors of all parameters of a machine."""
    nvlink = nvlink_in_datasheet(system.nvlink, system.compute_capability) / GB
    inside = 0.83 * nvlink if nvlink else 0.8 * system.pcie / GB
    between = 0.93 * max(system.nics * system.nic_path, system.nic) / GB
    card = system.nic_path / GB
    generation = (nvlink or 300.0) / 300.0  # NVLink 3 is one
    reduced = 520.0 * ((nvlink or 450.0) / 450.0) ** 0.85  # by the switch: 940 GB/s where NVLink has 900
    return (
        Prior("launch_us", 2.0, 0.8, "before a kernel begins to work"),
        Prior("base", 0.85, 0.3, "factor on the tuner's base latencies"),
        Prior("host_us", 4.7, 0.15, "launch of one more GPU that the same thread drives"),
        Prior("thread_us", 0.9, 0.3, "launch of one more thread of the same process"),
        _TORCH,
        Prior("inside", 1.15, 0.4, "factor on all hop latencies inside a node"),
        Prior("between", 1.0, 0.5, "factor on all hop latencies between nodes"),
        *_hops(),
        Prior("inside_GBps", inside, 0.2, "rate of a GPU's links"),
        Prior("between_GBps", between, 0.25, "rate of a node's cards"),
        Prior("inside_ll", 0.45, 0.4, "part of it that LL leaves for data"),
        Prior("inside_ll128", 0.85, 0.3, "part of it that LL128 leaves"),
        Prior("early_ll", 0.4, 0.4, "part of LL's rates inside a node that releases before 2.22 reach"),
        Prior("between_ll", 0.4, 0.7, "the same between nodes"),
        Prior("between_ll128", 0.85, 0.4, "the same between nodes"),
        Prior("tree_one", 0.6, 0.3, "part of its bandwidth that a tree keeps busy inside one node"),
        Prior("tree_two", 0.95, 0.15, "the same on two nodes"),
        Prior("tree_many", 0.8, 0.12, "the same on more"),
        Prior("tree_burst", 1.5, 0.3, "bytes that cross a card for each byte of a tree's first chunk"),
        *_rates("inside_rate", "GB/s of one message inside a node", (8.0 * generation**0.4, 12.0, 16.0)),
        *_rates("between_rate", "GB/s of one message between nodes", (2.5, 0.37 * card, 0.48 * card)),
        *_rates("tree_rate", "GB/s of one channel's chunks behind each other in a tree", (1.5, 4.0, 8.0)),
        Prior("ring_own", 0.75, 0.3, "steps of a ring of one node for a GPU's own part"),
        Prior("inside_gap_us", 0.006 / generation**0.65, 0.9, "gap between messages in a node, a channel"),
        *_gaps("between_gap_us", "the same between messages on a card"),
        Prior("nvls", 0.7, 0.5, "factor on the latency of the switch's reduction"),
        Prior("nvls_loop_us", 6.0, 0.6, "one loop over the chunks of the switch's reduction"),
        Prior("nvls_fill", 3.0, 0.4, "loops' bytes before the first loop's sums are back"),
        Prior("nvls_GBps", reduced, 0.2, "bus bandwidth of eight GPUs that the switch reduces for"),
        Prior("nvls_gather", 1.3, 0.2, "factor on it where the switch only copies, or each GPU keeps a part"),
        Prior("nvls_tree", NVLS_TREE, 0.5, "factor on the latency of a tree of switches, a level"),
        Prior("nvls_tree_loop_us", 12.0, 0.6, "one loop over the chunks of a tree of switches"),
        Prior("nvls_tree_GBps", reduced * 1.05, 0.2, "bus bandwidth of a tree of switches"),
        Prior("nvls_tree_many", 0.85, 0.15, "part of its cards that it keeps busy on three nodes or more"),
        Prior("collnet", 0.75, 0.2, "part of its cards that sums in the network keep busy"),
    )


def send_priors() -> tuple[Prior, ...]:
    """Return the priors of sends and receives, of any machine: shares of NCCL's own rates, and latencies."""
    return (
        Prior("launch_us", 2.0, 0.5, "before a kernel does anything"),
        Prior("host_us", 4.7, 0.15, "launch of one more GPU that the same thread drives"),
        Prior("thread_us", 0.95, 0.2, "launch of one more thread of the same process"),
        _TORCH,
        Prior("call_us", 0.3, 0.4, "one call of a send or a receive"),
        Prior("setup_us", 5.0, 0.3, "before a kernel's first send moves"),
        Prior("peer_inside_us", 0.3, 0.7, "one more peer inside a node"),
        Prior("simple_us", 3.5, 0.5, "more for Simple's first chunk inside a node"),
        Prior("channel_GBps", 20.0, 0.3, "GB/s of one channel inside a node, at most its link's"),
        Prior("first_inside", 0.7, 0.5, "copies of a part's first chunk that nothing hides"),
        Prior("inside", 0.91, 0.1, "part of NCCL's rate that a GPU's links carry"),
        Prior("channel_ll", 0.5, 0.4, "part of a channel's rate that LL leaves"),
        Prior("inside_ll", 0.48, 0.4, "part of the links' rate that LL leaves, where a channel fills a link"),
        Prior("net_us", 10.0, 0.5, "the network's latency"),
        Prior("peer_between_us", 6.0, 0.7, "one more peer on other nodes"),
        Prior("tiny_us", 0.05, 3.0, "more for one whose message is within its command"),
        Prior("connection_GBps", 15.0, 0.1, "GB/s of one channel's connection between nodes"),
        Prior("connections", 0.72, 0.1, "exponent by which several of one message carry more"),
        Prior("cards", 0.93, 0.3, "part of their rate that cards carry on two nodes"),
        Prior("growth", 0.05, 1.0, "exponent by which they carry less on more"),
    )


_RINGS_INSIDE = {"ll": 1.5, "simple": 1.8}
"""Further factors on the hops of a ring inside a node: about 1 us of LL where NCCL's constant is 0.6."""


def _hops() -> list[Prior]:
    return [
        Prior(
            f"{where}.{algorithm}.{protocol}",
            _RINGS_INSIDE.get(protocol, 1.0) if (where, algorithm) == ("inside", "ring") else 1.0,
            0.3,
            f"factor of {algorithm}/{protocol} hops {where}",
        )
        for where in ("inside", "between")
        for algorithm in ALGORITHMS
        for protocol in PROTOCOLS
    ]


def _gaps(name: str, meaning: str) -> list[Prior]:
    return [Prior(f"{name}.{protocol}", 0.2, 1.0, meaning) for protocol in PROTOCOLS]


def _rates(name: str, meaning: str, values: tuple[float, float, float]) -> list[Prior]:
    return [
        Prior(f"{name}.{protocol}", value, 0.7, meaning)
        for protocol, value in zip(PROTOCOLS, values, strict=True)
    ]
