"""Methods of tensors that C++ carries out without asking a dispatch mode."""

import copyreg
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from ringside.real.record.script import values
from ringside.real.record.script.tape import TAPE

resized: set[int] = set()
"""Numbers of storages that were emptied and filled again: parameters that ranks gather."""

_data = torch._C.TensorBase.data
_resize = torch.UntypedStorage.resize_


def install() -> None:
    """Put the methods in place."""
    torch._C._set_only_lift_cpu_tensors(
        True
    )  # torch.tensor(..., device="cuda") is made on the CPU, then copied
    torch.__future__.set_swap_module_params_on_conversion(
        True
    )  # a parameter that moves stays the same object
    torch.utils.swap_tensors = _swap
    tensor: Any = torch.Tensor
    tensor.pin_memory = lambda self, *_: self
    tensor.is_pinned = lambda self, *_: False
    tensor.record_stream = lambda self, stream: None
    tensor.cuda = _cuda
    tensor.data = property(lambda self: _data.__get__(self), _set_data)  # type: ignore[attr-defined]
    storage: Any = torch.UntypedStorage
    storage.resize_ = _resize_storage


def _cuda(self: torch.Tensor, device: Any = None, non_blocking: bool = False, **_: Any) -> torch.Tensor:
    """Do ``Tensor.cuda``."""
    if isinstance(device, int):
        device = f"cuda:{device}"
    return self.to("cuda" if device is None else device, non_blocking=non_blocking)


def _swap(one: Any, other: Any) -> None:
    """Do ``torch.utils.swap_tensors``, which refuses tensors with weak references: fake ones have these."""
    one.__class__, other.__class__ = other.__class__, one.__class__
    one.__dict__, other.__dict__ = other.__dict__, one.__dict__
    for slot in copyreg._slotnames(one.__class__):  # type: ignore[attr-defined]
        if hasattr(one, slot) and hasattr(other, slot):
            kept = getattr(one, slot)
            setattr(one, slot, getattr(other, slot))
            setattr(other, slot, kept)
    torch._C._swap_tensor_impl(one, other)


def _set_data(self: Any, value: Any) -> None:
    """Set ``Tensor.data``: a tensor of the host with the data of a fake one is fake from then on."""
    if isinstance(value, FakeTensor) and not isinstance(self, FakeTensor):
        is_parameter = isinstance(self, torch.nn.Parameter)
        other = torch.nn.Parameter(value, self.requires_grad) if is_parameter else value.detach()
        _swap(self, other)
        return
    if isinstance(self, FakeTensor) and isinstance(value, torch.Tensor):
        value = values.fake_of(value)
    _data.__set__(self, value)  # type: ignore[attr-defined]


def _resize_storage(self: Any, size: int) -> Any:
    """Do ``UntypedStorage.resize_``."""
    result = _resize(self, size)
    if TAPE.resized(self) and size:
        number = TAPE.number_of(self)
        assert number is not None
        resized.add(number)
    return result
