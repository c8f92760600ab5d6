"""One rank of a measured DistributedDataParallel run: train, and record every event.

Started by `ringside.real.launch.rank`. For each timed step rank 0 appends one JSON line to ROWS with the
events of all ranks, in seconds of the machine's monotonic clock.
"""

import json
import math
import os
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import GradBucket
from torch.distributed.distributed_c10d import PrefixStore, _get_default_store
from torch.nn.parallel import DistributedDataParallel

from ringside.real.backends import ON_GPU, ON_SOCKETS
from ringside.real.clock import StartingGun, memory_bandwidth, stamps
from ringside.real.ddp.compressed import Compressed
from ringside.real.ddp.job import DdpJob
from ringside.real.ddp.models import Computing, SleepingModel
from ringside.real.host import fingerprint, own_device
from ringside.real.launch.follow import show_life
from ringside.real.launch.loopback import joined
from ringside.real.machine import run_first
from ringside.real.model.user_model import loss
from ringside.sim.training.ddp.buckets import check_used
from ringside.sim.training.ddp.step import Activity
from ringside.sim.workload.file import read
from ringside.sim.workload.workload import Workload

_REPEATS = 9
"""Runs of an all-reduce alone."""

Tensors = torch.futures.Future[list[torch.Tensor]]


@dataclass(slots=True)
class Seen:
    """One rank's events of one pass, as stamps of its clock; parameters and buckets by their index."""

    begin: Any = None
    forwarded: Any = None
    end: Any = None
    arrived: dict[int, Any] = field(default_factory=dict)
    members: dict[int, list[int]] = field(default_factory=dict)
    nbytes: dict[int, int] = field(default_factory=dict)
    launch: dict[int, Any] = field(default_factory=dict)
    finish: dict[int, Any] = field(default_factory=dict)


class DdpTrainee:
    """The model under DistributedDataParallel, with a hook that stamps each bucket."""

    def __init__(self, job: DdpJob, group: Any, device: torch.device) -> None:
        self.subject = _computing(job, device) if job.model else _sleeping(job)
        self._group = group
        self._clock = stamps(device)
        self._seen = Seen()
        trainable = [tensor for tensor in self.subject.module.parameters() if tensor.requires_grad]
        self._position = {id(tensor): index for index, tensor in enumerate(trainable)}
        for index, tensor in enumerate(trainable):
            tensor.register_post_accumulate_grad_hook(self._arrival(index))  # type: ignore[no-untyped-call]
        self._ddp = DistributedDataParallel(
            self.subject.module,
            bucket_cap_mb=job.bucketing.bucket_cap_mb,
            bucket_cap_mb_list=list(job.bucketing.bucket_cap_mb_list) or None,  # type: ignore[arg-type]
            find_unused_parameters=job.bucketing.find_unused_parameters,
            static_graph=job.bucketing.static_graph,
            gradient_as_bucket_view=job.gradient_as_bucket_view,
        )
        self._compressed = (
            Compressed(job.powersgd, group, self._clock.now) if job.comm_hook == "powersgd" else None
        )
        self._ddp.register_comm_hook(None, self._reduce)

    def step(self, gun: StartingGun) -> dict[str, Any]:
        """Run one step, started together on all ranks, and return this rank's events."""
        seen, seconds = self._pass(self._ddp, gun), self._clock.seconds
        begin, end, forwarded = seconds(seen.begin), seconds(seen.end), seconds(seen.forwarded)
        arrived = {index: seconds(stamp) for index, stamp in seen.arrived.items()}
        ready = {
            index: max((arrived[i] for i in members if i in arrived), default=forwarded)
            for index, members in seen.members.items()
        }
        if self._compressed:
            buckets = self._parts(ready)
        else:
            buckets = [
                {
                    "parameters": seen.members[index],
                    "nbytes": seen.nbytes[index],
                    "ready": ready[index],
                    "launch": seconds(seen.launch[index]),
                    "finish": seconds(seen.finish[index]),
                }
                for index in sorted(seen.launch)
            ]
        spans = self.subject.spans or [
            Activity(begin, forwarded, "forward", "forward"),
            Activity(forwarded, max(arrived.values()), "backward", "backward"),
        ]
        spans = [*spans, Activity(max(span.end for span in spans), end, "wait", "wait for buckets")]
        return {"begin": begin, "end": end, "spans": spans, "buckets": buckets}

    def wrong(self) -> int:
        """Return the number of gradients or compressed buckets that differ from the average."""
        return self._compressed.wrong(self.subject.average) if self._compressed else self.subject.wrong()

    def hook_alone(self, gun: StartingGun) -> list[list[float]]:
        """Return the seconds of PowerSGD's own work per bucket; empty without it."""
        return self._compressed.alone(gun.wait) if self._compressed else []

    def alone(self, gun: StartingGun) -> dict[str, Any]:
        """Run a pass of all ranks without communication, started together; return its times."""
        seen, seconds = self._pass(self.subject.module, gun), self._clock.seconds
        begin = seconds(seen.begin)
        return {
            "forwarded": seconds(seen.forwarded) - begin,
            "arrived": {index: seconds(stamp) - begin for index, stamp in seen.arrived.items()},
            "end": seconds(seen.end) - begin,
        }

    def all_reduces(
        self, sizes: Sequence[int], gun: StartingGun, device: torch.device
    ) -> list[tuple[int, float]]:
        """Return bytes and seconds of all-reduces that run alone: medians, on the last rank."""
        times = []
        for nbytes in sizes:
            data, seconds = torch.ones(nbytes // 4, device=device), []
            for _ in range(_REPEATS):
                gun.wait()
                self._clock.begin()
                begin = self._clock.now()
                self._group.allreduce([data]).wait()
                seconds.append(self._clock.seconds(self._clock.now()) - self._clock.seconds(begin))
            slowest = torch.tensor(seconds, dtype=torch.float64, device=device)
            dist.all_reduce(slowest, dist.ReduceOp.MAX)
            times.append((nbytes, float(slowest.median())))
        return times

    def beside(self, nbytes: int, count: int, gun: StartingGun, device: torch.device) -> dict[str, Any]:
        """Run a pass without gradient exchange on all ranks, concurrently with a sequence of all-reduces."""
        data, ends = torch.ones(nbytes // 4, device=device), []

        def reduce() -> None:
            for _ in range(count):
                self._group.allreduce([data]).wait()
                ends.append(time.monotonic())

        thread = threading.Thread(target=reduce)

        def begun() -> None:
            ends.append(time.monotonic())
            thread.start()

        seen, seconds = self._pass(self.subject.module, gun, begun), self._clock.seconds
        thread.join()
        until = seconds(seen.end)
        done = [end for end in ends if end <= until]
        each = (done[-1] - done[0]) / (len(done) - 1) if len(done) > 1 else None
        return {"end": until - seconds(seen.begin), "nbytes": nbytes, "all_reduce": each}

    def _parts(self, ready: Mapping[int, float]) -> list[dict[str, Any]]:
        """Return the all-reduces of compressed buckets; all but a bucket's first are ready at their call."""
        assert self._compressed
        seen, seconds = self._seen, self._clock.seconds
        return [
            {
                "name": f"bucket {index}{one['part']}",
                "parameters": seen.members[index],
                "nbytes": one["nbytes"],
                "ready": seconds(one["launch"]) if one["part"] else ready[index],
                "launch": seconds(one["launch"]),
                "finish": seconds(one["finish"]),
            }
            for index, chain in sorted(self._compressed.chains.items())
            for one in chain.entries()
        ]

    def close(self) -> None:
        """Release the process group: its threads must end before the interpreter does."""
        del self._group, self._compressed

    def _pass(self, model: nn.Module, gun: StartingGun, begun: Callable[[], None] = lambda: None) -> Seen:
        seen = self._seen = Seen()
        if self._compressed:
            self._compressed.begin()
        model.zero_grad(set_to_none=True)
        self.subject.prepare()
        gun.wait()
        self._clock.begin()
        begun()
        seen.begin = self._clock.now()
        self.subject.begin()
        outputs = model(*self.subject.inputs)
        seen.forwarded = self._clock.now()
        loss(outputs).backward()  # type: ignore[no-untyped-call]
        seen.end = self._clock.now()
        return seen

    def _arrival(self, index: int) -> Callable[[torch.Tensor], None]:
        def arrived(_: torch.Tensor) -> None:
            self._seen.arrived[index] = self._clock.now()

        return arrived

    def _reduce(self, state: object, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        seen, index, data = self._seen, bucket.index(), bucket.buffer()
        seen.members[index] = [self._position[id(tensor)] for tensor in bucket.parameters()]
        seen.nbytes[index] = data.numel() * data.element_size()
        if self._compressed:
            return self._compressed.reduce(bucket)
        data.div_(dist.get_world_size())
        seen.launch[index] = self._clock.now()

        def finished(reduced: Tensors) -> torch.Tensor:
            seen.finish[index] = self._clock.now()
            return reduced.value()[0]

        done: torch.futures.Future[torch.Tensor] = self._group.allreduce([data]).get_future().then(finished)
        return done


def carry_out(order: Path, rows: Path) -> None:
    """Join the process group that torchrun's environment variables describe, and run this rank's part."""
    job = DdpJob.read(order)
    torch.set_num_threads(1)
    if job.realtime:
        run_first()
    device = own_device(job.backend)
    with joined(job.backend, job.timeout_s):
        _train(job, rows, device)


def _train(job: DdpJob, rows: Path, device: torch.device) -> None:
    trainee, gun = DdpTrainee(job, _group(job), device), StartingGun(device)
    all_reduces = trainee.all_reduces(job.all_reduces, gun, device)
    alone: dict[str, Any] = {"memory_bandwidth": memory_bandwidth(device), "all_reduce": all_reduces}
    for iteration in range(job.untimed + job.iterations):
        if iteration == job.untimed:
            alone["hook"] = trainee.hook_alone(gun)
        # the second of two passes runs on a warmer machine, so they alternate
        times = job.model and iteration >= job.untimed
        before = trainee.alone(gun) if times and iteration % 2 else None
        seen = trainee.step(gun)
        dist.barrier()  # a rank that checks its gradients takes a core from one that still runs
        seen["wrong"] = trainee.wrong()
        if times:
            seen["alone"] = before or trainee.alone(gun)
            if job.backend in ON_SOCKETS and all_reduces:
                nbytes, count = _company(seen, all_reduces)
                seen["beside"] = trainee.beside(nbytes, count, gun, device)
        everybody: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(everybody, seen)
        if any(own["wrong"] for own in everybody):
            raise SystemExit("a gradient is not the average over all ranks")
        if dist.get_rank() == 0:
            show_life(rows)
        if iteration >= job.untimed and dist.get_rank() == 0:
            row = {"ranks": everybody, **alone, "fingerprint": fingerprint()}
            with rows.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
    trainee.close()


def _company(seen: dict[str, Any], all_reduces: Sequence[tuple[int, float]]) -> tuple[int, int]:
    """Return the bucket-like size of the all-reduces beside a pass, and a number that outlasts it."""
    usual = sum(bucket["nbytes"] for bucket in seen["buckets"]) / len(seen["buckets"])
    nbytes, seconds = min(all_reduces, key=lambda one: abs(math.log(one[0] / usual)))
    count = [math.ceil(3 * seen["alone"]["end"] / seconds)]
    dist.broadcast_object_list(count, 0)
    return nbytes, count[0]


def _group(job: DdpJob) -> Any:
    """Return the process group of buckets; c10d has no public option for Gloo's number of workers."""
    if job.backend in ON_GPU:
        return dist.group.WORLD
    make: Any = dist.ProcessGroupGloo
    options = make._Options()
    options._threads = job.workers
    options._timeout = timedelta(seconds=job.timeout_s)
    interface = os.environ.get("GLOO_SOCKET_IFNAME")
    device = make.create_device(interface=interface) if interface else make.create_default_device()
    options._devices = [device]
    store = PrefixStore("buckets", _get_default_store())
    return make(store, dist.get_rank(), dist.get_world_size(), options)


def _computing(job: DdpJob, device: torch.device) -> Computing:
    subject = Computing(job.model, device)
    try:
        check_used(subject.unused, job.bucketing)
    except ValueError as error:
        raise SystemExit(str(error)) from error
    return subject


def _sleeping(job: DdpJob) -> SleepingModel:
    return SleepingModel(_workload(job), job.slowdown.get(dist.get_rank(), 1.0), job.sigma, job.seed)


def _workload(job: DdpJob) -> Workload:
    with tempfile.NamedTemporaryFile("w", suffix=".yaml", encoding="utf-8") as file:
        file.write(job.workload)
        file.flush()
        return read(Path(file.name))
