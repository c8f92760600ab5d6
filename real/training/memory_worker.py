"""One rank that trains and counts its memory, alone or as one of a job's.

Among others it is started by `ringside.real.launch.rank`. Alone its process group moves nothing: collectives
return at once, with whatever their outputs have in them.
"""

import json
import warnings
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor
from torch.testing._internal.distributed.fake_pg import FakeStore

from ringside.real.launch.loopback import joined
from ringside.real.training.memory import GRADIENTS, OPTIMIZER, PARAMETERS, MeasuredPeak, MemoryJob
from ringside.real.training.parallel import trainee
from ringside.real.training.sleeping import SimulatedDevice
from ringside.real.training.storages import StorageRecorder


def count_alone(job: MemoryJob) -> MeasuredPeak:
    """Train as the first rank of the job, without the others, and return the peak."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", UserWarning)  # torch warns of its own views
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=job.mesh.ranks)
    return _count(job)


def carry_out(order: Path, rows: Path) -> None:
    """Join the process group that torchrun's environment variables describe; rank 0 writes all peaks."""
    job = MemoryJob.read(order)
    torch.set_num_threads(1)
    with joined("gloo", job.timeout_s):
        everybody: list[Any] = [None] * dist.get_world_size()
        own = _count(job)
        dist.all_gather_object(everybody, own)
        if not dist.get_rank():
            rows.write_text(json.dumps({"ranks": everybody}) + "\n", encoding="utf-8")


def _count(job: MemoryJob) -> MeasuredPeak:
    """Train, and return the peak of a step after the warm-up, when optimizer and buckets exist.

    It is the least of several steps: a thread of Gloo may let go of what it sent late.
    """
    peaks = []
    recorder = StorageRecorder()
    with recorder:
        own = trainee(job, SimulatedDevice())
        optimizers = [
            torch.optim.AdamW(list(some), fused=True)
            for _, some in groupby(sorted(own.parameters, key=_is_dtensor), key=_is_dtensor)
        ]
        for _ in range(job.warmup + job.iterations):
            own.forget()
            recorder.start()
            own.step()
            recorder.tell(GRADIENTS, [one.grad for one in own.parameters])
            recorder.tell(PARAMETERS, own.parameters)
            for one in optimizers:
                one.step()
                recorder.tell(OPTIMIZER, [list(state.values()) for state in one.state.values()])
            peaks.append(recorder.peak)
    peak = min(peaks[job.warmup :], key=lambda one: one.nbytes)
    return MeasuredPeak(dict(peak.by_kind()), peak.operator)


def _is_dtensor(parameter: torch.Tensor) -> bool:
    """Return whether a parameter is one: a fused optimizer steps only parameters that are alike."""
    return isinstance(parameter, DTensor)
