"""What a step costs on GPUs where nobody says."""

from ringside.sim.libraries.find import as_nccl
from ringside.sim.libraries.library import Library
from ringside.sim.workload.devices import Device

SPREAD = 0.015
"""By how much GPUs of one kind differ in speed: what published trainings show, where the rest of a loss is
explained (`ringside.validation.published.training.ddp.throughput`)."""

OPERATOR_S = 1e-5
"""What a host takes to ask a GPU for one of PyTorch's operators, a round figure."""

MOST = 0.5
"""Share of a GPU that a collective takes at most, however many its channels."""


def contention(library: Library, gpu: Device) -> float:
    """Share of a GPU that NCCL's blocks take, one a channel, which no other library runs on it."""
    found = as_nccl(library)
    return min(found.comm.channels / gpu.multiprocessors, MOST) if found and found.comm else 0.0
