"""Run under torchrun by test_schedules_over_gloo: every algorithm on every rank, every result exact."""

import torch
import torch.distributed as dist

from real.collective.buffers import Buffers
from real.collective.schedule_program import GlooProgram
from sim.algorithms import ALGORITHMS, schedule
from sim.collective import Collective
from sim.proof import prove

SIZES = (0, 4, 12, 1000, 4 * 12_347, 1_000_004)


def main():
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    uneven = Collective.uneven([[(src * dst) % 3 * 5000 for dst in range(ranks)] for src in range(ranks)])
    for algorithm, kinds in ALGORITHMS.items():
        for kind in kinds:
            collectives = [Collective(kind, ranks, nbytes, itemsize=4) for nbytes in SIZES]
            for collective in [*collectives, *([uneven] if kind == "all_to_all" else [])]:
                plan = schedule(algorithm, collective)
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
                        print("right", algorithm, kind, collective.nbytes, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
