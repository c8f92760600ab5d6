"""Peaks of ranks' memory by torch's own accounting, while a small decoder is really trained with Adam."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from importlib import import_module
from multiprocessing import get_context
from typing import ClassVar, NamedTuple

from ringside.real.launch.follow import check_torch
from ringside.real.launch.torchrun import WorldSpec, run
from ringside.real.training.job import SmallDecoder, SmallGpt, TrainingJob

PARAMETERS = "parameters"
GRADIENTS = "gradients"
OPTIMIZER = "optimizer"
ACTIVATIONS = "activations"
GATHERED = "gathered parameters"
BUFFERS = "buffers"
TEMPORARIES = "temporaries"
"""What storages hold; the last are what backward makes and drops."""

_WORKER = "ringside.real.training.memory_worker"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryJob(TrainingJob):
    """A job whose ranks count their memory in the step after the warm-up; its model is a decoder."""

    worker: ClassVar[str] = _WORKER

    model: SmallDecoder | SmallGpt = field(default_factory=SmallDecoder)


class MeasuredPeak(NamedTuple):
    """A rank's peak in bytes, by what its storages hold, and the operator that reached it."""

    by_kind: Mapping[str, int]
    operator: str


def measure_together(job: MemoryJob) -> list[MeasuredPeak]:
    """Return the peak of each rank of the job, trained over Gloo.

    Raise `ringside.real.launch.follow.MeasureError` where a rank dies or hangs.
    """
    peaks: list[MeasuredPeak] = []
    run(job, WorldSpec(job.mesh.ranks), lambda row: peaks.extend(MeasuredPeak(*one) for one in row["ranks"]))
    return peaks


def measure_alone(jobs: Sequence[MemoryJob], processes: int = 2) -> Iterator[MeasuredPeak]:
    """Yield the peak of the first rank of each job; it trains without the others, in a process of its own.

    Ranks of a pipeline ask each other what they pass, so they train only together. torch keeps what it knows
    of a mesh after the process group is gone, so no process trains twice.
    """
    check_torch()
    context = get_context("forkserver")
    context.set_forkserver_preload([_WORKER])
    with ProcessPoolExecutor(processes, mp_context=context, max_tasks_per_child=1) as pool:
        yield from pool.map(_alone, jobs)


def _alone(job: MemoryJob) -> MeasuredPeak:
    peak: MeasuredPeak = import_module(_WORKER).count_alone(job)
    return peak
