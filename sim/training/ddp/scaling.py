"""Default costs on GPUs, the pace of layers, shares of a batch, and bucket sizes to recommend."""

from collections.abc import Mapping
from dataclasses import replace
from math import log

from ringside.sim.libraries.library import Library
from ringside.sim.program.groups import TimedGroup
from ringside.sim.training.ddp.buckets import DEFAULT_CAP_MB
from ringside.sim.training.ddp.step import TrainingStep
from ringside.sim.workload.devices import Device
from ringside.sim.workload.workload import Workload

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


ALONE = TimedGroup(1, lambda _: 0.0)
"""A single rank, which shares its gradients with no other."""


def at_pace(workload: Workload, factor: float) -> Workload:
    """Return the workload with every layer's time multiplied by ``factor``."""
    layers = tuple(
        replace(layer, forward_s=layer.forward_s * factor, backward_s=layer.backward_s * factor)
        for layer in workload.layers
    )
    return replace(workload, layers=layers)


SPREAD = 0.015
"""Spread of speed among GPUs of one kind: fits published trainings once the rest of a loss is explained
(`ringside.validation.published.training.ddp.throughput`)."""

OPERATOR_S = 1e-5
"""The host's time to launch one of PyTorch's operators on a GPU, a round figure."""

MOST = 0.5
"""The largest share of a GPU that a collective takes, whatever its number of channels."""


def contention(library: Library, gpu: Device) -> float:
    """Share of a GPU that a library's thread blocks take, one a channel."""
    return min(library.channels / gpu.multiprocessors, MOST)
