"""One rank of a real training: train the job's steps, and record all communication with its times.

Started as ``python -m ringside.real.training.worker JOB ROWS`` with torchrun's environment variables, or
forked. For each timed step rank 0 appends one JSON line to ROWS with all ranks' communication, in seconds
from the moment at which the first of them began.
"""

import json
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from ringside.real.clock import StartingGun
from ringside.real.host import fingerprint
from ringside.real.launch.follow import show_life
from ringside.real.launch.loopback import join
from ringside.real.launch.rank import live
from ringside.real.machine import run_first
from ringside.real.training.job import TrainingJob
from ringside.real.training.parallel import CPU, trainee
from ringside.real.training.record import RankStep
from ringside.real.training.recorder import Recorder
from ringside.real.training.sleeping import Device


def main() -> None:
    """Carry out the job on this rank under torchrun."""
    live(carry_out)


def carry_out(order: Path, rows: Path) -> None:
    """Join the process group that torchrun's environment variables describe, and run this rank's part."""
    job = TrainingJob.read(order)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    if job.realtime:
        run_first()
    join("gloo", job.timeout_s)
    try:
        if dist.get_world_size() != job.mesh.ranks:
            raise SystemExit(f"{dist.get_world_size()} ranks train a job of {job.mesh.ranks}")
        _train(job, rows)
    finally:
        dist.destroy_process_group()


def _train(job: TrainingJob, rows: Path) -> None:
    device = Device()
    own, recorder, gun = trainee(job, device), Recorder(device.now), StartingGun(CPU)
    for iteration in range(job.warmup + job.iterations):
        own.forget()
        gun.wait()
        begin = time.monotonic()
        device.now()
        with recorder:
            own.step()
        seen = RankStep(begin, time.monotonic(), tuple(recorder.said))
        everybody: list[Any] = [None] * dist.get_world_size()
        dist.all_gather_object(everybody, seen)
        if dist.get_rank():
            continue
        show_life(rows)
        if iteration >= job.warmup:
            row = {"ranks": _from_the_first(everybody), "fingerprint": fingerprint()}
            with rows.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")


def _from_the_first(everybody: list[RankStep]) -> list[RankStep]:
    """Return the ranks' times, in seconds since the first of them began."""
    zero = min(seen.begin_s for seen in everybody)
    return [
        RankStep(
            seen.begin_s - zero,
            seen.end_s - zero,
            tuple(
                one._replace(begin_s=one.begin_s - zero, end_s=min(one.end_s, seen.end_s) - zero)
                for one in seen.said
            ),
        )
        for seen in everybody
    ]


if __name__ == "__main__":
    main()
