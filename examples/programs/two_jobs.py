"""Two jobs on one cluster: ranks of even number sum, those of odd number pass on messages."""


def main(dist):
    """Placed so that both jobs cross the same uplink they are each other's neighbours."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    jobs = [dist.new_group(list(range(job, ranks, 2))) for job in range(2)]
    if rank % 2 == 0:
        for _ in range(3):
            dist.compute(0.02)
            dist.all_reduce(2 * MiB, group=jobs[0])
        return
    for _ in range(3):
        dist.compute(0.05)
        works = [dist.irecv(2 * MiB, (rank - 2) % ranks), dist.isend(2 * MiB, (rank + 2) % ranks)]
        for work in works:
            work.wait()
