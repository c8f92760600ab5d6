"""What one GPU must hold to train a model that every GPU holds whole."""

from dataclasses import dataclass, fields

from ringside.sim.training.ddp.buckets import layout
from ringside.sim.training.ddp.job import DataParallel
from ringside.sim.training.ddp.powersgd import compression
from ringside.sim.workload.workload import Workload
from ringside.topologies.words import one_of


@dataclass(frozen=True, slots=True)
class Optimizer:
    """An optimizer by what it keeps: ``states`` numbers for each parameter, of the parameter's dtype.

    ``again`` is how many more times a fused step goes over so many bytes than to read gradients and to
    read and write parameters and state.
    """

    name: str
    states: int
    again: int = 0

    def nbytes(self, workload: Workload) -> int:
        """Bytes of its state."""
        return self.states * workload.nbytes

    def time_s(self, workload: Workload, memory_bandwidth: float) -> float:
        """Seconds of one fused step; ``memory_bandwidth`` in bytes/s."""
        return self.seconds(workload.nbytes, memory_bandwidth)

    def seconds(self, nbytes: int, memory_bandwidth: float) -> float:
        """Seconds of one fused step of so many bytes of parameters."""
        return nbytes * (1 + 2 * (1 + self.states) + self.again) / memory_bandwidth


OPTIMIZERS = {
    optimizer.name: optimizer
    for optimizer in (
        Optimizer("sgd", 0),
        Optimizer("momentum", 1),
        Optimizer("adam", 2),
        Optimizer("lamb", 2, again=6),
    )
}
"""torch.optim's SGD without and with momentum, Adam or AdamW, and apex's FusedLAMB: it reads gradients for
their norm first, writes updates, reads them and the parameters for two norms, and both again to step."""


def find_optimizer(name: str) -> Optimizer:
    """The optimizer of that name."""
    if name not in OPTIMIZERS:
        raise ValueError(f"{name!r} is no known optimizer; write {one_of(OPTIMIZERS, name)}")
    return OPTIMIZERS[name]


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Bytes that one GPU holds at the end of forward and during backward, by what they are for.

    ``buckets`` are DistributedDataParallel's flat copies of the gradients, none where gradients are
    views of them; ``compression`` is what PowerSGD keeps from step to step, its errors, P and Q, and needs
    for the bucket that is on its way. The allocator's own losses, the CUDA context and workspaces are not
    in it.
    """

    parameters: int
    gradients: int
    optimizer: int
    buckets: int
    buffers: int
    activations: int
    compression: int = 0

    @property
    def total(self) -> int:
        """All of it."""
        return sum(getattr(self, field.name) for field in fields(self))


def memory(workload: Workload, ddp: DataParallel, optimizer: Optimizer) -> Memory:
    """What one GPU holds of the workload."""
    return Memory(
        parameters=workload.nbytes + workload.frozen_nbytes,
        gradients=workload.nbytes,
        optimizer=optimizer.nbytes(workload),
        buckets=0 if ddp.gradient_as_bucket_view else workload.nbytes,
        buffers=sum(buffer.nbytes for buffer in workload.buffers),
        activations=workload.activation_nbytes,
        compression=compression_nbytes(workload, ddp),
    )


def compression_nbytes(workload: Workload, ddp: DataParallel) -> int:
    """Bytes that PowerSGD keeps, and works with on its largest bucket; none without it."""
    if not ddp.compresses:
        return 0
    buckets = layout(workload, ddp.bucketing, ddp.settled)
    found = [compression(bucket, workload.parameters, ddp.powersgd) for bucket in buckets]
    return sum(one.kept_nbytes for one in found) + max(one.working_nbytes for one in found)
