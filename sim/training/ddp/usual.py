"""Default costs of a step on GPUs."""

from ringside.sim.libraries.library import Library
from ringside.sim.workload.devices import Device

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
