"""Any ``torch.nn.Module`` as an architecture: its tensors, its layers' kernels, its gradients' order.

A copy of the module runs forward and backward once, on tensors that have a shape, a type and a device (the
CPU), and no memory (torch's FakeTensorMode): the kernels, and with them the order of the gradients, are
those that real tensors would meet on a CPU. A module that reads values (``.item()``, ``nonzero``) cannot
run so; then a copy with memory runs. The module itself is unchanged. A layer is a submodule that owns
parameters, with everything from its call to the next one's, and what backward does for these. Its kernels are
recorded by `ringside.real.model.kernels`, in backward too, where checkpoints repeat some of forward's.
"""

import copy
import logging
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._pytree import tree_map_only

from ringside.real.model.kernels import CONVOLUTION, MEMORY, KernelRecorder, RecordedKernel, storage
from ringside.real.model.kernels import tensors as tensors_in
from ringside.real.model.user_model import EXAMPLE, batch_of, build, build_light, trainable_outputs
from ringside.sim.workload.architecture import Architecture, Block, KernelSums
from ringside.sim.workload.workload import Tensor, Workload

LARGEST = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4
"""Bytes of parameters up to which a module may run with memory: a quarter of the machine's."""


class NeedsNumbersError(ValueError):
    """A module on the meta device that needs tensor values to run."""


@dataclass(slots=True)
class ModuleTrace:
    """The trace: the kernels, the layers in call order, the order of the gradients.

    ``kept`` are the bytes that stay for backward, by layer. A layer's forward may run again in backward;
    if it then requests gradients that it did not request before, a checkpoint is reentrant.
    """

    recorder: KernelRecorder = field(init=False)
    kept: dict[str, int] = field(default_factory=dict)
    arrival: list[str] = field(default_factory=list)
    quiet: set[str] = field(default_factory=set)
    reentrant: bool = False

    def call(self, name: str) -> None:
        """Start a module."""
        self.recorder.calls.start(name)
        self.kept.setdefault(name, 0)
        if not torch.is_grad_enabled():
            self.quiet.add(name)
        elif torch._C._current_autograd_node() is not None and name in self.quiet:
            self.reentrant = True


def trace(module: nn.Module, inputs: Sequence[Any]) -> ModuleTrace:
    """Run a copy of the module on ``inputs`` like these; raise ValueError where it does not run."""
    try:
        with _quiet(), FakeTensorMode() as shapes:
            return _run(module, inputs, lambda tensor: _shape_of(tensor, shapes), shapes)
    except Exception as error:  # the module's own code runs here
        tensors = [*module.parameters(), *module.buffers(), *tensors_in(inputs)]
        nbytes = sum(tensor.nbytes for tensor in tensors)
        if nbytes > LARGEST:
            without = f"without values, and its {nbytes / 2**30:,.0f} GiB are too much to run with them"
            raise ValueError(_complaint(module, error, without)) from error
        if any(tensor.is_meta for tensor in tensors):
            raise NeedsNumbersError(_complaint(module, error, "on the meta device")) from error
    try:
        with torch.random.fork_rng(devices=[]):
            return _run(module, inputs, _with_memory, nullcontext())
    except Exception as error:
        raise ValueError(_complaint(module, error, "with these inputs")) from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Mute torch's own log of failures for missing values: the run is repeated with them."""
    log = logging.getLogger("torch._subclasses.fake_tensor")
    before = log.disabled
    log.disabled = True
    try:
        yield
    finally:
        log.disabled = before


def _run(
    module: nn.Module,
    inputs: Sequence[Any],
    stand_in: Callable[[torch.Tensor], torch.Tensor],
    tensors: AbstractContextManager[Any],
) -> ModuleTrace:
    seen = ModuleTrace()
    own = {id(tensor): tensor for part in module.modules() for tensor in tensors_in(vars(part))}
    memo: dict[int, Any] = {key: stand_in(tensor) for key, tensor in own.items()}
    double = copy.deepcopy(module, memo)
    for name, tensor in double.named_parameters():
        if tensor.requires_grad:
            tensor.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
                lambda _, name=name: seen.arrival.append(name)
            )
    for layer in sparse(double).values():
        layer.sparse = False  # a shape alone cannot be sparse
    for name, part in double.named_modules():
        part.register_forward_pre_hook(lambda *_, name=name: seen.call(name))
    with tensors:
        seen.recorder = recorder = KernelRecorder(tensors_in(list(memo.values())))
        with _keeping(seen), recorder:
            outputs = trainable_outputs(double(*tree_map_only(torch.Tensor, stand_in, tuple(inputs))))
        gradients = [torch.ones_like(output) for output in outputs]
        with recorder:
            torch.autograd.backward(outputs, gradients)
    return seen


def _shape_of(tensor: torch.Tensor, shapes: FakeTensorMode) -> torch.Tensor:
    """Return a tensor like this one on the CPU, without memory."""
    with shapes:
        like = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="cpu")
    return _as(tensor, like)


def _with_memory(tensor: torch.Tensor) -> torch.Tensor:
    return _as(tensor, tensor.detach().clone())


def _as(tensor: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    if isinstance(tensor, nn.Parameter):
        return nn.Parameter(like, requires_grad=tensor.requires_grad)
    return like.requires_grad_(tensor.requires_grad)


def sparse(module: nn.Module) -> dict[str, nn.Embedding | nn.EmbeddingBag]:
    """Return the layers whose weight gets a sparse gradient, by DistributedDataParallel's rule."""
    return {
        name: layer
        for name, layer in module.named_modules()
        if isinstance(layer, nn.Embedding | nn.EmbeddingBag) and layer.sparse
    }


@contextmanager
def _keeping(seen: ModuleTrace) -> Iterator[None]:
    """Count what forward keeps for backward besides the module's own tensors, each once."""
    kept: dict[int, torch.Tensor] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        if storage(tensor) not in seen.recorder.own and storage(tensor) not in kept:
            kept[storage(tensor)] = tensor
            seen.kept[seen.recorder.calls.current] += tensor.nbytes
        return tensor

    with saved_tensors_hooks(keep, lambda tensor: tensor):
        yield


def _complaint(module: nn.Module, error: Exception, how: str) -> str:
    reason = (str(error).splitlines() or [type(error).__name__])[0].split(". ")[0]
    return f"{type(module).__name__} does not run {how}: {reason}; write inputs that its forward takes"


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
    seen, batch = (trace(module, inputs), batch_of(inputs)) if inputs else (None, 1)
    blocks = _blocks(module, seen, list(trainable), batch) if seen else _idle(list(trainable))
    alone = {f"{name}.weight" for name in sparse(module)}
    return Architecture(
        name=type(module).__name__,
        sample="sample",
        parameters=tuple(_describe(name, tensor, name in alone) for name, tensor in trainable.items()),
        blocks=tuple(blocks),
        buffers=tuple(_describe(name, tensor) for name, tensor in module.named_buffers()),
        frozen_nbytes=sum(tensor.nbytes for tensor in module.parameters() if not tensor.requires_grad),
        channels_last=seen.recorder.channels_last if seen else None,
        reentrant=seen is not None and seen.reentrant,
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


def _blocks(module: nn.Module, seen: ModuleTrace, parameters: Sequence[str], batch: int) -> Iterator[Block]:
    """Yield the layers in forward order; one whose gradients arrive apart is one block per arrival."""
    position = {name: index for index, name in enumerate(parameters)}
    owners = {_owner(name, seen.kept) for name in seen.arrival}
    belongs = _belonging(seen.kept, owners)
    kernels, kept = defaultdict[str, list[RecordedKernel]](list), Counter[str]()
    for kernel in _launched(module, seen):
        kernels[belongs[kernel.layer]].append(kernel)
    for name, nbytes in seen.kept.items():
        kept[belongs[name]] += nbytes
    itemsize = next(module.get_parameter(name) for name in parameters).element_size()
    for owner, names in groupby(reversed(seen.arrival), lambda name: _owner(name, seen.kept)):
        own = kernels.pop(owner, [])
        convolved = sum(kernel.flops for kernel in own if kernel.kind == CONVOLUTION)
        yield Block(
            name=owner,
            gradients=tuple(position[name] for name in names)[::-1],
            forward=_work((one for one in own if not one.backward), batch, itemsize),
            backward=_work((one for one in own if one.backward), batch, itemsize),
            kept=kept.pop(owner, 0) / (batch * itemsize),
            convolves=convolved > sum(kernel.flops for kernel in own) / 2,
        )


def _idle(trainable: Sequence[str]) -> Iterator[Block]:
    """Yield layers without work, whose gradients arrive in the reverse of definition order."""
    position = {name: index for index, name in enumerate(trainable)}
    for owner, names in groupby(trainable, lambda name: name.rpartition(".")[0]):
        yield Block(owner, tuple(position[name] for name in names)[::-1])


def _work(kernels: Iterable[RecordedKernel], batch: int, itemsize: int) -> KernelSums:
    """Add up kernels on a whole batch as work on one sample; elements have ``itemsize`` bytes."""
    flops = touched = moved = weights = launches = 0
    for kernel in kernels:
        flops += kernel.flops
        weights += kernel.weights
        launches += kernel.launches - (kernel.kind != MEMORY)
        if kernel.kind == MEMORY:
            moved += kernel.nbytes - kernel.weights
        else:
            touched += kernel.nbytes - kernel.weights
    each = batch * itemsize
    return KernelSums(flops / batch, touched / each, moved / each, weights / itemsize, launches)


def record(module: nn.Module, *inputs: Any) -> list[RecordedKernel]:
    """Return the kernels that a GPU launches for the module, forward and backward, in order."""
    return list(_launched(module, trace(module, inputs)))


def _launched(module: nn.Module, seen: ModuleTrace) -> Iterator[RecordedKernel]:
    """Yield the kernels as a GPU launches them.

    Its recurrent layers launch one for what follows each product of theirs, and its dropout draws the factors
    by which it multiplies. A sparse gradient has only rows that were read.
    """
    recurrent = {name for name, part in module.named_modules() if isinstance(part, nn.RNNBase)}
    alone, before = sparse(module), ""
    for kernel in seen.recorder.kernels:
        if kernel.name == "embedding_dense_backward" and kernel.layer in alone:
            kernel = replace(kernel, nbytes=2 * (kernel.nbytes - kernel.weights), weights=0)
        drawn, before = kernel.name == "bernoulli_" or before == "bernoulli_", kernel.name
        if drawn:
            continue
        if kernel.layer in recurrent and kernel.launches == 1:
            kernel = replace(kernel, launches=2 if kernel.kind != MEMORY else 0)
        yield kernel


def _owner(parameter: str, called: Mapping[str, int]) -> str:
    """Return the innermost called module that contains a parameter; the outermost, '', is always called."""
    path = parameter.rpartition(".")[0]
    while path not in called:
        path = path.rpartition(".")[0]
    return path


def _belonging(called: Iterable[str], owners: set[str]) -> dict[str, str]:
    """Return the owner that has each module's work: itself, or the owner called before, or the first."""
    called = list(called)
    current = next((name for name in called if name in owners), "")
    belongs = {}
    for name in called:
        belongs[name] = current = name if name in owners else current
    return belongs


def _describe(name: str, tensor: torch.Tensor, sparse: bool = False) -> Tensor:
    rows = tensor.shape[0] if tensor.dim() > 1 and tensor.numel() else None
    return Tensor(name, tensor.numel(), str(tensor.dtype).removeprefix("torch."), sparse, rows)
