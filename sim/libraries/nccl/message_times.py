"""A collective in messages, channels and loops, and its time by these.

Rings, trees, the switch's reduction, the host. A hop costs a latency, a gap for each channel that shares the
link, and the slower of one message's own rate and its share of the link. D levels of a tree, K loops of
messages of m bytes on c channels. Microseconds throughout.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from itertools import product

import numpy as np
from numpy.typing import NDArray

from ringside.sim.libraries.nccl.chunks import channel_bytes, chunking
from ringside.sim.libraries.nccl.communicator import Communicator
from ringside.sim.libraries.nccl.constants import BASE_US, HOP_US
from ringside.sim.libraries.nccl.device.p2p import send_columns
from ringside.sim.libraries.nccl.graph.graph import PathClass
from ringside.sim.libraries.nccl.graph.search import graphs
from ringside.sim.libraries.nccl.send_times import (
    SEND_KINDS,
    SENDS,
    SendArrays,
    calls_us,
    sends_us,
)
from ringside.sim.libraries.nccl.tuner import launch

Floats = NDArray[np.float64]

Values = Mapping[str, float | Floats]
"""Each parameter's value; or a column of values, one per trial."""

ALGORITHMS = ("tree", "ring")
PROTOCOLS = ("ll", "ll128", "simple")

PARAMETERS = (
    *("launch_us", "base", "host_us", "thread_us", "torch_us", "inside", "between"),
    *(
        f"{where}.{alg}.{proto}"
        for where in ("inside", "between")
        for alg in ALGORITHMS
        for proto in PROTOCOLS
    ),
    *("inside_GBps", "between_GBps", "inside_ll", "inside_ll128", "early_ll", "between_ll", "between_ll128"),
    *("tree_one", "tree_two", "tree_many", "tree_burst"),
    *(f"{rate}.{proto}" for rate in ("inside_rate", "between_rate", "tree_rate") for proto in PROTOCOLS),
    *("ring_own", "inside_gap_us"),
    *(f"between_gap_us.{proto}" for proto in PROTOCOLS),
    *("nvls", "nvls_loop_us", "nvls_fill", "nvls_GBps", "nvls_gather"),
    *("nvls_tree", "nvls_tree_loop_us", "nvls_tree_GBps", "nvls_tree_many", "collnet"),
)
"""The parameters of a machine's times; `ringside.validation.nccl.priors` defines each."""

PAIRS = (
    *((algorithm, protocol) for algorithm in ALGORITHMS for protocol in PROTOCOLS),
    *((algorithm, "simple") for algorithm in ("nvls", "nvls_tree", "collnet_direct", "collnet_chain")),
    SENDS,
)
"""Pairs with a closed form; PAT has none."""

KINDS = ("all_reduce", "all_gather", "reduce_scatter")

FORMS = frozenset(
    [
        *((kind, pair) for kind, pair in product(KINDS, PAIRS[:-3])),
        *(("all_reduce", pair) for pair in PAIRS[-3:-1]),
        *product(SEND_KINDS, [SENDS]),
    ]
)
"""Collectives that have a form, each with one of its pairs."""


@dataclass(frozen=True, slots=True)
class Launch:
    """How the host starts a collective: GPUs that one thread drives, threads of one process.

    A ``torch`` script times single calls by events, between which an idle GPU waits for the call.
    """

    gpus: int = 1
    threads: int = 1
    torch: bool = False


ONE_GPU = Launch()
"""One process per GPU."""


@dataclass(frozen=True, slots=True)
class Task:
    """One collective by one pair on one communicator; ``nbytes`` as nccl-tests count."""

    comm: Communicator
    kind: str
    nbytes: int
    pair: tuple[str, str]
    launch: Launch = ONE_GPU


@dataclass(frozen=True, eq=False, slots=True)
class TaskArrays(SendArrays):
    """Tasks as arrays, one figure per task; those of sends alone are zero for others.

    ``pair`` is the place in `PAIRS`, ``gpus`` are ranks per node, ``message`` bytes in one message of one
    channel; ``slices`` of them make a chunk and ``loops`` chunks a channel's part. ``half`` is 1/2 if a
    ring goes round once. ``used_inside`` and ``used_between`` are the shares of a machine's links in use,
    ``line`` the bytes per microsecond of its cards by their data sheets. ``filling`` are the bytes of a loop
    of a switch's reduction. ``early`` are releases before 2.22.
    """

    pair: NDArray[np.int64]
    gpus: Floats
    nbytes: Floats
    loops: Floats
    slices: Floats
    half: Floats
    nvlink: NDArray[np.bool_]
    used_inside: Floats
    used_between: Floats
    filling: Floats
    line: Floats
    early: NDArray[np.bool_]
    launch_threads: Floats

    @property
    def ranks(self) -> Floats:
        """Number of ranks."""
        return self.nodes * self.gpus

    def __len__(self) -> int:
        return len(self.pair)

    def where(self, mask: NDArray[np.bool_]) -> "TaskArrays":
        """Return some of the tasks."""
        return TaskArrays(*(getattr(self, name)[mask] for name in _COLUMNS))


_COLUMNS = tuple(field.name for field in fields(TaskArrays))


def work_of(tasks: Iterable[Task]) -> TaskArrays:
    """Return the tasks as arrays; each must have a form."""
    rows = [_row(task) for task in tasks]
    return TaskArrays(*(np.array([row.get(name, 0.0) for row in rows]) for name in _COLUMNS))


def _row(task: Task) -> dict[str, float]:
    comm, system = task.comm, task.comm.system
    row: dict[str, float] = {
        "pair": PAIRS.index(task.pair),
        "nodes": float(comm.nodes),
        "gpus": float(comm.gpus),
        "nbytes": float(task.nbytes),
        "launch_gpus": float(task.launch.gpus),
        "launch_threads": float(task.launch.threads),
        "launch_torch": float(task.launch.torch),
        "nvlink": comm.graphs.ring.type_intra is PathClass.NVL,
        "early": not comm.constants.dealt_in_cells,
    }
    if task.pair == SENDS:
        return row | send_columns(comm, task.kind, task.nbytes)
    names = "channels", "message", "loops", "slices"
    return row | {
        **dict(zip(names, _messages(task), strict=True)),
        "half": 1.0 if task.kind == "all_reduce" else 0.5,
        "used_inside": _links_in_use(comm),
        "used_between": min(comm.gpus / system.gpus, 1.0),
        "filling": _loop_bytes(task),
        "line": system.nics * system.nic * 1e-6,
    }


def _links_in_use(comm: Communicator) -> float:
    """Return the share of a GPU's NVLinks that NCCL's rings use inside a node.

    Without a switch it depends on the links between these GPUs: a DGX-1's first two share one of six.
    """
    system = comm.system
    if system.nvswitch or not system.nvlink or comm.gpus == 1:
        return 1.0
    inside = comm.graphs if comm.nodes == 1 else graphs(system, 1, comm.gpus, comm.settings.version)
    return min(inside.ring.channels * inside.ring.bw_intra / system.nvlink, 1.0)


def _loop_bytes(task: Task) -> float:
    """Return the bytes of a loop of a switch's reduction, a chunk for each head and channel; else 0."""
    algorithm, protocol = task.pair
    if algorithm not in ("nvls", "nvls_tree"):
        return 0.0
    channels = task.comm.nvls_channels
    return float(chunking(task.comm, task.kind, algorithm, protocol, task.nbytes, channels).loop)


def _messages(task: Task) -> tuple[float, float, float, float]:
    """Return channels in use, bytes per message, consecutive chunks per channel, messages per chunk."""
    comm, (algorithm, protocol), nbytes = task.comm, task.pair, task.nbytes
    if algorithm not in ALGORITHMS:
        loops = np.ceil(nbytes / (_loop_bytes(task) or nbytes or 1))
        return float(comm.nvls_channels or comm.channels), float(nbytes), float(loops), 1.0
    channels = launch(comm, algorithm, protocol, nbytes)[0]
    if comm.constants.dealt_in_cells:
        channels = max(len(channel_bytes(comm, task.kind, algorithm, protocol, nbytes)), 1)
    share = nbytes / channels
    cuts = chunking(comm, task.kind, algorithm, protocol, int(share))
    if algorithm == "tree":
        return float(channels), min(share, cuts.chunk), max(share / cuts.chunk, 1.0), 1.0
    loops = float(max(-(-share // (comm.ranks * cuts.chunk)), 1.0))
    return float(channels), share / comm.ranks / loops / cuts.slices, loops, float(cuts.slices)


SHARPNESS = 8
"""Exponent of the transition to a host that is too slow for its GPUs."""

_GB = 1e3
"""One GB/s in bytes a microsecond."""

LINE_SHARE = 0.98
"""The largest share of its cards' line rate that a node's data reach.

Rings of published runs reach 0.978 (48.9 of 50 GB/s on ten nodes of one H100 each, xxrjun) and 0.975 (390 of
400 GB/s on 2 to 64 nodes of eight B200, together)."""


def time_us(work: TaskArrays, values: Values) -> Floats:
    """Return the microseconds of each task: trials x tasks if ``values`` are columns."""
    host = values["host_us"] * np.where(work.launch_gpus > 1, work.launch_gpus, 0.0)
    host = host + values["thread_us"] * np.where(work.launch_threads > 1, work.launch_threads, 0.0)
    if "call_us" in values:
        host = host + calls_us(work, values)
    kernel = kernel_us(work, values)
    slow = (work.launch_gpus > 1) | (work.launch_threads > 1) | (work.peers_between > 0)
    if slow.any():
        kernel[..., slow] *= (1 + (host[..., slow] / kernel[..., slow]) ** SHARPNESS) ** (1 / SHARPNESS)
    total: Floats = kernel + values["torch_us"] * work.launch_torch
    return total


def kernel_us(work: TaskArrays, values: Values) -> Floats:
    """Return the same without the host's time."""
    shape = np.broadcast_shapes(*(np.shape(value) for value in values.values()), (len(work),))
    times = np.empty(shape)
    for place in np.unique(work.pair):
        mine = work.pair == place
        algorithm, protocol = PAIRS[place]
        some = work.where(mine)
        if algorithm == "tree":
            taken = _tree(some, protocol, values)
        elif algorithm == "ring":
            taken = _ring(some, protocol, values)
        elif algorithm == "p2p":
            taken = sends_us(some, values)
        else:
            taken = _switch(some, algorithm, values)
        if algorithm in ("tree", "ring"):
            taken = taken + values["base"] * BASE_US[algorithm][PROTOCOLS.index(protocol)]
        times[..., mine] = values["launch_us"] + taken
    return times


def _hop(work: TaskArrays, algorithm: str, protocol: str, values: Values) -> tuple[Floats, Floats]:
    """Return the latency of a hop inside a node and between nodes."""
    column = PROTOCOLS.index(protocol)
    link = np.where(work.nvlink, HOP_US["nvlink"][algorithm][column], HOP_US["pci"][algorithm][column])
    net = HOP_US["net"][algorithm][column]
    pair = f"{algorithm}.{protocol}"
    return (
        link * values["inside"] * values[f"inside.{pair}"],
        net * np.asarray(values["between"] * values[f"between.{pair}"]),
    )


def _links(work: TaskArrays, protocol: str, values: Values) -> tuple[Floats, Floats]:
    """Return the bytes per microsecond of a GPU's links and of a node's cards."""
    inside = values["inside_GBps"] * _GB
    between = np.minimum(values["between_GBps"] * _GB, LINE_SHARE * work.line)
    if protocol != "simple":
        inside = inside * values[f"inside_{protocol}"] * _early(work, protocol, values)
        between = between * values[f"between_{protocol}"]
    return inside * work.used_inside, between * work.used_between


def _early(work: TaskArrays, protocol: str, values: Values) -> Floats:
    """Return the part of its rates inside a node that the protocol reaches in the release."""
    part: Floats = np.where(work.early & (protocol == "ll"), values["early_ll"], 1.0)
    return part


def _rate_inside(work: TaskArrays, protocol: str, values: Values) -> Floats:
    """Return the bytes per microsecond of one message inside a node."""
    rate: Floats = values[f"inside_rate.{protocol}"] * _GB * _early(work, protocol, values)
    return rate


def _ring(work: TaskArrays, protocol: str, values: Values) -> Floats:
    hop_inside, hop_between = _hop(work, "ring", protocol, values)
    link, card = _links(work, protocol, values)
    steps = 2 * (work.ranks - 1) * work.half
    # a piece that goes round once crosses every node's card at worst; NCCL counts one fewer if it goes twice
    round_once = (work.half < 1) & (work.gpus > 1)
    crossings = np.where(work.one, 0.0, 2 * (work.nodes - 1 + round_once) * work.half)
    m, c = work.message, work.channels
    rate = _rate_inside(work, protocol, values)
    inside = np.maximum(m / rate, c * (values["inside_gap_us"] + m / link))
    between = np.maximum(
        m / (values[f"between_rate.{protocol}"] * _GB), c * (values[f"between_gap_us.{protocol}"] + m / card)
    )
    copied = np.where(work.one, values["ring_own"], 0.0)
    sent = work.loops * (steps + copied) * work.slices * np.where(work.one, inside, between)
    total: Floats = (steps - crossings) * hop_inside + crossings * hop_between + sent
    return total


def _tree(work: TaskArrays, protocol: str, values: Values) -> Floats:
    hop_inside, hop_between = _hop(work, "tree", protocol, values)
    link, card = _links(work, protocol, values)
    m, c, two = work.message, work.channels, work.nodes == 2
    gap_inside, gap_between = values["inside_gap_us"], values[f"between_gap_us.{protocol}"]
    burst = np.where(two, 0.5, 1.0) * values["tree_burst"]
    crossing = np.where(two, 1 / values["tree_two"], 2 / values["tree_many"])
    slower = np.maximum(m / _rate_inside(work, protocol, values), c * m / link)
    inside = hop_inside + (c - 1) * gap_inside + slower
    between = hop_between + (c - 1) * gap_between
    between = between + m * np.maximum(1 / (values[f"between_rate.{protocol}"] * _GB), c * burst / card)
    behind = np.where(
        work.one,
        c * m / (values["tree_one"] * link) + c * gap_inside,
        m * np.maximum(1 / (values[f"tree_rate.{protocol}"] * _GB), c * crossing / card) + c * gap_between,
    )
    first: Floats = 2 * (work.gpus - 1) * inside + 2 * np.ceil(np.log2(work.nodes)) * between
    return first + (work.loops - 1) * behind


def _switch(work: TaskArrays, algorithm: str, values: Values) -> Floats:
    """Return the times of sums in switches: inside nodes by NVSwitch, between them by trees or the network.

    NVSwitch sums a chunk for each head and channel in a loop, and smaller data have smaller chunks: a loop
    costs time of its own, and the first fills the stages. In a tree of nodes a loop takes no less than the
    way up a level and down again. A node's cards carry the size once between two nodes or if the network
    adds, and twice where a tree branches. The slowest of these counts.
    """
    size, ranks, gpus = work.nbytes, work.ranks, work.gpus
    link, card = _links(work, "simple", values)
    levels, crossing = np.where(work.one, 0.0, 2.0), np.where(work.one, 0.0, 1 / values["collnet"])
    if algorithm == "nvls":
        whole = values["nvls_GBps"] * np.where(work.half == 1, 1.0, values["nvls_gather"])
        port = whole * (_GB * 9 / 14)  # eight ranks: 1 + 1/8 of the size through a port, 7/4 on the bus
        byte_us, loop_us = np.where(work.half == 1, 1 + 1 / ranks, 1.0) / port, values["nvls_loop_us"]
    elif algorithm == "nvls_tree":
        levels = 2 * np.ceil(np.log2(work.nodes))
        crossing = np.where(work.nodes == 2, 1 / values["tree_two"], 2 / values["nvls_tree_many"])
        byte_us = 2 * (ranks - 1) / ranks / (values["nvls_tree_GBps"] * _GB)
        loop_us = values["nvls_tree_loop_us"]
    else:
        byte_us, loop_us = 2 * ((gpus - 1) / gpus if algorithm == "collnet_direct" else 1.0) / link, 0.0
    latency = HOP_US["nvlink"]["nvls"][2] * values["nvls"]
    level = HOP_US["net"]["nvls_tree"][2] * values["nvls_tree"]
    first = latency + levels * level + values["nvls_fill"] * work.filling * byte_us
    pace = (work.loops - 1) * np.minimum(levels, 2.0) * level
    summed = np.maximum(work.loops * loop_us + size * byte_us, pace)
    total: Floats = first + np.maximum(summed, size * crossing / card)
    return total
