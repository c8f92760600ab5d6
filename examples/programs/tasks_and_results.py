"""One rank hands out tasks and takes the results back as they come from each."""


def main(dist):
    """Tasks are small and results large; they meet at the first rank's link."""
    rank, others = dist.get_rank(), range(1, dist.get_world_size())
    for _ in range(2):
        if rank == 0:
            results = [dist.irecv(2 * MiB, one) for one in others]
            for one in others:
                dist.send(512 * KiB, one)
            for result in results:
                result.wait()
        else:
            dist.recv(512 * KiB, 0)
            dist.compute(0.05)
            dist.send(2 * MiB, 0)
