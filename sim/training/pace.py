"""The pace at which the layers of a workload compute."""

from dataclasses import replace

from ringside.sim.program.groups import TimedGroup
from ringside.sim.workload.workload import Workload

ALONE = TimedGroup(1, lambda _: 0.0)
"""A single rank, which shares its gradients with no other."""


def at_pace(workload: Workload, factor: float) -> Workload:
    """Return the workload with every layer's time multiplied by ``factor``."""
    layers = tuple(
        replace(layer, forward_s=layer.forward_s * factor, backward_s=layer.backward_s * factor)
        for layer in workload.layers
    )
    return replace(workload, layers=layers)
