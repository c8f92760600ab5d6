"""The physical parameters of a machine's NCCL times, and their priors before any measurement.

Each is positive; a prior is log-normal. Latencies are factors on the constants of NCCL's own tuner,
bandwidths begin at the data sheet's. Microseconds and GB/s.
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


def priors(system: System) -> tuple[Prior, ...]:
    """Return the priors of all parameters of a machine."""
    nvlink = nvlink_in_datasheet(system.nvlink, system.compute_capability) / GB
    inside = 0.77 * nvlink if nvlink else 0.8 * system.pcie / GB
    between = 0.9 * max(system.nics * system.nic_path, system.nic) / GB
    card = system.nic_path / GB
    reduced = 1.055 * (nvlink or 450.0)  # by the switch: 475 GB/s where NVLink has 450
    return (
        Prior("launch_us", 2.0, 0.8, "before a kernel begins to work"),
        Prior("base", 0.85, 0.3, "factor on the tuner's base latencies"),
        Prior("host_us", 4.7, 0.15, "launch of one more GPU that the same thread drives"),
        Prior("thread_us", 1.9, 0.3, "launch of one more thread of the same process"),
        Prior("inside", 1.0, 0.4, "factor on all hop latencies inside a node"),
        Prior("between", 1.0, 0.5, "factor on all hop latencies between nodes"),
        *_hops(),
        Prior("inside_GBps", inside, 0.2, "rate of a GPU's links"),
        Prior("between_GBps", between, 0.4, "rate of a node's cards"),
        Prior("inside_ll", 0.4, 0.4, "part of it that LL leaves for data"),
        Prior("inside_ll128", 0.85, 0.3, "part of it that LL128 leaves"),
        Prior("between_ll", 0.4, 0.7, "the same between nodes"),
        Prior("between_ll128", 0.85, 0.4, "the same between nodes"),
        Prior("tree_one", 0.6, 0.3, "part of its bandwidth that a tree keeps busy inside one node"),
        Prior("tree_two", 0.95, 0.15, "the same on two nodes"),
        Prior("tree_many", 0.8, 0.12, "the same on more"),
        Prior("tree_burst", 1.5, 0.3, "bytes that cross a card for each byte of a tree's first chunk"),
        *_rates("inside_rate", "GB/s of one message inside a node", (4.0, 12.0, 16.0)),
        *_rates("between_rate", "GB/s of one message between nodes", (2.5, 0.37 * card, 0.48 * card)),
        *_rates("tree_rate", "GB/s of one channel's chunks behind each other in a tree", (1.5, 4.0, 8.0)),
        Prior("ring_own", 0.55, 0.3, "steps of a ring of one node for a GPU's own part"),
        Prior("inside_gap_us", 0.05, 1.0, "gap between messages inside a node, a channel"),
        *_gaps("between_gap_us", "the same between messages on a card"),
        Prior("nvls", 1.5, 0.3, "factor on the latency of the switch's reduction"),
        Prior("nvls_GBps", reduced, 0.15, "bus bandwidth of eight GPUs that the switch reduces for"),
        Prior("nvls_gather", 1.3, 0.2, "factor on it where the switch only copies, or each GPU keeps a part"),
        Prior("nvls_tree", 1.0, 0.3, "factor on the latency of a tree of switches, a level"),
        Prior("nvls_tree_two_GBps", reduced * 0.95, 0.2, "bus bandwidth of a tree of two switches"),
        Prior("nvls_tree_GBps", min(reduced * 0.76, 2 * between), 0.2, "the same of more"),
    )


def _hops() -> list[Prior]:
    return [
        Prior(
            f"{where}.{algorithm}.{protocol}",
            1.35 if (where, algorithm, protocol) == ("inside", "ring", "simple") else 1.0,
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
