"""Any ``torch.nn.Module`` as an architecture: its tensors, its layers' work, its gradients' order.

The module runs forward and backward on the meta device, where tensors have shapes and no memory, with
stand-ins for its parameters; it is left as it was. A layer is a submodule that owns parameters,
with all that runs from its call to the call of the next one. Its work is counted as in
`sim.workload.architecture.Block`, with one difference: attention runs as separate products there, so the
scores count as traffic.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.func import functional_call
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.flop_counter import flop_registry

from real.model.user_model import batch_of, build_light, loss
from sim.workload.architecture import Architecture, Block
from sim.workload.workload import Tensor


@dataclass(slots=True)
class _Work:
    """FLOPs, elements moved and elements kept by the modules of one layer, on the whole batch."""

    flops: float = 0.0
    traffic: float = 0.0
    kept: float = 0.0

    def add(self, other: "_Work") -> None:
        self.flops += other.flops
        self.traffic += other.traffic
        self.kept += other.kept


@dataclass(slots=True)
class _Trace:
    """What was seen: the work after each module's call, in call order, and the order of the gradients."""

    work: dict[str, _Work] = field(default_factory=dict)
    arrival: list[str] = field(default_factory=list)
    current: _Work = field(default_factory=_Work)

    def call(self, name: str) -> None:
        self.current = self.work.setdefault(name, _Work())


def architecture(module: nn.Module, *inputs: Any) -> Architecture:
    """The module's architecture, seen by running it on ``inputs`` of any device; a row is one sample.

    Raise ValueError where it does not run. Without inputs nothing runs: layers cost nothing and
    gradients are taken to arrive in the reverse of definition order. Parameters that need no gradient
    are no part of it, as for DistributedDataParallel.
    """
    trained = {name: tensor for name, tensor in module.named_parameters() if tensor.requires_grad}
    if not trained:
        raise ValueError(
            f"{type(module).__name__} has no parameter that requires a gradient: nothing to share"
        )
    if inputs:
        trace = _run(module, trained, inputs)
        batch = batch_of(inputs)
    else:
        trace = _Trace({name: _Work() for name, _ in module.named_modules()}, list(trained)[::-1])
        batch = 1
    sparse = {f"{name}.weight" for name in _sparse(module)}
    return Architecture(
        name=type(module).__name__,
        sample="sample",
        parameters=tuple(_describe(name, tensor, name in sparse) for name, tensor in trained.items()),
        blocks=tuple(_blocks(trace, list(trained), batch)),
        buffers=tuple(_describe(name, tensor) for name, tensor in module.named_buffers()),
        frozen_nbytes=sum(tensor.nbytes for tensor in module.parameters() if not tensor.requires_grad),
    )


def architecture_of(text: str) -> Architecture:
    """The architecture of `real.model.user_model`'s ``FILE.py:NAME``, made on the meta device."""
    module, inputs = build_light(text)
    return architecture(module, *inputs)


def _blocks(trace: _Trace, parameters: Sequence[str], batch: int) -> Iterator[Block]:
    """The layers in forward order; one whose gradients do not arrive together is one block for each time."""
    position = {name: index for index, name in enumerate(parameters)}
    owners = {_owner(name, trace.work) for name in trace.arrival}
    work = _merged(trace.work, owners)
    for owner, names in groupby(reversed(trace.arrival), lambda name: _owner(name, trace.work)):
        own = work.pop(owner, _Work())
        yield Block(
            name=owner,
            gradients=tuple(position[name] for name in names)[::-1],
            flops=own.flops / batch,
            traffic=own.traffic / batch,
            kept=own.kept / batch,
        )


def _owner(parameter: str, called: Mapping[str, _Work]) -> str:
    """The innermost module around a parameter that was called; the outermost always is, as ''."""
    path = parameter.rpartition(".")[0]
    while path not in called:
        path = path.rpartition(".")[0]
    return path


def _merged(work: Mapping[str, _Work], owners: set[str]) -> dict[str, _Work]:
    """The work of owners: what other modules do belongs to the owner called before them, or the first."""
    merged = {name: _Work() for name in work if name in owners}
    current = next(iter(merged), "")
    for name, own in work.items():
        current = name if name in owners else current
        merged.setdefault(current, _Work()).add(own)
    return merged


def _run(module: nn.Module, trained: Mapping[str, torch.Tensor], inputs: Sequence[Any]) -> _Trace:
    trace = _Trace()
    state = {
        name: torch.empty_like(tensor, device="meta", requires_grad=name in trained)
        for name, tensor in (*module.named_parameters(), *module.named_buffers())
    }
    for name in trained:
        state[name].register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
            lambda _, name=name: trace.arrival.append(name)
        )
    stand_ins = tree_map_only(torch.Tensor, lambda tensor: tensor.to("meta"), tuple(inputs))
    try:
        with _announcing(module, trace), _counting(trace, list(state.values())):
            outputs = functional_call(module, state, stand_ins)
        loss(outputs).backward()  # type: ignore[no-untyped-call]
    except Exception as error:  # the module's own code runs here
        reason = (str(error).splitlines() or [type(error).__name__])[0].split(". ")[0]
        raise ValueError(
            f"{type(module).__name__} does not run on the meta device with these inputs: {reason}; "
            "write inputs that its forward takes, or none for the bare list of parameters"
        ) from error
    return trace


@contextmanager
def _announcing(module: nn.Module, trace: _Trace) -> Iterator[None]:
    """Tell the trace of every module's call; sparse gradients, which meta lacks, are dense meanwhile."""
    with ExitStack() as stack:
        for layer in _sparse(module).values():
            layer.sparse = False
            stack.callback(setattr, layer, "sparse", True)
        for name, layer in module.named_modules():
            handle = layer.register_forward_pre_hook(lambda *_, name=name: trace.call(name))
            stack.callback(handle.remove)
        yield


@contextmanager
def _counting(trace: _Trace, state: Sequence[torch.Tensor]) -> Iterator[None]:
    own = {_storage(tensor) for tensor in state}
    kept: dict[int, torch.Tensor] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        if _storage(tensor) not in own and _storage(tensor) not in kept:
            kept[_storage(tensor)] = tensor
            trace.current.kept += tensor.numel()
        return tensor

    with saved_tensors_hooks(keep, lambda tensor: tensor), _Counter(trace, own):
        yield


class _Counter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds the work of every operation to the current layer; views of a tensor are none."""

    def __init__(self, trace: _Trace, own: set[int]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.trace = trace
        self.own = own

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        outputs = func(*args, **kwargs)
        read = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        written = [leaf for leaf in tree_leaves(outputs) if isinstance(leaf, torch.Tensor)]
        sources = {_storage(tensor) for tensor in read}
        view = not func._schema.is_mutable and sources.issuperset(map(_storage, written))
        if read and not view:
            moved = [tensor for tensor in (*read, *written) if _storage(tensor) not in self.own]
            self.trace.current.traffic += sum(tensor.numel() for tensor in moved)
            if func.overloadpacket in flop_registry:
                self.trace.current.flops += flop_registry[func.overloadpacket](
                    *args, **kwargs, out_val=outputs
                )
        return outputs


def _sparse(module: nn.Module) -> dict[str, nn.Embedding | nn.EmbeddingBag]:
    """The layers whose weight gets a sparse gradient, by the same rule as DistributedDataParallel."""
    return {
        name: layer
        for name, layer in module.named_modules()
        if isinstance(layer, nn.Embedding | nn.EmbeddingBag) and layer.sparse
    }


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _describe(name: str, tensor: torch.Tensor, sparse: bool = False) -> Tensor:
    return Tensor(name, tensor.numel(), str(tensor.dtype).removeprefix("torch."), sparse)
