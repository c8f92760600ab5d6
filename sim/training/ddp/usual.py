"""Default costs of a step on GPUs."""

from ringside.sim.libraries.find import as_nccl
from ringside.sim.libraries.library import Library
from ringside.sim.workload.devices import Device

SPREAD = 0.015
"""Spread of speed among GPUs of one kind: fits published trainings once the rest of a loss is explained
(`ringside.validation.published.throughput`)."""

OPERATOR_S = 1e-5
"""The host's time to launch one of PyTorch's operators on a GPU, a round figure."""

MOST = 0.5
"""The largest share of a GPU that a collective takes, whatever its number of channels."""


def contention(library: Library, gpu: Device) -> float:
    """Return the share of a GPU that NCCL's blocks take, one per channel; 0 for all other libraries."""
    nccl = as_nccl(library)
    return min(nccl.comm.channels / gpu.multiprocessors, MOST) if nccl and nccl.comm else 0.0
