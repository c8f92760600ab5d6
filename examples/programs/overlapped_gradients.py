"""Data parallelism: gradients are summed bucket by bucket while backward computes."""


def main(dist):
    """Four buckets a step, the optimizer after the last."""
    for _ in range(2):
        dist.compute(0.1)
        works = []
        for _ in range(4):
            dist.compute(0.1)
            works.append(dist.all_reduce(1 * MiB, async_op=True))
        for work in works:
            work.wait()
        dist.compute(0.02)
