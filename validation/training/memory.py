"""The peak of a rank's memory that Ringside predicts, beside torch's own accounting of the same job."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ringside.real.training import memory
from ringside.real.training.memory import MeasuredPeak, MemoryJob
from ringside.sim.training import fsdp_policy
from ringside.sim.training.job import ParallelJob, RankModel
from ringside.sim.training.layout import Layout
from ringside.sim.training.memory.optimizers import find_optimizer
from ringside.sim.training.memory.peak import use
from ringside.sim.training.mesh import DATA
from ringside.sim.training.program import Writing
from ringside.validation.training.program import decoder_of, layers_of

KIND_OF = {
    fsdp_policy.PARAMETERS: memory.PARAMETERS,
    fsdp_policy.OPTIMIZER: memory.OPTIMIZER,
    fsdp_policy.GRADIENTS: memory.GRADIENTS,
    fsdp_policy.UNREDUCED: memory.GRADIENTS,
    fsdp_policy.GATHERED: memory.GATHERED,
    fsdp_policy.FLAT: memory.GATHERED,
    fsdp_policy.BUFFERS: memory.BUFFERS,
    "buckets": memory.BUFFERS,
    "messages": memory.BUFFERS,
}
"""Pools of a rank's memory, by what torch's storages of them hold; the others are activations."""

AT_ONCE = "activations"
"""What forward keeps, and what passes make for a moment: for torch they differ by who makes them."""


@dataclass(frozen=True, slots=True)
class ComparedPeak:
    """A rank's peak, predicted and measured, in bytes by what they are."""

    rank: int
    predicted: Mapping[str, int]
    measured: Mapping[str, int]
    during: str
    operator: str

    @property
    def error(self) -> float:
        """The predicted peak over the measured one, minus one."""
        return sum(self.predicted.values()) / sum(self.measured.values()) - 1


@dataclass(frozen=True, slots=True)
class ComparedPeaks:
    """The compared ranks of a job."""

    ranks: tuple[ComparedPeak, ...]

    @property
    def worst(self) -> ComparedPeak:
        """The rank with the largest error."""
        return max(self.ranks, key=lambda one: abs(one.error))


def row_of(name: str, one: ComparedPeak) -> dict[str, Any]:
    """Return a compared rank in plain values."""
    return {
        "job": name, "rank": one.rank, "predicted": dict(one.predicted), "measured": dict(one.measured),
        "during": one.during, "operator": one.operator, "error": one.error,
    }  # fmt: skip


def compare_peak(job: MemoryJob, rank: int, measured: MeasuredPeak) -> ComparedPeak:
    """Return a rank's measured peak beside the predicted one."""
    step = Writing(parallel_job(job)).step(rank)
    most = use(step.held, step.rank.operations).peak
    predicted = Counter[str]()
    for pool, nbytes in most.by_pool.items():
        predicted[KIND_OF.get(pool, AT_ONCE)] += nbytes
    seen = Counter(measured.by_kind)
    seen[AT_ONCE] += seen.pop(memory.TEMPORARIES, 0)
    return ComparedPeak(rank, predicted, seen, most.operation, measured.operator)


def parallel_job(job: MemoryJob) -> ParallelJob:
    """Return the job as `ringside train` lays it out, over Gloo."""
    model, mesh, layers = job.model, job.mesh, layers_of(job)
    strategy = job.strategy if mesh.degree(*DATA) > 1 else "ddp"
    if strategy == "fsdp" and job.replicate > 1:
        strategy = "hsdp"
    is_fsdp = strategy in ("fsdp", "hsdp")
    layout = Layout(
        strategy=strategy, tp=job.tensor, cp=job.context, cp_method=job.context_method, pp=job.pipeline,
        shard=job.shard if strategy == "hsdp" else None, schedule=job.schedule, virtual=job.virtual,
        micro_batch=model.batch, sequence_parallel=job.sequence_parallel, no_sync=job.no_sync,
        tp_style="dtensor" if job.tensor > 1 else None,
        param_dtype=job.param_dtype if is_fsdp else None,
        reduce_dtype=job.reduce_dtype if is_fsdp else None,
    )  # fmt: skip
    decoder = decoder_of(model)
    itemsize = 4 if job.param_dtype == "float32" else 2
    between = model.batch * model.sequence // job.context * model.hidden * itemsize
    if job.sequence_parallel:
        between //= job.tensor
    whole = RankModel(
        name=model.kind, sample=decoder.sample, layers=layers,
        between_nbytes=(between,) * (len(layers) - 1), num_parameters=decoder.num_parameters,
        tokens=model.sequence,
        # each tensor-parallel rank gathers all logits
        output_nbytes=between // model.hidden * model.vocabulary * job.tensor
        * (job.tensor if job.sequence_parallel else 1),
    )  # fmt: skip
    return ParallelJob(
        model=whole, layout=layout, mesh=mesh, batch=model.batch * job.micro_batches,
        optimizer=find_optimizer("adam"), library="gloo", workers=2,
    )  # fmt: skip
