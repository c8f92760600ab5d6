"""What a collective is to a machine: messages, channels, loops - everything but how long they take."""

from collections.abc import Iterable
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from sim.libraries.nccl.communicator import Communicator
from sim.libraries.nccl.device.chunks import chunking
from sim.libraries.nccl.graph.graph import PathClass
from sim.libraries.nccl.measured.parameters import ALGORITHMS, PROTOCOLS
from sim.libraries.nccl.tuning.channels import channel_bytes, launch

Floats = NDArray[np.float64]

PAIRS = (
    *((algorithm, protocol) for algorithm in ALGORITHMS for protocol in PROTOCOLS),
    *(("nvls", "simple"), ("nvls_tree", "simple")),
)
"""What has a form; ways by CollNet, PAT and sends and receives have none."""

KINDS = ("all_reduce", "all_gather", "reduce_scatter")


@dataclass(frozen=True, slots=True)
class Launch:
    """How the host starts a collective: GPUs that one thread drives, threads of one process."""

    gpus: int = 1
    threads: int = 1


ONE_GPU = Launch()
"""A process for each GPU."""


@dataclass(frozen=True, slots=True)
class Task:
    """One collective by one pair on one communicator; ``nbytes`` as nccl-tests count."""

    comm: Communicator
    kind: str
    nbytes: int
    pair: tuple[str, str]
    launch: Launch = ONE_GPU


@dataclass(frozen=True, eq=False, slots=True)
class Work:
    """Tasks as arrays, a figure a task.

    ``pair`` is the place in `PAIRS`, ``gpus`` are ranks a node, ``message`` bytes in one message of one
    channel, of which ``slices`` make a chunk and ``loops`` chunks a channel's part. ``half`` is 1/2 where a
    ring goes round once. ``used_inside`` and ``used_between`` are the shares of a machine's links in use.
    """

    pair: NDArray[np.int64]
    nodes: Floats
    gpus: Floats
    nbytes: Floats
    channels: Floats
    message: Floats
    loops: Floats
    slices: Floats
    half: Floats
    nvlink: NDArray[np.bool_]
    used_inside: Floats
    used_between: Floats
    launch_gpus: Floats
    launch_threads: Floats

    @property
    def ranks(self) -> Floats:
        """Ranks in all."""
        return self.nodes * self.gpus

    @property
    def one(self) -> NDArray[np.bool_]:
        """Whether there is one node alone."""
        return np.equal(self.nodes, 1)

    def __len__(self) -> int:
        return len(self.pair)

    def where(self, mask: NDArray[np.bool_]) -> "Work":
        """Some of the tasks."""
        return Work(*(getattr(self, field.name)[mask] for field in fields(self)))


def has_form(kind: str, pair: tuple[str, str]) -> bool:
    """Whether there is a form for a collective by this pair."""
    return kind in KINDS and pair in PAIRS


def work_of(tasks: Iterable[Task]) -> Work:
    """The tasks as arrays; each must have a form."""
    rows = [_row(task) for task in tasks]
    columns = [np.array(column) for column in zip(*rows, strict=True)]
    return Work(*columns)


def _row(task: Task) -> tuple[float | int | bool, ...]:
    comm, system = task.comm, task.comm.system
    channels, message, loops, slices = _messages(task)
    used = 1.0 if system.nvswitch or not system.nvlink else max(comm.gpus - 1, 1) / max(system.gpus - 1, 1)
    part = min(comm.gpus / system.gpus, 1.0)
    return (
        *(PAIRS.index(task.pair), float(comm.nodes), float(comm.gpus), float(task.nbytes)),
        *(channels, message, loops, slices, 1.0 if task.kind == "all_reduce" else 0.5),
        *(comm.graphs.ring.type_intra is PathClass.NVL, used, part),
        *(float(task.launch.gpus), float(task.launch.threads)),
    )


def _messages(task: Task) -> tuple[float, float, float, float]:
    """Channels in use, bytes of one message, chunks one after another in a channel, messages of a chunk."""
    comm, (algorithm, protocol), nbytes = task.comm, task.pair, task.nbytes
    if algorithm in ("nvls", "nvls_tree"):
        return float(comm.nvls_channels), float(nbytes), 1.0, 1.0
    channels = launch(comm, algorithm, protocol, nbytes)[0]
    if comm.constants.dealt_in_cells:
        channels = max(len(channel_bytes(comm, task.kind, algorithm, protocol, nbytes)), 1)
    share = nbytes / channels
    cuts = chunking(comm, task.kind, algorithm, protocol, int(share))
    if algorithm == "tree":
        return float(channels), min(share, cuts.chunk), max(share / cuts.chunk, 1.0), 1.0
    loops = float(max(-(-share // (comm.ranks * cuts.chunk)), 1.0))
    return float(channels), share / comm.ranks / loops / cuts.slices, loops, float(cuts.slices)
