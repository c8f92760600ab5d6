"""What becomes of each operator that a script calls: tensors of the device are fake, those of the host real.

A fake mode is entered only round operators of the device. While another one is active nothing is recorded:
DTensor asks in one what an operator's global shapes would be.
"""

import os
from functools import cache
from typing import Any, NamedTuple

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    UnsupportedOperatorException,
)
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from ringside.real.record.calls import host, record
from ringside.real.record.calls.schemas import is_call
from ringside.real.record.rules import routing
from ringside.real.record.rules.layout import layout
from ringside.real.record.rules.operators import by_operator
from ringside.real.record.rules.regions import REGIONS
from ringside.real.record.script import answers, places, transfers, values
from ringside.real.record.script.refusal import refusal
from ringside.real.record.script.tape import TAPE
from ringside.sim.recorded.job import Operator, Shaped

LARGE = 2**22
"""Elements from which a tensor that the host makes is fake too: models are built there."""

_FREE = {
    *("detach", "alias", "lift_fresh", "_unsafe_view", "empty", "empty_strided", "empty_like", "new_empty"),
    *("new_empty_strided", "empty_permuted", "set_", "resize_", "_assert_async", "_reshape_alias"),
}
"""Operators of aten that ask nothing of the device."""

_VIEWS = {
    getattr(torch.ops.aten, name)
    for name in (
        *("view", "_unsafe_view", "t", "transpose", "permute", "expand", "slice", "select", "split"),
        *("split_with_sizes", "unbind", "squeeze", "unsqueeze", "as_strided", "detach", "alias"),
        *("view_as_complex", "view_as_real", "_reshape_alias"),
    )
}
"""Operators whose results are always new tensors of their argument's storage."""

_WITH_OPTIONS = ("scaled_dot_product", "convolution")
"""Operators whose arguments besides tensors change their work."""

_DEVICE = torch.ops.prim.device.default

_WRAPS = "_c10d_functional::_wrap_tensor_autograd"
"""What makes a functional collective's result wait at its first use, from PyTorch 2.13 on.

Fake mode would have it return a new tensor, which nothing waits for.
"""


_NOT_ASSUMED = (torch.ops.aten._unique2, torch.ops.aten.unique_dim, torch.ops.aten.unique_consecutive)
"""Operators whose result has any number of elements."""

_OF_ARGUMENTS = (torch.ops.aten._ctc_loss,)
"""Operators whose shapes PyTorch says are up to numbers of tensors, but are up to lists of the host's."""

ASSUMED = "a shape depends on numbers of the device; assumed: masks hide nothing"


class DeviceMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The dispatch mode of a script."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return that calls need no guard against ``torch.compile``, which compiles nothing here."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is _DEVICE and type(args[0]) is FakeTensor:
            return args[0].device  # C++ asks this more often than all else together
        kwargs = kwargs or {}
        for one in types:
            if one is not FakeTensor and one is not torch.Tensor and one is not torch.nn.Parameter:
                return NotImplemented
        if torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is not None:
            return func(*args, **kwargs)
        facts = _facts(func)
        if facts.sources is not None:
            args = transfers.with_sources_there(args, facts.sources)
        if facts.is_plain or transfers.stays(func, args, kwargs):
            call = answers.question(func, args, kwargs)
            if call is not None and (call.fakes or _is_made_there(kwargs)):
                return _answered(call, func, args, kwargs)
        tensors = values.tensors_in((*args, *kwargs.values()))
        fakes = [one for one in tensors if isinstance(one, FakeTensor)]
        if not fakes and not _is_made_there(kwargs):
            return _on_host(func, args, kwargs)
        return _on_device(func, args, kwargs, tensors, fakes)


def _is_made_there(kwargs: Any) -> bool:
    """Return whether an operator is asked for tensors of the device."""
    device = kwargs.get("device")
    return device is not None and torch.device(device).type == "cuda"


def _on_host(func: Any, args: Any, kwargs: Any) -> Any:
    if func._overloadpacket is torch.ops.aten.is_pinned:
        return True  # DDP asserts it of what it has just pinned
    if kwargs.get("pin_memory"):
        kwargs = {**kwargs, "pin_memory": False}
    if is_call(func):
        return host.answer(func, args, kwargs)
    device = kwargs.get("device")
    if device is None or torch.device(device).type == "cpu":
        size = args[0] if args and isinstance(args[0], list | tuple) else ()
        if size and all(isinstance(one, int) for one in size) and torch.Size(size).numel() >= LARGE:
            with values.FAKE:
                return func(*args, **kwargs)
    return func(*args, **kwargs)


class _Facts(NamedTuple):
    """What decides how an operator is handled.

    A plain one only makes tensors of the device, or changes them. ``sources`` is the place of an argument
    that lists tensors to copy, if there is one.
    """

    is_plain: bool
    sources: int | None


@by_operator
def _facts(func: Any) -> _Facts:
    packet = func._overloadpacket
    is_plain = packet not in transfers.TRANSFERS and func not in routing.CHOICES and not is_call(func)
    return _Facts(is_plain, transfers.SOURCES.get(func.name()))


def _answered(call: answers.OperatorCall, func: Any, args: Any, kwargs: Any) -> Any:
    """Return the answer to a question, as it was remembered if it was asked before."""
    fakes = call.fakes
    known = answers.ANSWERS.get(call.key)
    if known is None:
        return _on_device(func, args, kwargs, fakes, fakes, call)
    _wait_for_flights(fakes)
    result, written = known.again(fakes)
    if known.has_numbers or values.has_decided():
        values.compute_twins(func, args, kwargs, fakes, result)
    for one in written:
        TAPE.keep(one.untyped_storage())
    if known.operator is not None:
        reads, writes = zip(fakes, known.reads, strict=True), zip(written, known.writes, strict=True)
        REGIONS.see_formed(TAPE.post(known.operator), reads, writes)
    return result


def _on_device(
    func: Any, args: Any, kwargs: Any, tensors: list[Any], fakes: list[Any],
    call: answers.OperatorCall | None = None,
) -> Any:  # fmt: skip
    packet = func._overloadpacket
    _wait_for_flights(fakes)
    if packet is torch.ops._c10d_functional.wait_tensor:
        return record.wait_tensor(func, args, kwargs)
    if func.name() == _WRAPS:
        return AsyncCollectiveTensor(args[0])
    if packet in transfers.TRANSFERS:
        handled, result = transfers.TRANSFERS[packet](func, args, kwargs)
        if handled:
            return result
    if kwargs.get("generator") is not None:
        kwargs = {**kwargs, "generator": None}
    if is_call(func):
        return record.record(func, args, kwargs)
    if len(fakes) < len(tensors):
        args, kwargs = tree_map(values.fake_of, (args, kwargs))
        fakes = values.tensors_in((*args, *kwargs.values()))
    try:
        if packet in _VIEWS:
            result = values.view(func, args, kwargs, fakes[0].fake_device)
        else:
            with values.FAKE:
                result = func(*args, **kwargs)
    except (DynamicOutputShapeException, DataDependentOutputException):
        return (_by_host if packet in _OF_ARGUMENTS else _by_numbers)(func, args, kwargs, fakes)
    except (UnsupportedOperatorException, NotImplementedError):
        return _by_host(func, args, kwargs, fakes)
    values.compute_twins(func, args, kwargs, fakes, result)
    routing.choose(func, args, kwargs, result)
    written = _written(func, args, kwargs, result)
    operator = _post(func, args, kwargs, tensors, written)
    again = answers.question(func, args, kwargs) if call is not None else None
    if call is not None and again is not None and again.key == call.key:  # else it has resized an argument
        answers.remember(call, func, result, operator, written)
    return result


def _wait_for_flights(fakes: list[Any]) -> None:
    """Have the operator wait for calls that C++ waits for, if it touches their tensors."""
    for one in fakes if TAPE.in_flight else ():
        storage = TAPE.number_of(one.untyped_storage())
        entry = None if storage is None else TAPE.in_flight.get(storage)
        if entry is not None:
            TAPE.current.pending.add(entry)


def _by_numbers(func: Any, args: Any, kwargs: Any, fakes: list[Any]) -> Any:
    """Return the result of an operator whose shape is up to numbers; assume those that are unknown."""
    chosen = routing.with_places(func, args)
    if chosen is not None:
        TAPE.wait("nonzero", TAPE.current.reached())
        return func(*chosen)
    of_numbers = values.of_twins
    if any(values.twin(one) is None for one in fakes):
        if func._overloadpacket in _NOT_ASSUMED:
            raise refusal(
                f"{func} has a result whose shape depends on numbers of the device",
                "recording has shapes alone: use a fixed shape",
            )
        of_numbers = values.of_assumed
        file, _, line = (places.caller() or "a package:0").rpartition(":")
        TAPE.notes[f"{os.path.basename(file)}:{line}: {ASSUMED}"] += 1
    TAPE.wait(func._overloadpacket.__name__, TAPE.current.reached())
    result = of_numbers(func, args, kwargs, fakes[0].fake_device)
    _post(func, args, kwargs, fakes, _written(func, args, kwargs, result))
    return result


def _by_host(func: Any, args: Any, kwargs: Any, fakes: list[Any]) -> Any:
    """Return the result of an operator that has a kernel on the host alone: its shapes are the same."""
    try:
        if func._schema.is_mutable:
            raise NotImplementedError
        result = values.of_assumed(func, args, kwargs, fakes[0].fake_device)
    except (NotImplementedError, RuntimeError):
        raise refusal(f"{func} works on no fake tensors", "replace the package by a shim") from None
    _post(func, args, kwargs, fakes, _written(func, args, kwargs, result))
    return result


def _post(func: Any, args: Any, kwargs: Any, inputs: list[Any], outputs: list[Any]) -> Operator | None:
    """Put an operator on the tape; return what is there, None if it asks nothing of the device."""
    if not outputs and not any(map(values.is_on_device, inputs)):
        return None
    for one in outputs:
        TAPE.keep(one.untyped_storage())
    name = func._overloadpacket.__name__
    if func.is_view or func.namespace == "prim" or (func.namespace == "aten" and name in _FREE):
        return None
    options = _options(func, args, kwargs) if any(part in name for part in _WITH_OPTIONS) else ()
    if inputs and inputs[0].dtype == torch.float32 and answers.is_product(func):
        options = (*options, ("allow_tf32", answers.allows_tf32(func)))
    options += layout(func, inputs, outputs)
    operator = Operator(str(func._overloadpacket), shaped(inputs), shaped(outputs), options)
    REGIONS.see(TAPE.post(operator), inputs, outputs)
    return operator


def _written(func: Any, args: Any, kwargs: Any, result: Any) -> list[torch.Tensor]:
    """Return tensors of the device that an operator returns or changes, each once."""
    tensors = values.tensors_in((result,))
    if func._schema.is_mutable:
        given = dict(zip(_names(func), args, strict=False)) | kwargs
        changed = [given.get(name) for name in _changed_names(func)]
        tensors += values.tensors_in(changed)
    own = {id(one): one for one in tensors if values.is_on_device(one)}
    return list(own.values())


@cache
def _names(func: Any) -> list[str]:
    return [one.name for one in func._schema.arguments]


@cache
def _changed_names(func: Any) -> list[str]:
    """Return the names of arguments that an operator changes."""
    return [
        one.name for one in func._schema.arguments if one.alias_info is not None and one.alias_info.is_write
    ]


def shaped(tensors: Any) -> tuple[Shaped, ...]:
    """Return shapes and types of tensors."""
    return tuple(Shaped(tuple(map(int, one.shape)), str(one.dtype)[6:]) for one in tensors)


def _options(func: Any, args: Any, kwargs: Any) -> tuple[tuple[str, bool | int | float | str], ...]:
    given = dict(zip(_names(func), args, strict=False)) | kwargs
    return tuple(
        (name, value if isinstance(value, bool | int | float | str) else ",".join(map(str, value)))
        for name, value in given.items()
        if isinstance(value, bool | int | float | str)
        or (isinstance(value, list | tuple) and value and all(type(one) in (int, bool) for one in value))
    )
