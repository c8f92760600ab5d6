"""One rank's work: carry out a job, check every result, write every time.

Started by `ringside.real.launch.rank`, or forked. Rank 0 appends one JSON line per size to ROWS.
"""

import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from ringside.real.backends import ON_GPU, ON_SOCKETS
from ringside.real.clock import StartingGun
from ringside.real.collective.job import PING_PONG, CollectiveJob, row_of
from ringside.real.collective.programs import Buffers, GlooProgram, LibraryProgram, NcclProgram, PingPong
from ringside.real.host import fingerprint, own_device
from ringside.real.launch.follow import show_life
from ringside.real.launch.loopback import joined
from ringside.real.machine import run_first
from ringside.sim.algorithms import schedule
from ringside.sim.collective import Collective, itemsize
from ringside.sim.proof import prove
from ringside.sim.schedule import even_chunks

Program = GlooProgram | NcclProgram | LibraryProgram | PingPong


def carry_out(order: Path, rows: Path) -> None:
    """Join the process group that torchrun's environment variables describe, and run this rank's part."""
    job = CollectiveJob.read(order)
    torch.set_num_threads(1)
    device = own_device(job.backend)
    if job.backend in ON_SOCKETS:
        run_first()
    with joined(job.backend, job.timeout_s, device if device.type == "cuda" else None):
        gun = StartingGun(device)
        for nbytes in job.sizes:
            row = _measure(job, nbytes, device, gun, rows)
            if dist.get_rank() == 0:
                with rows.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")


def _measure(
    job: CollectiveJob, nbytes: int, device: torch.device, gun: StartingGun, rows: Path
) -> dict[str, Any]:
    """Measure one size; return its row, or exit with an error where a sum is wrong."""
    collective = Collective(job.collective, dist.get_world_size(), nbytes, itemsize(job.dtype))
    program, buffers = _program(job, collective, device)
    messages = PingPong.MESSAGES if job.algorithm == PING_PONG else 1
    seconds, wrong = [], 0
    for iteration in range(job.warmup + job.iterations):
        program.prepare()
        gun.wait()
        seconds.append(_timed(program, device) / messages)
        if dist.get_rank() == 0:
            show_life(rows)
        if iteration in (0, job.warmup + job.iterations - 1):
            dist.barrier()  # a rank that checks its result takes a core from one that still runs
            program.collect()
            wrong += buffers.num_wrong()
    if wrong:
        print(f"{wrong} elements differ from the exact {job.collective} of {nbytes} B", file=sys.stderr)
    reached = torch.tensor([*seconds[job.warmup :], wrong], dtype=torch.float64, device=device)
    dist.all_reduce(reached, dist.ReduceOp.MAX)
    *slowest, worst = reached.tolist()
    if worst:
        raise SystemExit(1)
    return row_of(nbytes, slowest, fingerprint())


def _program(job: CollectiveJob, collective: Collective, device: torch.device) -> tuple[Program, Buffers]:
    dtype, rank = getattr(torch, job.dtype), dist.get_rank()
    if job.algorithm == "library":
        buffers = Buffers(collective, even_chunks(collective), rank, dtype, device)
        return LibraryProgram(collective, rank, buffers), buffers
    if job.algorithm == PING_PONG:
        members = min(2, collective.ranks - rank // 2 * 2)
        pair = replace(collective, ranks=members)
        buffers = Buffers(pair, even_chunks(pair), rank % 2, dtype, device)
        return PingPong(rank, collective.ranks, buffers), buffers
    plan = schedule(job.algorithm, collective)
    prove(plan)
    buffers = Buffers(collective, plan.chunks, rank, dtype, device)
    over = NcclProgram if job.backend in ON_GPU else GlooProgram
    return over(plan, rank, buffers), buffers


def _timed(program: Program, device: torch.device) -> float:
    """Return the seconds of one run: from the device's events on CUDA, from the clock on a CPU."""
    if device.type == "cuda":
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        begin.record()
        program.run()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) / 1e3
    begun = time.perf_counter()
    program.run()
    return time.perf_counter() - begun
