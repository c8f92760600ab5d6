"""Which operators are those of a compiled call: what a script hands to ``torch.compile`` runs eager here.

Operators of forward are those within the call; those of backward belong to nodes that the call has made,
which autograd numbers in order. Layers that are recomputed in backward are part of the call that they repeat.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache, wraps
from typing import Any, NamedTuple, cast

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from ringside.real.record.script.tape import TAPE
from ringside.sim.recorded.job import Shaped

FORWARD, BACKWARD, AGAIN = range(3)
"""The parts of a compiled call; the last repeats forward in backward."""

NOTE = "torch.compile: kernels that memory bounds are fused by rule"

_EAGER = ("eager", "aot_eager")
"""Backends that fuse nothing."""


class TensorForm(NamedTuple):
    """A tensor's place in its storage, and what is distinct."""

    place: tuple[Any, ...]
    tensor: Shaped


_Formed = tuple[Any, TensorForm]
"""A tensor, and its form."""


class SeenTensor(NamedTuple):
    """A tensor of an operator: its storage's number and bytes, its place, and what is distinct."""

    storage: int
    whole: int
    place: tuple[Any, ...]
    tensor: Shaped


class Flow(NamedTuple):
    """What an operator reads and writes; ``part`` is the compiled call and its part, None outside of one."""

    part: tuple[int, int] | None
    reads: tuple[SeenTensor, ...]
    writes: tuple[SeenTensor, ...]


@dataclass
class Regions:
    """The compiled calls so far, and what operators read and write, by entry, from the first call on."""

    flows: dict[int, Flow] = field(default_factory=dict)
    returned: set[int] = field(default_factory=set)
    """Storages that a compiled call returns."""
    is_enabled: bool = True
    """Whether what operators read and write is remembered."""
    _begins: list[int] = field(default_factory=list)
    _ends: list[int] = field(default_factory=list)
    _now: tuple[int, int] | None = None
    _last: tuple[int, int] | None = None

    def run(self, call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Run a compiled call; within another one it is part of that."""
        if self._now is not None:
            return call(*args, **kwargs)
        node = _node()
        again = None if node is None else self._call_of(node)
        is_first = not _is_backward()
        if is_first:
            self._begins.append(_next_node())
            self._ends.append(_next_node())
            self._now = len(self._begins) - 1, FORWARD
        else:
            self._now = (again, AGAIN) if again is not None else None
        compiler: Any = torch.compiler
        was_compiling, compiler._is_compiling_flag = compiler._is_compiling_flag, True
        try:
            result = call(*args, **kwargs)
        finally:
            self._now, compiler._is_compiling_flag = None, was_compiling
            if is_first:
                self._ends[-1] = _next_node()
        for one in tree_leaves(result) if is_first else ():
            if isinstance(one, FakeTensor) and (number := TAPE.number_of(one.untyped_storage())) is not None:
                self.returned.add(number)
        return _with_all_gradients(result) if is_first else result

    def see(self, entry: int, reads: Sequence[Any], writes: Sequence[Any]) -> None:
        """Remember what an entry reads and writes."""
        if self.is_enabled and self._begins:
            self.see_formed(entry, *([(one, form(one)) for one in some] for some in (reads, writes)))

    def see_formed(self, entry: int, reads: Iterable[_Formed], writes: Iterable[_Formed]) -> None:
        """Do `see` with tensors whose form is known."""
        if self.is_enabled and self._begins:
            self.flows[entry] = Flow(self._part(), tuple(_seen(reads)), tuple(_seen(writes)))

    def _part(self) -> tuple[int, int] | None:
        if self._now is not None or not _is_backward():
            self._last = None
            return self._now
        node = _node()
        if node is not None:  # without one the engine adds up gradients of the node before
            call = self._call_of(node)
            self._last = None if call is None else (call, BACKWARD)
        return self._last

    def _call_of(self, node: Any) -> int | None:
        number = node._sequence_nr()
        call = bisect_right(self._begins, number) - 1
        return call if call >= 0 and number < self._ends[call] else None


REGIONS = Regions()
"""Those of this process."""


def install() -> None:
    """Put the functions in place."""
    vars(torch)["compile"] = _compile
    module: Any = torch.nn.Module
    module.compile = lambda self, *_, **options: _compile(self, **options) and None


def _compile(model: Any = None, *, backend: Any = "inductor", disable: bool = False, **_: Any) -> Any:
    """Do ``torch.compile``."""
    if model is None:
        return lambda one: _compile(one, backend=backend, disable=disable)
    if disable or backend in _EAGER:
        return model
    TAPE.notes[NOTE] += 1
    if isinstance(model, torch.nn.Module):
        vars(model)["_compiled_call_impl"] = _compiled(model._call_impl)
        return model
    return _compiled(model)


def _compiled(call: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(call)
    def run(*args: Any, **kwargs: Any) -> Any:
        return REGIONS.run(call, args, kwargs)

    return run


class _Outputs(torch.autograd.Function):
    """What a compiled call returns: its backward takes a gradient of each tensor, zeros where there is none.

    So does ``CompiledFunction`` (``torch/_functorch/_aot_autograd/runtime_wrappers.py``), such as of logits
    beside their loss.
    """

    @staticmethod
    def forward(ctx: Any, *outputs: Any) -> Any:
        ctx.set_materialize_grads(False)
        ctx.like = [(one.shape, one.dtype, one.device) for one in outputs]
        return tuple(one.view_as(one) for one in outputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return tuple(
            torch.zeros(shape, dtype=dtype, device=device) if gradient is None else gradient
            for gradient, (shape, dtype, device) in zip(gradients, ctx.like, strict=True)
        )


def _with_all_gradients(result: Any) -> Any:
    """Return a compiled call's result, which has several tensors, as that of `_Outputs`."""
    leaves, form = tree_flatten(result)
    own = {id(one): one for one in leaves if isinstance(one, FakeTensor) and one.grad_fn is not None}
    if len(own) < 2:
        return result
    instead = dict(zip(own, cast(Any, _Outputs).apply(*own.values()), strict=True))
    return tree_unflatten([instead.get(id(one), one) for one in leaves], form)


def _is_backward() -> bool:
    return torch._C._current_graph_task_id() != -1


def _node() -> Any:
    return torch._C._current_autograd_node()


def _next_node() -> int:
    return torch._C._autograd._get_sequence_nr()


def form(tensor: Any) -> TensorForm:
    """Return the form of a tensor."""
    shape, stride = tuple(tensor.shape), tensor.stride()
    return TensorForm((tensor.storage_offset(), shape, stride), _distinct(shape, stride, tensor.dtype))


def _seen(tensors: Iterable[_Formed]) -> Iterable[SeenTensor]:
    for one, its in tensors:
        storage = one.untyped_storage()
        number = TAPE.number_of(storage)
        if number is not None:
            yield SeenTensor(number, storage.nbytes(), *its)


@cache
def _distinct(shape: tuple[int, ...], strides: tuple[int, ...], dtype: Any) -> Shaped:
    """Return a tensor's elements, each once."""
    extents = (int(extent) if stride else 1 for extent, stride in zip(shape, strides, strict=True))
    return Shaped(tuple(extents), str(dtype)[6:])
