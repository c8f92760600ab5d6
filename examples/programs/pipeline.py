"""A pipeline of blocking sends: all micro-batches forward, then all of them back."""


def main(dist):
    """Backward takes twice as long as forward."""
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    for _ in range(4):
        if rank:
            dist.recv(1 * MiB, rank - 1)
        dist.compute(0.04)
        if rank < last:
            dist.send(1 * MiB, rank + 1)
    for _ in range(4):
        if rank < last:
            dist.recv(1 * MiB, rank + 1)
        dist.compute(0.08)
        if rank:
            dist.send(1 * MiB, rank - 1)
