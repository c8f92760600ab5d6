"""Steps of many micro-batches, of which the first rounds are simulated."""

from collections.abc import Callable

ROUNDS = 2
"""Micro-batches a pipeline rank that are simulated: each round beyond them takes as long as the second."""

ONE_BUCKET_MB = 1e6
"""A bucket cap (MiB) that no model fills: gradients are summed after backward, as Megatron-LM's once were."""


def whole_s(step_s: Callable[[int], float], micro_batches: int, pipeline: int = 1) -> float:
    """Return the seconds of a step, extrapolated from steps with fewer micro-batches."""
    most = min(micro_batches, ROUNDS * pipeline)
    found = step_s(most)
    if micro_batches > most:
        found += (micro_batches - most) / pipeline * (found - step_s(most - pipeline))
    return found
