"""Any ``torch.nn.Module`` as an architecture: its tensors, its layers' work, its gradients' order.

A copy of the module runs forward and backward once, on tensors that have a shape, a type and a device (the
CPU), and no memory (torch's FakeTensorMode): the kernels, and with them the order of the gradients, are
those that real tensors would meet on a CPU. A module that reads values (``.item()``, ``nonzero``) cannot
run so; then a copy with memory runs. The module itself is unchanged. A layer is a submodule that owns
parameters, with everything from its call to the next one's. Its work is counted as in
`ringside.sim.workload.architecture.Block`.
"""

import copy
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.flop_counter import flop_registry, sdpa_flop_count

from ringside.real.model.user_model import EXAMPLE, batch_of, build, build_light, loss
from ringside.sim.workload.architecture import Architecture, Block
from ringside.sim.workload.workload import Tensor, Workload

MEMORY = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 4
"""Bytes of parameters up to which a module may run with memory: a quarter of the machine's."""


class NeedsNumbersError(ValueError):
    """A module on the meta device that needs tensor values to run."""


@dataclass(slots=True)
class Count:
    """FLOPs of products, including convolutions, and elements moved by all operations."""

    flops: float = 0.0
    traffic: float = 0.0
    convolved: float = 0.0

    def add(self, other: "Count", times: int = 1) -> None:
        """Add ``other``, ``times`` times."""
        self.flops += times * other.flops
        self.traffic += times * other.traffic
        self.convolved += times * other.convolved


@dataclass(slots=True)
class LayerWork:
    """The work of one layer's modules on the whole batch; ``kept`` are elements that stay for backward.

    ``redone`` is what checkpointing recomputes. ``wanted`` is backward's work for the gradients requested in
    forward, ``wanted_anew`` for those requested in recomputation: a reentrant checkpoint (``use_reentrant``)
    requests none in forward.
    """

    forward: Count = field(default_factory=Count)
    redone: Count = field(default_factory=Count)
    wanted: Count = field(default_factory=Count)
    wanted_anew: Count = field(default_factory=Count)
    kept: float = 0.0

    def add(self, other: "LayerWork") -> None:
        """Add another layer's work."""
        for name in ("forward", "redone", "wanted", "wanted_anew"):
            getattr(self, name).add(getattr(other, name))
        self.kept += other.kept

    @property
    def backward(self) -> float:
        """Backward's work over forward's: of products, else of elements moved; 2 where there is none."""
        for what in ("flops", "traffic"):
            if forward := getattr(self.forward, what):
                wanted = max(getattr(self.wanted, what), getattr(self.wanted_anew, what))
                return float((wanted + getattr(self.redone, what)) / forward)
        return 2.0


@dataclass(slots=True)
class ModuleTrace:
    """The trace: the work after each module's call, in call order, and the order of the gradients."""

    work: dict[str, LayerWork] = field(default_factory=dict)
    arrival: list[str] = field(default_factory=list)
    current: LayerWork = field(default_factory=LayerWork)
    backward: bool = False

    @property
    def reentrant(self) -> bool:
        """Whether backward enters backward again, as checkpointing with ``use_reentrant`` does."""
        return any(work.wanted_anew.traffic > work.wanted.traffic for work in self.work.values())

    def call(self, name: str) -> None:
        """Start a module; the following work is its own, until the next starts."""
        self.current = self.work.setdefault(name, LayerWork())

    def count(self, done: Count, gradients: int) -> None:
        """Count an operation; its backward computes ``gradients`` requested gradients."""
        enabled = torch.is_grad_enabled()
        if not self.backward:
            self.current.forward.add(done)
            if enabled:
                self.current.wanted.add(done, gradients)
        elif enabled:  # plain backward requests no gradients of its own
            self.current.redone.add(done)
            self.current.wanted_anew.add(done, gradients)


def trace(module: nn.Module, inputs: Sequence[Any]) -> ModuleTrace:
    """Run a copy of the module on ``inputs`` like these; raise ValueError where it does not run."""
    try:
        with _quiet(), FakeTensorMode() as shapes:
            return _run(module, inputs, lambda tensor: _shape_of(tensor, shapes), shapes)
    except Exception as error:  # the module's own code runs here
        tensors = [*module.parameters(), *module.buffers(), *_tensors(inputs)]
        nbytes = sum(tensor.nbytes for tensor in tensors)
        if nbytes > MEMORY:
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
    own = {id(tensor): tensor for part in module.modules() for tensor in _tensors(vars(part))}
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
        counter = _Counter(seen, {_storage(tensor) for tensor in _tensors(list(memo.values()))})
        with _keeping(seen, counter.own), counter:
            outputs = double(*tree_map_only(torch.Tensor, stand_in, tuple(inputs)))
        total = loss(outputs)
        one = torch.ones_like(total)
        seen.backward = True
        with counter:
            total.backward(one)  # type: ignore[no-untyped-call]
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
def _keeping(seen: ModuleTrace, own: set[int]) -> Iterator[None]:
    """Count what forward keeps for backward besides the module's own tensors, each once."""
    kept: dict[int, torch.Tensor] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        if _storage(tensor) not in own and _storage(tensor) not in kept:
            kept[_storage(tensor)] = tensor
            seen.current.kept += tensor.numel()
        return tensor

    with saved_tensors_hooks(keep, lambda tensor: tensor):
        yield


class _Counter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds the work of every operation to the current layer; a view of a tensor counts nothing."""

    def __init__(self, seen: ModuleTrace, own: set[int]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen = seen
        self.own = own

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        outputs = func(*args, **kwargs)
        read, written = _tensors((args, kwargs)), _tensors(outputs)
        sources = {_storage(tensor) for tensor in read}
        view = not func._schema.is_mutable and sources.issuperset(map(_storage, written))
        if read and not view:
            moved = sum(tensor.numel() for tensor in (*read, *written) if _storage(tensor) not in self.own)
            product = _FLOPS.get(func.overloadpacket)
            flops = product(*args, **kwargs, out_val=outputs) if product else 0
            differentiable = [tensor for tensor in read if tensor.requires_grad]
            if product:
                factors = sum(tensor.dim() > 1 for tensor in differentiable)  # a bias is none
                convolved = flops if product is flop_registry[torch.ops.aten.convolution] else 0
                self.seen.count(Count(flops, moved, convolved), min(factors, 2))
            else:
                self.seen.count(Count(0, moved), 2 if differentiable else 0)
        return outputs


def _attention(*args: Any, **_: Any) -> int:
    query, key, value, *_rest = args
    return int(sdpa_flop_count(query.shape, key.shape, value.shape))  # type: ignore[no-untyped-call]


def _lstm(rows: torch.Tensor, *weights_and_more: Any, **_: Any) -> int:
    """Return one layer's FLOPs in one direction: input and state times a matrix per gate and step."""
    into, across, *_rest = weights_and_more
    steps = rows.numel() // rows.shape[-1]
    return 2 * steps * int(into.numel() + across.numel())


_FLOPS: dict[Any, Callable[..., int]] = {
    **flop_registry,
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _attention,
    torch.ops.aten.mkldnn_rnn_layer: _lstm,
}


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def _storage(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


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
