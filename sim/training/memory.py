"""What one GPU must hold to train a model that every GPU holds whole."""

from dataclasses import dataclass

from sim.training.ddp.job import DataParallel
from sim.workload.workload import Workload


@dataclass(frozen=True, slots=True)
class Optimizer:
    """An optimizer by what it keeps: ``states`` numbers for each parameter, of the parameter's dtype."""

    name: str
    states: int

    def nbytes(self, workload: Workload) -> int:
        """Bytes of its state."""
        return self.states * workload.nbytes

    def time_s(self, workload: Workload, memory_bandwidth: float) -> float:
        """Seconds of one fused step: read gradients, read and write parameters and state (bytes/s)."""
        return workload.nbytes * (1 + 2 * (1 + self.states)) / memory_bandwidth


OPTIMIZERS = {
    optimizer.name: optimizer
    for optimizer in (Optimizer("sgd", 0), Optimizer("momentum", 1), Optimizer("adam", 2))
}
"""torch.optim's SGD without and with momentum, and Adam or AdamW (whose two moments LAMB keeps too)."""


def find_optimizer(name: str) -> Optimizer:
    """The optimizer of that name."""
    if name not in OPTIMIZERS:
        raise ValueError(f"{name!r} is no known optimizer; write one of {', '.join(OPTIMIZERS)}")
    return OPTIMIZERS[name]


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Bytes that one GPU holds at the end of forward and during backward, by what they are for.

    ``buckets`` are DistributedDataParallel's flat copies of the gradients, none where gradients are
    views of them. The allocator's own losses, the CUDA context and workspaces are not in it.
    """

    parameters: int
    gradients: int
    optimizer: int
    buckets: int
    buffers: int
    activations: int

    @property
    def total(self) -> int:
        """All of it."""
        return (
            self.parameters + self.gradients + self.optimizer + self.buckets + self.buffers + self.activations
        )


def memory(workload: Workload, ddp: DataParallel, optimizer: Optimizer) -> Memory:
    """What one GPU holds of the workload."""
    return Memory(
        parameters=workload.nbytes + workload.frozen_nbytes,
        gradients=workload.nbytes,
        optimizer=optimizer.nbytes(workload),
        buckets=0 if ddp.gradient_as_bucket_view else workload.nbytes,
        buffers=sum(buffer.nbytes for buffer in workload.buffers),
        activations=workload.activation_nbytes,
    )
