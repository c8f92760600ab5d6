"""Memory of one GPU in a training where every GPU holds the whole model."""

from dataclasses import dataclass, fields

from ringside.sim.training.ddp.buckets import layout
from ringside.sim.training.ddp.job import DataParallel
from ringside.sim.training.ddp.powersgd import compression
from ringside.sim.workload.workload import Workload
from ringside.topologies.names import one_of


@dataclass(frozen=True, slots=True)
class Optimizer:
    """An optimizer by its memory: ``states`` numbers per parameter, of the parameter's dtype.

    ``again`` is the number of further passes of a fused step over the parameters' bytes, beyond reading
    gradients and reading and writing parameters and state.
    """

    name: str
    states: int
    again: int = 0

    def nbytes(self, workload: Workload) -> int:
        """Return the bytes of its state."""
        return self.states * workload.nbytes

    def time_s(self, workload: Workload, memory_bandwidth: float) -> float:
        """Return the seconds of one fused step; ``memory_bandwidth`` in bytes/s."""
        return self.seconds(workload.nbytes, memory_bandwidth)

    def seconds(self, nbytes: int, memory_bandwidth: float) -> float:
        """Return the seconds of one fused step on ``nbytes`` bytes of parameters."""
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
    """Return the optimizer of that name."""
    if name not in OPTIMIZERS:
        raise ValueError(f"unknown optimizer {name!r}; write {one_of(OPTIMIZERS, name)}")
    return OPTIMIZERS[name]


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Bytes that one GPU holds at the end of forward and during backward, by purpose.

    ``buckets`` are DistributedDataParallel's flat copies of the gradients, none where gradients are
    views of them; ``compression`` is PowerSGD's state between steps (errors, P and Q) and its memory
    for the bucket being reduced. The allocator's own losses, the CUDA context and workspaces are not
    included.
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
        """Their sum."""
        return sum(getattr(self, field.name) for field in fields(self))


def memory(workload: Workload, ddp: DataParallel, optimizer: Optimizer) -> Memory:
    """Return the bytes that one GPU holds for the workload."""
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
    """Return the bytes of PowerSGD's state and of its largest bucket; 0 without PowerSGD."""
    if not ddp.compresses:
        return 0
    buckets = layout(workload, ddp.bucketing, ddp.settled)
    compressions = [compression(bucket, workload.parameters, ddp.powersgd) for bucket in buckets]
    return sum(one.kept_nbytes for one in compressions) + max(one.working_nbytes for one in compressions)
