"""Partition of whole parameters among ranks."""

from collections.abc import Sequence

from ringside.sim.workload.workload import Tensor


def dealt(tensors: Sequence[Tensor], ranks: int) -> tuple[tuple[Tensor, ...], ...]:
    """Return each rank's tensors: the largest first, each to the first rank with the fewest elements.

    As in torch's ZeroRedundancyOptimizer (`_partition_parameters`, PyTorch 2.13) and InternEvo's hybrid ZeRO
    (`_partition_param_list`). Some ranks may get none.
    """
    own: list[list[Tensor]] = [[] for _ in range(ranks)]
    counts = [0] * ranks
    for tensor in sorted(tensors, key=lambda one: one.count, reverse=True):
        rank = counts.index(min(counts))
        own[rank].append(tensor)
        counts[rank] += tensor.count
    return tuple(map(tuple, own))


def most(parts: Sequence[Sequence[Tensor]]) -> int:
    """Return the elements of the largest rank, for which all others wait."""
    return max((sum(tensor.count for tensor in own) for own in parts), default=0)
