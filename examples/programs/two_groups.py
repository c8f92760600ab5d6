"""Two groups sum at once, each among its own ranks, and then all together."""


def main(dist):
    """Sum in two groups, more in the second."""
    rank, half = dist.get_rank(), dist.get_world_size() // 2
    groups = [dist.new_group(list(range(half))), dist.new_group(list(range(half, 2 * half)))]
    mine = rank // half
    for _ in range(3):
        dist.compute(0.02)
        dist.all_reduce((2 + 2 * mine) * MiB, group=groups[mine])
    dist.all_reduce(2 * MiB)
