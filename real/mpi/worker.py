"""One rank's work under mpirun: carry out a job over MPI, check every result, write every time.

Started as ``python -m ringside.real.mpi.worker JOB ROWS``; rank 0 appends one JSON line per size to ROWS.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from ringside.real.collective.job import CollectiveJob, row_of
from ringside.real.launch.follow import show_life
from ringside.real.launch.parent import die_with_parent
from ringside.real.machine import machine_fingerprint
from ringside.real.mpi.programs import MpiBuffers, MpiLibraryProgram, ScheduleProgram
from ringside.sim.algorithms import schedule
from ringside.sim.collective import Collective
from ringside.sim.proof import prove
from ringside.sim.schedule import even_chunks

_AHEAD_S = 0.002


def main() -> None:
    """Carry out the job on this rank under mpirun."""
    die_with_parent()
    carry_out(Path(sys.argv[1]), Path(sys.argv[2]))


def carry_out(order: Path, rows: Path) -> None:
    """Carry out this rank's part of the job; exit with an error on all ranks where a sum is wrong."""
    from mpi4py import MPI

    job, communicator = CollectiveJob.read(order), MPI.COMM_WORLD
    for nbytes in job.sizes:
        slowest, wrong = _measured(job, nbytes, communicator, rows)
        if wrong:
            print(f"{wrong} elements differ from the exact {job.collective} of {nbytes} B", file=sys.stderr)
            communicator.Abort(1)
        if communicator.rank == 0:
            row = row_of(nbytes, slowest, fingerprint())
            with rows.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")


def fingerprint() -> dict[str, str]:
    """Return the machine, the MPI library and every variable that configures it."""
    from mpi4py import MPI

    first = MPI.Get_library_version().partition(",")[0].strip()
    steering = machine_fingerprint("OMPI_MCA_coll_", "OMPI_MCA_pml", "OMPI_MCA_btl", "UCX_")
    return steering | {"mpi": first.replace("Open MPI v", "Open MPI ")}


def _measured(job: CollectiveJob, nbytes: int, communicator: Any, rows: Path) -> tuple[list[float], int]:
    """Return the seconds of every timed iteration on its slowest rank, and the number of wrong elements."""
    collective = Collective(job.collective, communicator.size, nbytes, dtype=job.dtype)
    program, buffers = _program(job, collective, communicator)
    seconds, wrong = [], 0
    for iteration in range(job.warmup + job.iterations):
        buffers.reset()
        if isinstance(program, MpiLibraryProgram):
            program.prepare()
        _together(communicator)
        begun = time.perf_counter()
        program.run()
        seconds.append(time.perf_counter() - begun)
        if communicator.rank == 0:
            show_life(rows)
        if iteration in (0, job.warmup + job.iterations - 1):
            communicator.Barrier()  # a rank that checks its result takes a core from one that still runs
            program.collect()
            wrong += buffers.num_wrong()
    reached = np.array([*seconds[job.warmup :], wrong], dtype=np.float64)
    *times, worst = np.max(communicator.allgather(reached), axis=0).tolist()
    return times, int(worst)


def _program(
    job: CollectiveJob, collective: Collective, communicator: Any
) -> tuple[ScheduleProgram | MpiLibraryProgram, MpiBuffers]:
    if job.algorithm == "library":
        buffers = MpiBuffers(collective, even_chunks(collective), communicator.rank)
        return MpiLibraryProgram(communicator, collective, buffers), buffers
    plan = schedule(job.algorithm, collective)
    prove(plan)
    buffers = MpiBuffers(collective, plan.chunks, communicator.rank)
    return ScheduleProgram(communicator, plan, buffers), buffers


def _together(communicator: Any) -> None:
    """Return on all ranks of this machine at the same moment, which the first one names."""
    communicator.Barrier()
    ahead = _AHEAD_S * max(1.0, communicator.size / (os.cpu_count() or 1))
    moment = communicator.bcast(time.monotonic() + ahead, 0)
    while time.monotonic() < moment:
        time.sleep(max(moment - time.monotonic() - _AHEAD_S / 4, 0.0))


if __name__ == "__main__":
    main()
