"""The pace at which the layers of a workload compute."""

from dataclasses import replace

from ringside.sim.training.groups import TimedGroup
from ringside.sim.workload.workload import Workload

ALONE = TimedGroup(1, lambda _: 0.0)
"""One rank that shares its gradients with nobody."""


def at_pace(workload: Workload, factor: float) -> Workload:
    """The workload with every layer so many times as long."""
    layers = tuple(
        replace(layer, forward_s=layer.forward_s * factor, backward_s=layer.backward_s * factor)
        for layer in workload.layers
    )
    return replace(workload, layers=layers)
