"""Any ``torch.nn.Module`` as an architecture: its tensors, its layers' work, its gradients' order.

A copy of the module runs forward and backward once (`ringside.real.model.trace`); the module itself is
unchanged. A layer is a submodule that owns parameters, with everything from its call to the next one's. Its
work is counted as in `ringside.sim.workload.architecture.Block`.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import torch
from torch import nn

from ringside.real.model.trace import LayerWork, ModuleTrace, NeedsNumbersError, sparse, trace
from ringside.real.model.user_model import EXAMPLE, batch_of, build, build_light
from ringside.sim.workload.architecture import Architecture, Block
from ringside.sim.workload.workload import Tensor, Workload


def parameters_of(model: str) -> Workload:
    """Return what a user's ``model`` trains, with layers still to be timed; it takes no memory."""
    module, inputs = build_light(model)
    bare = architecture(module)
    return Workload(bare.name, bare.parameters, (), bare.buffers, batch=batch_of(inputs))


def architecture(module: nn.Module, *inputs: Any) -> Architecture:
    """Return the module's architecture, from a run on ``inputs`` of any device; a row is one sample.

    Raise ValueError if it does not run. Without inputs nothing runs: layers cost nothing and gradients are
    assumed to arrive in the reverse of definition order. Parameters that need no gradient are left out, as in
    DistributedDataParallel.
    """
    trainable = {name: tensor for name, tensor in module.named_parameters() if tensor.requires_grad}
    if not trainable:
        raise ValueError(f"{type(module).__name__} has no parameter that requires a gradient")
    if inputs:
        batch = batch_of(inputs)
        seen = trace(module, inputs)
    else:
        batch = 1
        seen = ModuleTrace({name: LayerWork() for name, _ in module.named_modules()}, list(trainable)[::-1])
    alone = {f"{name}.weight" for name in sparse(module)}
    return Architecture(
        name=type(module).__name__,
        sample="sample",
        parameters=tuple(_describe(name, tensor, name in alone) for name, tensor in trainable.items()),
        blocks=tuple(_blocks(seen, list(trainable), batch)),
        buffers=tuple(_describe(name, tensor) for name, tensor in module.named_buffers()),
        frozen_nbytes=sum(tensor.nbytes for tensor in module.parameters() if not tensor.requires_grad),
        reentrant=seen.reentrant,
        batch=batch,
    )


def architecture_of(text: str) -> Architecture:
    """Return the architecture of a user's ``FILE.py:NAME``; it takes memory only if necessary."""
    module, inputs = build_light(text)
    if not inputs:
        raise ValueError(f"{text} gives no inputs, which layer times need; {EXAMPLE}")
    try:
        return architecture(module, *inputs)
    except NeedsNumbersError:
        module, inputs = build(text)
        return architecture(module, *inputs)


def _blocks(seen: ModuleTrace, parameters: Sequence[str], batch: int) -> Iterator[Block]:
    """Yield the layers in forward order; one whose gradients arrive apart is one block per arrival."""
    position = {name: index for index, name in enumerate(parameters)}
    owners = {_owner(name, seen.work) for name in seen.arrival}
    work = _merged(seen.work, owners)
    for owner, names in groupby(reversed(seen.arrival), lambda name: _owner(name, seen.work)):
        own = work.pop(owner, LayerWork())
        yield Block(
            name=owner,
            gradients=tuple(position[name] for name in names)[::-1],
            flops=own.forward.flops / batch,
            traffic=own.forward.traffic / batch,
            kept=own.kept / batch,
            backward=own.backward,
            convolves=own.forward.convolved > own.forward.flops / 2,
        )


def _owner(parameter: str, called: Mapping[str, LayerWork]) -> str:
    """Return the innermost called module that contains a parameter; the outermost, '', is always called."""
    path = parameter.rpartition(".")[0]
    while path not in called:
        path = path.rpartition(".")[0]
    return path


def _merged(work: Mapping[str, LayerWork], owners: set[str]) -> dict[str, LayerWork]:
    """Return the work of owners; other modules' work is added to the owner called before, or to the first."""
    merged = {name: LayerWork() for name in work if name in owners}
    current = next(iter(merged), "")
    for name, own in work.items():
        current = name if name in owners else current
        merged.setdefault(current, LayerWork()).add(own)
    return merged


def _describe(name: str, tensor: torch.Tensor, sparse: bool = False) -> Tensor:
    rows = tensor.shape[0] if tensor.dim() > 1 and tensor.numel() else None
    return Tensor(name, tensor.numel(), str(tensor.dtype).removeprefix("torch."), sparse, rows)
