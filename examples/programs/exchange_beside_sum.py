"""An all-to-all of all ranks beside an all-reduce of all, in groups of their own."""


def main(dist):
    """Both are under way at once and share every link."""
    everybody = list(range(dist.get_world_size()))
    exchange, gradients = dist.new_group(everybody), dist.new_group(everybody)
    for _ in range(2):
        dist.compute(0.02)
        sums = dist.all_reduce(4 * MiB, group=gradients, async_op=True)
        dist.all_to_all_single(4 * MiB, group=exchange)
        dist.compute(0.03)
        sums.wait()
