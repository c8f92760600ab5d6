"""Run by test_schedules_over_gloo: every algorithm on 2 to 5 ranks, with exact results.

Ranks are forked from one process that has torch loaded.
"""

import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
import torch.multiprocessing as processes

from ringside.real.collective.programs import Buffers, GlooProgram
from ringside.sim.algorithms import ALGORITHMS, schedule
from ringside.sim.collective import Collective
from ringside.sim.proof import prove

SIZES = (0, 4, 12, 1000, 4 * 12_347, 1_000_004)


def main(rank: int, ranks: int, meeting: Path) -> None:
    dist.init_process_group("gloo", store=dist.FileStore(str(meeting), ranks), rank=rank, world_size=ranks)
    uneven = Collective.uneven([[(src * dst) % 3 * 5000 for dst in range(ranks)] for src in range(ranks)])
    for algorithm, kinds in ALGORITHMS.items():
        for kind in kinds:
            collectives = [Collective(kind, ranks, nbytes, itemsize=4) for nbytes in SIZES]
            for collective in [*collectives, *([uneven] if kind == "all_to_all" else [])]:
                plan = schedule(algorithm, collective)
                if rank == 0:
                    prove(plan)
                buffers = Buffers(plan.collective, plan.chunks, rank, torch.float32, torch.device("cpu"))
                program = GlooProgram(plan, rank, buffers)
                for _ in range(2):
                    program.prepare()
                    dist.barrier()
                    program.run()
                    program.collect()
                    assert buffers.num_wrong() == 0, (algorithm, collective)
                    if rank == 0:
                        print("right", ranks, algorithm, kind, collective.nbytes, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.set_num_threads(1)
    for ranks in map(int, sys.argv[1:]):
        with tempfile.TemporaryDirectory() as folder:
            processes.start_processes(
                main, (ranks, Path(folder, "meeting")), nprocs=ranks, start_method="fork"
            )
