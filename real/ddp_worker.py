"""One rank of a measured DistributedDataParallel: train, and write down what happened when.

Started as ``python -m real.ddp_worker JOB ROWS`` with torchrun's environment variables. For each timed
step rank 0 appends one JSON line to ROWS, which holds what every rank saw, in seconds from the moment
at which the first of them began.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket
from torch.distributed.distributed_c10d import PrefixStore, _get_default_store
from torch.nn.parallel import DistributedDataParallel

from real.clock import StartingGun
from real.ddp_job import DdpJob
from real.host import fingerprint, run_first
from real.sleeping import Sleeping
from real.watch import die_with_parent
from sim.training.step import Span
from sim.workload import Workload
from sim.workload_file import read

Tensors = torch.futures.Future[list[torch.Tensor]]


@dataclass(slots=True)
class Seen:
    """What one rank saw of one step, by the monotonic clock; buckets by their index."""

    begin: float = 0.0
    end: float = 0.0
    arrived: dict[int, float] = field(default_factory=dict)
    members: dict[int, list[int]] = field(default_factory=dict)
    nbytes: dict[int, int] = field(default_factory=dict)
    launch: dict[int, float] = field(default_factory=dict)
    finish: dict[int, float] = field(default_factory=dict)
    spans: list[Span] = field(default_factory=list)

    def plain(self) -> dict[str, Any]:
        """What the other ranks and the launcher are told."""
        buckets = [
            {
                "parameters": self.members[index],
                "nbytes": self.nbytes[index],
                "ready": max(self.arrived[parameter] for parameter in self.members[index]),
                "launch": self.launch[index],
                "finish": self.finish[index],
            }
            for index in sorted(self.launch)
        ]
        return {"begin": self.begin, "end": self.end, "spans": self.spans, "buckets": buckets}


class Trainee:
    """The model under DistributedDataParallel, with a hook that watches each bucket."""

    def __init__(self, job: DdpJob, group: Any) -> None:
        self.seen = Seen()
        self.model = Sleeping(_workload(job), gradient=dist.get_rank() + 1.0)
        self._group = group
        self._position = {id(tensor): index for index, tensor in enumerate(self.model.tensors)}
        for index, tensor in enumerate(self.model.tensors):
            tensor.register_post_accumulate_grad_hook(self._arrival(index))
        self._ddp = DistributedDataParallel(
            self.model,
            bucket_cap_mb=job.bucketing.bucket_cap_mb,
            find_unused_parameters=job.bucketing.find_unused_parameters,
            static_graph=job.bucketing.static_graph,
            gradient_as_bucket_view=job.gradient_as_bucket_view,
        )
        self._ddp.register_comm_hook(None, self._reduce)

    def step(self, gun: StartingGun) -> Seen:
        """One step of all ranks, begun together."""
        seen = self.seen = Seen()
        self._ddp.zero_grad(set_to_none=True)
        gun.wait()
        seen.begin = time.monotonic()
        self.model.begin()
        self._ddp(torch.zeros(1)).sum().backward()
        seen.end = time.monotonic()
        computed = max(span.end for span in self.model.spans)
        seen.spans = [*self.model.spans, Span(computed, seen.end, "wait", "wait for buckets")]
        return seen

    def wrong(self) -> int:
        """How many parameters have another gradient than the average over all ranks."""
        average = (dist.get_world_size() + 1) / 2
        gradients = [tensor.grad for tensor in self.model.tensors]
        return sum(grad is None or not bool((grad == average).all()) for grad in gradients)

    def _arrival(self, index: int) -> Callable[[torch.Tensor], None]:
        def arrived(_: torch.Tensor) -> None:
            self.seen.arrived[index] = time.monotonic()

        return arrived

    def _reduce(self, state: object, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        seen, index, data = self.seen, bucket.index(), bucket.buffer()
        seen.members[index] = [self._position[id(tensor)] for tensor in bucket.parameters()]
        seen.nbytes[index] = data.numel() * data.element_size()
        data.div_(dist.get_world_size())
        seen.launch[index] = time.monotonic()

        def finished(reduced: Tensors) -> torch.Tensor:
            seen.finish[index] = time.monotonic()
            return reduced.value()[0]

        done: torch.futures.Future[torch.Tensor] = self._group.allreduce([data]).get_future().then(finished)
        return done


def main() -> None:
    """Carry out the job as one of its ranks."""
    die_with_parent()
    job, rows = DdpJob.read(Path(sys.argv[1])), Path(sys.argv[2])
    torch.set_num_threads(1)
    if job.realtime:
        run_first()
    dist.init_process_group("gloo", timeout=timedelta(seconds=job.timeout_s))
    try:
        _train(job, rows)
    finally:
        dist.destroy_process_group()


def _train(job: DdpJob, rows: Path) -> None:
    trainee, gun = Trainee(job, _group(job)), StartingGun(torch.device("cpu"))
    for iteration in range(job.warmup + job.iterations):
        seen = trainee.step(gun)
        dist.barrier()  # a rank that checks its gradients takes a core from one that is not done
        everybody: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(everybody, {**seen.plain(), "wrong": trainee.wrong()})
        if any(own["wrong"] for own in everybody):
            raise SystemExit("a gradient is not the average over all ranks")
        if iteration >= job.warmup and dist.get_rank() == 0:
            row = {"ranks": everybody, "fingerprint": fingerprint()}
            with rows.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")


def _group(job: DdpJob) -> Any:
    """A process group of so many workers; torch.distributed's own takes no options for Gloo."""
    make: Any = dist.ProcessGroupGloo
    options = make._Options()
    options._threads = job.workers
    options._timeout = timedelta(seconds=job.timeout_s)
    interface = os.environ.get("GLOO_SOCKET_IFNAME")
    device = make.create_device(interface=interface) if interface else make.create_default_device()
    options._devices = [device]
    store = PrefixStore("buckets", _get_default_store())
    return make(store, dist.get_rank(), dist.get_world_size(), options)


def _workload(job: DdpJob) -> Workload:
    with tempfile.NamedTemporaryFile("w", suffix=".yaml", encoding="utf-8") as file:
        file.write(job.workload)
        file.flush()
        return read(Path(file.name))


if __name__ == "__main__":
    main()
