"""Sharded parameters: gathered before use, gradients scattered after it."""


def main(dist):
    """Three layers forward, the same three back."""
    ranks = dist.get_world_size()
    for _ in range(3):
        dist.all_gather_into_tensor(4 * MiB // ranks)
        dist.compute(0.05)
    for _ in range(3):
        dist.all_gather_into_tensor(4 * MiB // ranks)
        dist.compute(0.1)
        dist.reduce_scatter_tensor(4 * MiB)
