"""Bucket sizes to recommend, and samples per rank when a batch is shared."""

from collections.abc import Mapping
from math import log

from ringside.sim.training.ddp.buckets import DEFAULT_CAP_MB
from ringside.sim.training.step import TrainingStep

AS_GOOD = 0.01
"""Bucket sizes whose steps differ by no more than this share of the fastest count as equally good."""


def recommended_cap(sweep: Mapping[float, TrainingStep]) -> float:
    """Return the ``bucket_cap_mb`` (MiB) to use: of those as good as the fastest, the nearest to PyTorch's.

    A change without gain is not worth it, so distance is the ratio to the default of 25 MiB.
    """
    if not sweep:
        raise ValueError("no bucket sizes to choose from; write for example 1, 5, 25, 100")
    quickest = min(step.step_s for step in sweep.values())
    good = [cap for cap, step in sweep.items() if step.step_s <= quickest * (1 + AS_GOOD)]
    return min(good, key=lambda cap: (abs(log(max(cap, 1e-6) / DEFAULT_CAP_MB)), cap))


def share_of(batch: int, ranks: int, accumulation: int) -> int:
    """Return samples per rank and pass if all ranks share ``batch`` samples in a step."""
    share, rest = divmod(batch, ranks * accumulation)
    if rest or share < 1:
        raise ValueError(
            f"a batch of {batch} on {ranks} ranks with {accumulation} accumulation steps does not divide; "
            f"write {ranks * accumulation} or a multiple of it"
        )
    return share
