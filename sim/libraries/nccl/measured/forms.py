"""How long messages take: rings, trees, the switch's reduction, the host. Microseconds throughout.

A hop costs a latency, a gap for each channel that shares the link, and the slower of one message's own rate
and its share of the link. D levels of a tree, K loops of messages of m bytes on c channels.
"""

import numpy as np
from numpy.typing import NDArray

from sim.libraries.nccl.constants import BASE_US, HOP_US
from sim.libraries.nccl.measured.parameters import PROTOCOLS, Values
from sim.libraries.nccl.measured.work import PAIRS, Work

Floats = NDArray[np.float64]

_SHARPNESS = 8
"""How suddenly a host too slow for its GPUs takes over."""

_GB = 1e3
"""One GB/s in bytes a microsecond."""


def time_us(work: Work, values: Values) -> Floats:
    """Microseconds of each task: trials x tasks where ``values`` are columns."""
    host = values["host_us"] * np.where(work.launch_gpus > 1, work.launch_gpus, 0.0)
    host = host + values["thread_us"] * np.where(work.launch_threads > 1, work.launch_threads, 0.0)
    found = kernel_us(work, values)
    slow = (work.launch_gpus > 1) | (work.launch_threads > 1)
    if slow.any():
        found[..., slow] *= (1 + (host[..., slow] / found[..., slow]) ** _SHARPNESS) ** (1 / _SHARPNESS)
    return found


def kernel_us(work: Work, values: Values) -> Floats:
    """The same without a host that is too slow."""
    shape = np.broadcast_shapes(np.shape(values["base"]), (len(work),))
    found = np.empty(shape)
    for place in np.unique(work.pair):
        mine = work.pair == place
        algorithm, protocol = PAIRS[place]
        some = work.where(mine)
        if algorithm == "tree":
            taken = _tree(some, protocol, values)
        elif algorithm == "ring":
            taken = _ring(some, protocol, values)
        else:
            taken = _switch(some, algorithm, values)
        if algorithm in ("tree", "ring"):
            taken = taken + values["base"] * BASE_US[algorithm][PROTOCOLS.index(protocol)]
        found[..., mine] = values["launch_us"] + taken
    return found


def _hop(work: Work, algorithm: str, protocol: str, values: Values) -> tuple[Floats, Floats]:
    """Latency of a hop inside a node and between nodes."""
    column = PROTOCOLS.index(protocol)
    link = np.where(work.nvlink, HOP_US["nvlink"][algorithm][column], HOP_US["pci"][algorithm][column])
    net = HOP_US["net"][algorithm][column]
    pair = f"{algorithm}.{protocol}"
    return (
        link * values["inside"] * values[f"inside.{pair}"],
        net * np.asarray(values["between"] * values[f"between.{pair}"]),
    )


def _links(work: Work, protocol: str, values: Values) -> tuple[Floats, Floats]:
    """Bytes a microsecond of a GPU's links and of a node's cards."""
    inside, between = values["inside_GBps"] * _GB, values["between_GBps"] * _GB
    if protocol != "simple":
        inside = inside * values[f"inside_{protocol}"]
        between = between * values[f"between_{protocol}"]
    return inside * work.used_inside, between * work.used_between


def _ring(work: Work, protocol: str, values: Values) -> Floats:
    hop_inside, hop_between = _hop(work, "ring", protocol, values)
    link, card = _links(work, protocol, values)
    steps = 2 * (work.ranks - 1) * work.half
    crossings = np.where(work.one, 0.0, 2 * (work.nodes - 1) * work.half)
    m, c = work.message, work.channels
    inside = np.maximum(
        m / (values[f"inside_rate.{protocol}"] * _GB), c * (values["inside_gap_us"] + m / link)
    )
    between = np.maximum(
        m / (values[f"between_rate.{protocol}"] * _GB), c * (values[f"between_gap_us.{protocol}"] + m / card)
    )
    sent = work.loops * steps * work.slices * np.where(work.one, inside, between)
    found: Floats = (steps - crossings) * hop_inside + crossings * hop_between + sent
    return found


def _tree(work: Work, protocol: str, values: Values) -> Floats:
    hop_inside, hop_between = _hop(work, "tree", protocol, values)
    link, card = _links(work, protocol, values)
    m, c, two = work.message, work.channels, work.nodes == 2
    gap_inside, gap_between = values["inside_gap_us"], values[f"tree_gap_us.{protocol}"]
    burst = np.where(two, 0.5, 1.0) * values["tree_burst"]
    crossing = np.where(two, 1 / values["tree_two"], 2 / values["tree_many"])
    inside = (
        hop_inside
        + (c - 1) * gap_inside
        + np.maximum(m / (values[f"inside_rate.{protocol}"] * _GB), c * m / link)
    )
    between = hop_between + (c - 1) * gap_between
    between = between + m * np.maximum(1 / (values[f"between_rate.{protocol}"] * _GB), c * burst / card)
    behind = np.where(
        work.one,
        c * m / (values["tree_one"] * link) + c * gap_inside,
        m * np.maximum(1 / (values[f"tree_rate.{protocol}"] * _GB), c * crossing / card) + c * gap_between,
    )
    first: Floats = 2 * (work.gpus - 1) * inside + 2 * np.ceil(np.log2(work.nodes)) * between
    return first + (work.loops - 1) * behind


def _switch(work: Work, algorithm: str, values: Values) -> Floats:
    latency = HOP_US["nvlink"]["nvls"][2] * values["nvls"]
    size, ranks = work.nbytes, work.ranks
    if algorithm == "nvls":
        whole = values["nvls_GBps"] * np.where(work.half == 1, 1.0, values["nvls_gather"])
        port = whole * (_GB * 9 / 14)  # eight ranks: 1 + 1/8 of the size through a port, 7/4 on the bus
        found: Floats = latency + size * np.where(work.half == 1, 1 + 1 / ranks, 1.0) / port
        return found
    bus = (
        np.where(work.nodes == 2, values["nvls_tree_two_GBps"], values["nvls_tree_GBps"]) * work.used_between
    )
    level = HOP_US["net"]["nvls_tree"][2] * values["nvls_tree"]
    levels = 2 * np.ceil(np.log2(work.nodes))
    found = latency + levels * level + size * 2 * (ranks - 1) / ranks / (bus * _GB)
    return found
