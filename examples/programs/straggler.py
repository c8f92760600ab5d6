"""One rank computes longer than the others, and all wait for it in their collectives."""


def main(dist):
    """Broadcast parameters, work unequally, sum."""
    for step in range(3):
        dist.broadcast(2 * MiB, 0)
        dist.compute(0.2 if dist.get_rank() == step else 0.05)
        dist.all_reduce(2 * MiB)
