"""A ring shift in batches, as ring attention passes keys and values on while it computes."""


def main(dist):
    """Each block is on its way while the one before is worked on."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    for _ in range(ranks - 1):
        shift = [
            dist.P2POp(dist.irecv, 2 * MiB, (rank - 1) % ranks),
            dist.P2POp(dist.isend, 2 * MiB, (rank + 1) % ranks),
        ]
        works = dist.batch_isend_irecv(shift)
        dist.compute(0.1)
        for work in works:
            work.wait()
    dist.compute(0.1)
