"""Memory of one GPU in a training where every GPU holds the whole model."""

from dataclasses import dataclass, fields

from ringside.sim.training.ddp.buckets import layout
from ringside.sim.training.ddp.job import DataParallel
from ringside.sim.training.ddp.powersgd import compression
from ringside.sim.training.memory import Optimizer
from ringside.sim.workload.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Bytes that one GPU holds at the end of forward and during backward, by purpose.

    ``buckets`` are DistributedDataParallel's flat copies of the gradients, none if gradients are views of
    them; ``compression`` is PowerSGD's state between steps (errors, P and Q) and its memory for the bucket
    being reduced. The allocator's own losses, the CUDA context and workspaces are not included.
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
        """The sum of all bytes."""
        return sum(getattr(self, field.name) for field in fields(self))


def memory(workload: Workload, ddp: DataParallel, optimizer: Optimizer) -> Memory:
    """Return the bytes that one GPU holds for the workload."""
    totals = workload.totals
    return Memory(
        parameters=totals.nbytes + workload.frozen_nbytes,
        gradients=totals.nbytes,
        optimizer=optimizer.states * totals.nbytes,
        buckets=0 if ddp.gradient_as_bucket_view else totals.nbytes,
        buffers=sum(buffer.nbytes for buffer in workload.buffers),
        activations=totals.activation_nbytes,
        compression=compression_nbytes(workload, ddp),
    )


def compression_nbytes(workload: Workload, ddp: DataParallel) -> int:
    """Return the bytes of PowerSGD's state and of its largest bucket; 0 without PowerSGD."""
    if not ddp.compresses:
        return 0
    buckets = layout(workload, ddp.bucketing, ddp.settled)
    compressions = [compression(bucket, workload.parameters, ddp.powersgd) for bucket in buckets]
    return sum(one.kept_nbytes for one in compressions) + max(one.working_nbytes for one in compressions)
