"""A job's model, distributed over the ranks of its mesh by torch itself, and one step of it."""

from contextlib import nullcontext
from typing import Any, Protocol

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import PipelineScheduleSingle, get_schedule_class
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from ringside.real.training.decoders import DecoderPart, alone
from ringside.real.training.experts import Computed, Dispatched, Slept, attention
from ringside.real.training.job import (
    COPIES,
    SCHEDULES,
    ExpertLayers,
    Sleeping,
    SmallDecoder,
    TrainingJob,
)
from ringside.real.training.sleeping import SharedLayer, SimulatedDevice, SleepingLayer, SleepingPart
from ringside.sim.training.mesh import DATA

CPU = torch.device("cpu")

_DIMENSIONS = ("pipeline", "replicate", "shard", "context", "tensor")
"""The mesh dimensions from outermost to innermost, as in torch's meshes."""


class Trainee(Protocol):
    """A rank's part in a job."""

    def step(self) -> None:
        """Pass all micro-batches of one step forward and backward."""
        ...

    def forget(self) -> None:
        """Drop all gradients."""
        ...

    @property
    def parameters(self) -> list[nn.Parameter]:
        """The rank's parameters, as they are sharded."""
        ...


def trainee(job: TrainingJob, device: SimulatedDevice) -> Trainee:
    """Return the calling rank's part; all ranks of the job call."""
    if isinstance(job.model, ExpertLayers):
        return Dispatched(job, device)
    degrees = tuple(getattr(job, name) for name in _DIMENSIONS)
    backends: Any = None if job.moves else dict.fromkeys(_DIMENSIONS, "fake")
    mesh = init_device_mesh("cpu", degrees, mesh_dim_names=_DIMENSIONS, backend_override=backends)
    if job.strategy in COPIES:
        return Copied(job, device, mesh["replicate"].get_group())
    return Pipelined(job, device, mesh) if job.pipeline > 1 else Whole(job, device, mesh)


class Whole:
    """The whole model on each rank, with accumulated micro-batches."""

    def __init__(self, job: TrainingJob, device: SimulatedDevice, mesh: DeviceMesh) -> None:
        self._job = job
        self._module = _part(job, range(job.model.layers), device, mesh)
        self._inputs = _all_inputs(job)

    def step(self) -> None:
        """Pass all micro-batches in turn."""
        for number, inputs in enumerate(self._inputs, start=1):
            if isinstance(self._module, FSDPModule):
                last = number == len(self._inputs)
                self._module.set_requires_gradient_sync(last or not self._job.no_sync)
            _loss(self._module(inputs), inputs).backward()  # type: ignore[no-untyped-call]

    def forget(self) -> None:
        """Drop all gradients."""
        self._module.zero_grad(set_to_none=True)

    @property
    def parameters(self) -> list[nn.Parameter]:
        """The rank's parameters."""
        return list(self._module.parameters())


class Copied:
    """The whole model under DistributedDataParallel; its optimizer may be sharded, as part of the step."""

    def __init__(self, job: TrainingJob, device: SimulatedDevice, group: dist.ProcessGroup) -> None:
        self._inputs = _all_inputs(job)
        self._no_sync = job.no_sync
        part = _module(job, range(job.model.layers), device)
        self._model = DistributedDataParallel(part, process_group=group)
        if dist.get_backend(group) == "fake":
            self._model.register_comm_hook(group, _unsummed)
        self._optimizer = (
            ZeroRedundancyOptimizer(part.parameters(), torch.optim.SGD, process_group=group, lr=1e-3)
            if job.strategy == "zero_redundancy"
            else None
        )

    def step(self) -> None:
        """Pass all micro-batches, then step a sharded optimizer."""
        *others, last = self._inputs
        with self._model.no_sync() if self._no_sync else nullcontext():
            for inputs in others:
                _loss(self._model(inputs), inputs).backward()  # type: ignore[no-untyped-call]
        _loss(self._model(last), last).backward()  # type: ignore[no-untyped-call]
        if self._optimizer:
            self._optimizer.step()

    def forget(self) -> None:
        """Drop all gradients."""
        self._model.zero_grad(set_to_none=True)

    @property
    def parameters(self) -> list[nn.Parameter]:
        """All parameters."""
        return list(self._model.parameters())


def _unsummed(group: dist.ProcessGroup, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:  # type: ignore[name-defined]
    """Return a bucket unchanged: the all-reduce of a process group that moves nothing has no result."""
    dist.all_reduce(bucket.buffer(), group=group)
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future


class Pipelined:
    """A rank's stages, through which torch's schedule passes the micro-batches."""

    def __init__(self, job: TrainingJob, device: SimulatedDevice, mesh: DeviceMesh) -> None:
        own = mesh["pipeline"]
        stages = job.placement.of(own.get_local_rank())
        self._parts = [_part(job, job.layers_of(stage), device, mesh) for stage in stages]
        made = [
            PipelineStage(part, stage, job.stages, CPU, group=own.get_group())
            for stage, part in zip(stages, self._parts, strict=True)
        ]
        schedule: Any = get_schedule_class(SCHEDULES[job.schedule])
        self._schedule = schedule(
            made[0] if issubclass(schedule, PipelineScheduleSingle) else made,
            n_microbatches=job.micro_batches,
            loss_fn=_loss,
        )
        batch = _inputs(job, job.micro_batches)
        self._arguments = (batch,) if 0 in stages else ()
        self._target = {"target": batch} if job.stages - 1 in stages else {}

    def step(self) -> None:
        """Pass all micro-batches in the schedule's order."""
        self._schedule.step(*self._arguments, **self._target, return_outputs=False)

    def forget(self) -> None:
        """Drop all gradients."""
        for part in self._parts:
            part.zero_grad(set_to_none=True)

    @property
    def parameters(self) -> list[nn.Parameter]:
        """The parameters of the rank's stages."""
        return [one for part in self._parts for one in part.parameters()]


def _data(job: TrainingJob, mesh: DeviceMesh) -> DeviceMesh:
    """Return the mesh along which FSDP shards parameters, preceded by that along which it copies them."""
    sharded = "shard"
    if job.context > 1:
        sharded = "shard_context"
        backend = dist.get_backend(mesh["shard"].get_group())
        mesh["shard", "context"]._flatten(sharded, backend_override=backend)
    return mesh["replicate", sharded] if job.replicate > 1 else mesh[sharded]


def _loss(output: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
    """Return the mean of a sleeping part's output, or of the losses of logits for these tokens."""
    if inputs.is_floating_point():
        return output.float().mean()
    return functional.cross_entropy(output.flatten(0, -2).float(), inputs.flatten())


def _inputs(job: TrainingJob, micro_batches: int) -> torch.Tensor:
    model = job.model
    if isinstance(model, Sleeping):
        rows = model.rows // job.context // (job.tensor if job.sequence_parallel else 1)
        return torch.ones(micro_batches * rows, model.hidden)
    assert isinstance(model, SmallDecoder)
    own = model.sequence // job.context
    tokens = torch.arange(micro_batches * model.batch * own) % model.vocabulary
    return tokens.view(-1, own)


def _all_inputs(job: TrainingJob) -> list[torch.Tensor]:
    """Return each micro-batch's inputs; floating-point ones require gradients."""
    batches = [_inputs(job, 1) for _ in range(job.micro_batches)]
    return [inputs.requires_grad_(inputs.is_floating_point()) for inputs in batches]


def _module(job: TrainingJob, layers: range, device: SimulatedDevice) -> "SleepingPart | DecoderPart":
    """Return some layers as on a single rank."""
    if isinstance(job.model, Sleeping):
        model = job.model
        return SleepingPart(layers, lambda: SleepingLayer(model, device))
    assert isinstance(job.model, SmallDecoder)
    return DecoderPart(job.model, layers)


def _part(job: TrainingJob, layers: range, device: SimulatedDevice, mesh: DeviceMesh) -> nn.Module:
    """Return some layers, distributed by tensor parallelism and then FSDP2."""
    model = job.model
    part: nn.Module
    if isinstance(model, Sleeping):
        part, whole, each = _sleeping_part(job, model, layers, device, mesh), {}, _sleeping_plan
    else:
        assert isinstance(model, SmallDecoder)
        attend = alone
        if job.context > 1:
            attend = attention(Computed, mesh["context"].get_group(), job.context_method)
        part, whole, each = DecoderPart(model, layers, attend), _decoder_plan(job), _block_plan
    blocks: Any = part.layers
    if job.tensor > 1:
        for block in blocks.values():
            parallelize_module(block, mesh["tensor"], each(job))
        parallelize_module(part, mesh["tensor"], {name: whole[name] for name in whole if getattr(part, name)})
    if job.mesh.degree(*DATA) > 1:
        data = _data(job, mesh)
        precision = MixedPrecisionPolicy(
            param_dtype=getattr(torch, job.param_dtype), reduce_dtype=getattr(torch, job.reduce_dtype)
        )
        for block in blocks.values():
            fully_shard(block, mesh=data, reshard_after_forward=job.reshard, mp_policy=precision)
        fully_shard(part, mesh=data, mp_policy=precision)
    return part


def _sleeping_part(
    job: TrainingJob, model: Sleeping, layers: range, device: SimulatedDevice, mesh: DeviceMesh
) -> SleepingPart:
    if job.context == 1:
        return SleepingPart(layers, lambda: SleepingLayer(model, device))
    attend = attention(Slept(model, device), mesh["context"].get_group(), job.context_method)
    heads = job.context if job.context_method == "ulysses" else 1
    return SleepingPart(layers, lambda: SharedLayer(model, attend, heads))


def _sleeping_plan(job: TrainingJob) -> dict[str, ParallelStyle]:
    if not job.sequence_parallel:
        return {"column": ColwiseParallel(), "row": RowwiseParallel()}
    return {
        "": _gathered(0),
        "column": ColwiseParallel(),
        "row": RowwiseParallel(output_layouts=Shard(0)),
    }


def _block_plan(job: TrainingJob) -> dict[str, ParallelStyle]:
    column = {f"attention.{name}": ColwiseParallel() for name in ("query", "key", "value")}
    column |= {f"feed.{name}": ColwiseParallel() for name in ("gate", "up")}
    rows = ("attention.out", "feed.down")
    if not job.sequence_parallel:
        return {**column, **{name: RowwiseParallel() for name in rows}}
    return {
        **{name: SequenceParallel() for name in ("attention_norm", "feed_norm")},
        **{name: _gathered(1) for name in ("attention", "feed")},
        **column,
        **{name: RowwiseParallel(output_layouts=Shard(1)) for name in rows},
    }


def _decoder_plan(job: TrainingJob) -> dict[str, ParallelStyle]:
    if not job.sequence_parallel:
        return {
            "embedding": RowwiseParallel(input_layouts=Replicate()),
            "head": ColwiseParallel(output_layouts=Replicate()),
        }
    return {
        "embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1)),
        "norm": SequenceParallel(),
        "head": ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate()),
    }


def _gathered(dimension: int) -> PrepareModuleInput:
    return PrepareModuleInput(input_layouts=(Shard(dimension),), desired_input_layouts=(Replicate(),))
