"""A sum up a tree of messages and back, written by hand."""


def main(dist):
    """In each round half of the ranks that are left hand on what they have."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    steps = [1 << bit for bit in range((ranks - 1).bit_length())]
    for step in steps:
        if rank % (2 * step) == step:
            dist.send(2 * MiB, rank - step)
        elif rank % (2 * step) == 0 and rank + step < ranks:
            dist.recv(2 * MiB, rank + step)
            dist.compute(0.01)
    for step in reversed(steps):
        if rank % (2 * step) == step:
            dist.recv(2 * MiB, rank - step)
        elif rank % (2 * step) == 0 and rank + step < ranks:
            dist.send(2 * MiB, rank + step)
