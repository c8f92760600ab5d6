"""Methods of tensors that C++ carries out without asking a dispatch mode."""

import copyreg
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.optim import optimizer
from torch.utils import _foreach_utils
from torch.utils._device import _device_constructors
from torch.utils._pytree import tree_map

from ringside.real.record.script import values
from ringside.real.record.script.tape import TAPE

resized: set[int] = set()
"""Numbers of storages that were emptied and filled again: parameters that ranks gather."""

_data = torch._C.TensorBase.data
_resize = torch.UntypedStorage.resize_
_address_before = torch.UntypedStorage.data_ptr
_format_before: Any = torch.Tensor.__format__
_share: Any = torch.Tensor.share_memory_
_tensor_before = torch.tensor
_type_before = torch.Tensor.type
_load_before = torch.load
_default_type = torch.set_default_tensor_type

_ADDRESS_BITS = 40
"""Bits of an address within a storage: more than a GPU's memory has."""

_LEGACY = {
    **{"Float": torch.float32, "Double": torch.float64, "Half": torch.float16, "BFloat16": torch.bfloat16},
    **{"Long": torch.int64, "Int": torch.int32, "Short": torch.int16, "Char": torch.int8},
    **{"Byte": torch.uint8, "Bool": torch.bool},
}
"""Types by their names in ``torch.cuda.FloatTensor`` and the like."""


def install() -> None:
    """Put the methods in place."""
    torch._C._set_only_lift_cpu_tensors(
        True
    )  # torch.tensor(..., device="cuda") is made on the CPU, then copied
    torch.__future__.set_swap_module_params_on_conversion(
        True
    )  # a parameter that moves stays the same object
    for own in (optimizer, _foreach_utils):  # on CUDA, optimizers and norms go through lists by default
        vars(own)["_foreach_supported_types"].append(FakeTensor)
    torch.utils.swap_tensors = _swap
    tensor: Any = torch.Tensor
    tensor.pin_memory = lambda self, *_: self
    tensor.is_pinned = lambda self, *_: False
    tensor.record_stream = lambda self, stream: None
    tensor.cuda = _cuda
    tensor.share_memory_ = lambda self: self if isinstance(self, FakeTensor) else _share(self)
    tensor.__format__ = _format
    tensor.type = _type
    fake: Any = FakeTensor
    fake.__reduce_ex__ = _reduce
    fake.__copy__ = lambda self: self.detach()
    _device_constructors()  # remembers ``torch.tensor`` as it was
    torch.jit._builtins._register_builtin(_tensor, "aten::tensor")
    vars(torch).update(tensor=_tensor, load=_load, set_default_tensor_type=_set_default_type)
    for name, dtype in _LEGACY.items():
        setattr(torch.cuda, f"{name}Tensor", _Legacy(f"{name}Tensor", (), {"dtype": dtype}))
    tensor.data = property(lambda self: _data.__get__(self), _set_data)  # type: ignore[attr-defined]
    storage: Any = torch.UntypedStorage
    storage.resize_ = _resize_storage
    storage.data_ptr = _address


def _cuda(self: torch.Tensor, device: Any = None, non_blocking: bool = False, **_: Any) -> torch.Tensor:
    """Do ``Tensor.cuda``."""
    if isinstance(device, int):
        device = f"cuda:{device}"
    return self.to("cuda" if device is None else device, non_blocking=non_blocking)


class _Legacy(type):
    """The type of ``torch.cuda.FloatTensor`` and the like."""

    dtype: torch.dtype

    def __call__(cls, *args: Any, **_: Any) -> torch.Tensor:
        """Make a tensor: of these sizes, or of the numbers in a list."""
        if args and all(isinstance(one, int) for one in args):
            return torch.empty(*args, dtype=cls.dtype, device="cuda")
        return torch.tensor(args[0] if args else [], dtype=cls.dtype).cuda()

    def __instancecheck__(cls, one: object) -> bool:
        return isinstance(one, torch.Tensor) and one.is_cuda and one.dtype == cls.dtype


def _type(self: torch.Tensor, dtype: Any = None, non_blocking: bool = False) -> Any:
    """Do ``Tensor.type``, with a type of the device too."""
    own = _of_device(dtype)
    if own is None:
        return _type_before(self, dtype, non_blocking)
    return self.to("cuda", own, non_blocking=non_blocking)


def _set_default_type(one: Any) -> None:
    """Do ``torch.set_default_tensor_type``, with a type of the device too."""
    dtype = _of_device(one)
    if dtype is None:
        _default_type(one)
        return
    torch.set_default_dtype(dtype)
    torch.set_default_device("cuda")


def _of_device(one: Any) -> torch.dtype | None:
    """Return the type of numbers of a type of the device; None for any other."""
    if isinstance(one, str) and one.startswith("torch.cuda."):
        return _LEGACY.get(one.removeprefix("torch.cuda.").removesuffix("Tensor"))
    return one.dtype if isinstance(one, _Legacy) else None


def _load(file: Any, map_location: Any = None, *args: Any, **kwargs: Any) -> Any:
    """Do ``torch.load``, to the device too; what a function would place stays on the host."""
    places = map_location.values() if isinstance(map_location, dict) else (map_location,)
    if str(map_location) == "meta":
        return _load_before(file, map_location, *args, **kwargs)
    content = _load_before(file, "cpu", *args, **kwargs)
    if any(not callable(one) and "cuda" in str(one) for one in places):
        return tree_map(lambda one: one.cuda() if isinstance(one, torch.Tensor) else one, content)
    return content


def _tensor(data: Any, **options: Any) -> torch.Tensor:
    """Do ``torch.tensor``, of a list with tensors of the device too."""
    try:
        return _tensor_before(data, **options)
    except RuntimeError:  # C++ reads the numbers of the device itself
        own = tree_map(lambda one: one.item() if isinstance(one, FakeTensor) else one, data)
        return _tensor_before(own, **options)


def _format(self: Any, specification: str) -> Any:
    """Do ``Tensor.__format__``."""
    if isinstance(self, FakeTensor) and self.dim() == 0:
        return format(self.item(), specification)
    return _format_before(self, specification)


def _reduce(self: Any, protocol: Any) -> Any:
    """Pickle a tensor of the device as one of the host, whose numbers are all one if they are unknown."""
    known = values.twin(self)
    assumed: Any = torch.ones((), dtype=self.dtype, device="cpu").expand(self.shape)
    return (assumed if known is None else known).detach().__reduce_ex__(protocol)


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
        self.fake_device = value.fake_device  # it may have been offloaded
    _data.__set__(self, value)  # type: ignore[attr-defined]


def _address(self: Any) -> int:
    """Do ``UntypedStorage.data_ptr``: storages of the device have an address each, which savers compare."""
    number = TAPE.number_of(self)
    if number is None or not self.nbytes():
        return _address_before(self)
    return (number + 1) << _ADDRESS_BITS


def _resize_storage(self: Any, size: int) -> Any:
    """Do ``UntypedStorage.resize_``."""
    result = _resize(self, size)
    if TAPE.resized(self) and size:
        number = TAPE.number_of(self)
        assert number is not None
        resized.add(number)
    return result
