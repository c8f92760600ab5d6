"""A job's model, distributed over the ranks of its mesh by torch itself, and one step of it."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, Protocol

import torch
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

from ringside.real.training.experts import Computed, Dispatched, Slept, attention
from ringside.real.training.job import SCHEDULES, ExpertLayers, Sleeping, SmallDecoder, TrainingJob
from ringside.real.training.sleeping import SharedLayer, SimulatedDevice, SleepingLayer, SleepingPart
from ringside.sim.training.mesh import DATA

Attend = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""Causal attention of queries, keys and values: batch x heads x tokens x width."""


def alone(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Compute the attention of a rank that has all tokens."""
    return functional.scaled_dot_product_attention(query, key, value, is_causal=True)


class CausalAttention(nn.Module):
    """Causal attention of several heads: over all tokens, or by ``attend`` with other ranks'."""

    def __init__(self, model: SmallDecoder, attend: Attend) -> None:
        super().__init__()
        self._attend = attend
        hidden = model.hidden
        self.query, self.key, self.value, self.out = (nn.Linear(hidden, hidden, bias=False) for _ in range(4))
        self._head = hidden // model.heads

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """Return each token's attention over the earlier tokens."""
        query, key, content = (
            one(value).unflatten(-1, (-1, self._head)).transpose(1, 2)
            for one in (self.query, self.key, self.value)
        )
        attended = self._attend(query, key, content)
        out: torch.Tensor = self.out(attended.transpose(1, 2).flatten(2))
        return out


class Feed(nn.Module):
    """A gated feed-forward network."""

    def __init__(self, model: SmallDecoder) -> None:
        super().__init__()
        self.gate, self.up = (nn.Linear(model.hidden, model.inner, bias=False) for _ in range(2))
        self.down = nn.Linear(model.inner, model.hidden, bias=False)

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """Return the output per token."""
        out: torch.Tensor = self.down(functional.silu(self.gate(value)) * self.up(value))
        return out


class TransformerBlock(nn.Module):
    """Attention and a feed-forward network, each with a norm before and a residual around."""

    def __init__(self, model: SmallDecoder, attend: Attend) -> None:
        super().__init__()
        self.attention_norm, self.feed_norm = (nn.RMSNorm(model.hidden) for _ in range(2))
        self.attention, self.feed = CausalAttention(model, attend), Feed(model)

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """Return the value after one block."""
        value = value + self.attention(self.attention_norm(value))
        out: torch.Tensor = value + self.feed(self.feed_norm(value))
        return out


class DecoderPart(nn.Module):
    """Consecutive blocks, with the embedding before the first and norm and head after the last."""

    def __init__(self, model: SmallDecoder, layers: range, attend: Attend = alone) -> None:
        super().__init__()
        first, last = layers.start == 0, layers.stop == model.layers
        self.embedding = nn.Embedding(model.vocabulary, model.hidden) if first else None
        self.layers = nn.ModuleDict({str(number): TransformerBlock(model, attend) for number in layers})
        self.norm = nn.RMSNorm(model.hidden) if last else None
        self.head = nn.Linear(model.hidden, model.vocabulary, bias=False) if last else None

    def forward(self, value: torch.Tensor) -> torch.Tensor:
        """Return the logits of tokens, or the part's output."""
        for part in (self.embedding, *self.layers.values(), self.norm, self.head):
            if part is not None:
                value = part(value)
        return value


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


def trainee(job: TrainingJob, device: SimulatedDevice) -> Trainee:
    """Return the calling rank's part; all ranks of the job call."""
    if isinstance(job.model, ExpertLayers):
        return Dispatched(job, device)
    degrees = tuple(getattr(job, name) for name in _DIMENSIONS)
    mesh = init_device_mesh("cpu", degrees, mesh_dim_names=_DIMENSIONS)
    if job.strategy == "zero_redundancy":
        return Redundant(job, device)
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
            _loss(self._module(inputs)).backward()  # type: ignore[no-untyped-call]

    def forget(self) -> None:
        """Drop all gradients."""
        self._module.zero_grad(set_to_none=True)


class Redundant:
    """The whole model under DistributedDataParallel, its optimizer sharded by ZeroRedundancyOptimizer."""

    def __init__(self, job: TrainingJob, device: SimulatedDevice) -> None:
        self._inputs = _all_inputs(job)
        self._no_sync = job.no_sync
        part = _module(job, range(job.model.layers), device)
        self._model = DistributedDataParallel(part)
        self._optimizer = ZeroRedundancyOptimizer(part.parameters(), torch.optim.SGD, lr=1e-3)

    def step(self) -> None:
        """Pass all micro-batches, then step the optimizer."""
        *others, last = self._inputs
        with self._model.no_sync() if self._no_sync else nullcontext():
            for inputs in others:
                _loss(self._model(inputs)).backward()  # type: ignore[no-untyped-call]
        _loss(self._model(last)).backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()

    def forget(self) -> None:
        """Drop all gradients."""
        self._model.zero_grad(set_to_none=True)


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
            loss_fn=lambda output, _: _loss(output),
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


def _data(job: TrainingJob, mesh: DeviceMesh) -> DeviceMesh:
    """Return the mesh along which FSDP shards parameters, preceded by that along which it copies them."""
    sharded = "shard"
    if job.context > 1:
        sharded = "shard_context"
        mesh["shard", "context"]._flatten(sharded)
    return mesh["replicate", sharded] if job.replicate > 1 else mesh[sharded]


def _loss(output: torch.Tensor) -> torch.Tensor:
    return output.float().mean()


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
