"""Operators between host and device: copies, numbers that the host reads, pinned memory."""

from collections.abc import Callable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from ringside.real.record.script import values
from ringside.real.record.script.tape import TAPE
from ringside.sim.recorded.job import Operator, Shaped

Handled = tuple[bool, Any]
"""Whether an operator was handled, and its result."""

_ELSE: Handled = (False, None)

aten = torch.ops.aten


def _post_copy(name: str, source: torch.Tensor, target_dtype: torch.dtype, *, is_waited_for: bool) -> None:
    shape = tuple(map(int, source.shape))
    inputs, outputs = Shaped(shape, str(source.dtype)[6:]), Shaped(shape, str(target_dtype)[6:])
    entry = TAPE.post(Operator(name, (inputs,), (outputs,)))
    if is_waited_for:
        TAPE.wait(name, {entry})


def _item(func: Any, args: Any, kwargs: Any) -> Handled:
    if values.is_on_device(args[0]):
        TAPE.wait("item", TAPE.current.reached())
    return True, values.number(args[0])


def _equal(func: Any, args: Any, kwargs: Any) -> Handled:
    TAPE.wait("equal", TAPE.current.reached())
    one, other = (values.twin(x) if isinstance(x, FakeTensor) else x for x in args[:2])
    if one is None or other is None:
        return True, tuple(args[0].shape) == tuple(args[1].shape)
    return True, torch.equal(one, other)


def _to_copy(func: Any, args: Any, kwargs: Any) -> Handled:
    """Copy to another device, or as another type."""
    source = args[0]
    device = torch.device(kwargs["device"]) if kwargs.get("device") is not None else source.device
    dtype = kwargs.get("dtype") or source.dtype
    is_waited_for = not kwargs.get("non_blocking")
    if values.is_on_device(source) and device.type == "cpu":
        _post_copy("copy_to_host", source, dtype, is_waited_for=is_waited_for)
        return True, values.numbers(source, dtype)
    if source.device.type == "cpu" and device.type == "cuda":
        fake = values.fake_of(source)
        with values.FAKE:
            result = func(fake, **{**kwargs, "device": device})
        known = values.twin(fake)
        if known is not None:
            values.learn(result, known.to(dtype, copy=True))
        TAPE.keep(result.untyped_storage())
        _post_copy("copy_to_device", source, dtype, is_waited_for=is_waited_for)
        return True, result
    return _ELSE


def _copy(func: Any, args: Any, kwargs: Any) -> Handled:
    """Copy into a tensor."""
    target, source = args[:2]
    is_waited_for = not (args[2] if len(args) > 2 else kwargs.get("non_blocking"))
    if not isinstance(target, FakeTensor) and values.is_on_device(source):
        _post_copy("copy_to_host", source, target.dtype, is_waited_for=is_waited_for)
        return True, target.copy_(values.numbers(source, target.dtype))
    if values.is_on_device(target) and source.device.type == "cpu":
        fake = values.fake_of(source)
        with values.FAKE:
            func(target, fake)
        values.compute_twins(func, (target, fake), {}, [target, fake], target)
        known = values.twin(fake)
        if known is not None and values.twin(target) is None and known.shape == target.shape:
            values.learn(target, known.to(target.dtype, copy=True))
        _post_copy("copy_to_device", source, target.dtype, is_waited_for=is_waited_for)
        return True, target
    return _ELSE


TRANSFERS: dict[Any, Callable[[Any, Any, Any], Handled]] = {
    aten._local_scalar_dense: _item,
    aten.equal: _equal,
    aten.allclose: _equal,
    aten._to_copy: _to_copy,
    aten.copy_: _copy,
    aten.is_pinned: lambda func, args, kwargs: (True, False),
    **dict.fromkeys((aten._use_cudnn_ctc_loss, aten._use_miopen_ctc_loss), lambda *_: (True, False)),
    aten._pin_memory: lambda func, args, kwargs: (True, args[0]),
}
"""The operators by PyTorch's name, as ``(func, args, kwargs)``."""


SOURCES = {"aten::_foreach_copy_": 1, "fsdp::all_gather_copy_in": 0}
"""Operators that copy lists of tensors, from host or device, and where among their arguments these are."""


def with_sources_there(args: Any, sources: int) -> Any:
    """Return the arguments with the sources copied to the device, if what they are copied into is there."""
    if not any(map(values.is_on_device, values.tensors_in((*args[:sources], *args[sources + 1 :])))):
        return args
    device = {"device": torch.device("cuda", torch.cuda.current_device())}
    there = [
        one if values.is_on_device(one) else _to_copy(aten._to_copy.default, (one,), device)[1]
        for one in args[sources]
    ]
    return (*args[:sources], there, *args[sources + 1 :])


def stays(func: Any, args: Any, kwargs: Any) -> bool:
    """Return whether an operator copies within the device."""
    device = kwargs.get("device")
    if func is aten._to_copy.default:
        return values.is_on_device(args[0]) and (device is None or device.type == "cuda")
    return func is aten.copy_.default and all(map(values.is_on_device, args[:2]))
