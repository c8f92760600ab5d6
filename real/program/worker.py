"""One rank of a real run of a program: run the script's ``main``, and record every operation.

Started as ``python -m ringside.real.program.worker JOB ROWS`` with torchrun's environment variables, or
forked. For each timed iteration rank 0 appends one JSON line to ROWS with the operations of all ranks, in
seconds from the moment at which the first of them began.
"""

import json
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from ringside.real.backends import ON_SOCKETS
from ringside.real.clock import StartingGun, stamps
from ringside.real.host import fingerprint, own_device
from ringside.real.launch.follow import show_life
from ringside.real.launch.loopback import join
from ringside.real.launch.rank import live
from ringside.real.machine import run_first
from ringside.real.program.computing import computing
from ringside.real.program.distributed import RealDistributed
from ringside.real.program.job import ProgramJob
from ringside.real.program.timed import Timed
from ringside.sim.program.record.script import a_process, main_of


def main() -> None:
    """Carry out the job on this rank under torchrun."""
    live(carry_out)


def carry_out(order: Path, rows: Path) -> None:
    """Join the process group that torchrun's environment variables describe, and run this rank's part."""
    job = ProgramJob.read(order)
    torch.set_num_threads(1)
    device = own_device(job.backend)
    compute = computing(job.compute, device)  # measured before ranks that run first take the cores
    if job.backend in ON_SOCKETS and job.compute == "sleep":
        run_first()
    join(job.backend, job.timeout_s, device if job.eager else None)
    try:
        _repeat(job, Timed(RealDistributed(compute, str(device), job.timeout_s), stamps(device)), rows)
    finally:
        dist.destroy_process_group()


def _repeat(job: ProgramJob, timed: Timed, rows: Path) -> None:
    """Run all iterations, each started together on all ranks with the script loaded again."""
    gun, script = StartingGun(timed.device), Path(job.script)
    with a_process(script):
        for iteration in range(job.warmup + job.iterations):
            main = main_of(script)
            gun.wait()
            own = timed.run(main)
            everybody: list[Any] = [None] * dist.get_world_size()
            dist.all_gather_object(everybody, own)
            if dist.get_rank():
                continue
            show_life(rows)
            if iteration >= job.warmup:
                row = {"ranks": _from_the_first(everybody), "fingerprint": fingerprint()}
                with rows.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")


def _from_the_first(everybody: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the ranks' times, in seconds since the first of them began."""
    zero = min(own["begin"] for own in everybody)
    return [
        {
            "end_s": own["end"] - zero,
            "operations": [
                [begin - zero, end - zero, category, name] for begin, end, category, name in own["spans"]
            ],
        }
        for own in everybody
    ]


if __name__ == "__main__":
    main()
