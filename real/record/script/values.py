"""Numbers of the device that are known: small tensors from the host, and what was computed of such alone.

A script asks the device for numbers: the scale of a gradient scaler, whether a loss is finite, the order of
DDP's buckets. Small tensors have a twin on the CPU that every operator computes as well. A number that
depends on anything else is 1, or False.
"""

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, in_kernel_invocation_manager
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.weak import WeakIdKeyDictionary

SMALL = 2**14
"""Elements up to which a tensor has a twin."""

CHOSEN = 2**24
"""Elements up to which a tensor has one that follows from what recording decided: a router's choices."""

_TRUE = (torch.ops.aten.all,)
"""Operators whose unknown flag is True: numbers are finite, masks hide nothing."""

_OF_HOST = {torch.ops.aten._pack_padded_sequence: 1}
"""Operators that give the host a tensor, and which: the sizes of an RNN's batches."""

FAKE = FakeTensorMode(allow_non_fake_inputs=True)
"""The mode of all fake tensors of this process."""

_guard_data: Any = (
    torch._C._set_warn_deprecated_on_mutable_data_ptr
    if FAKE._allow_unsafe_data_ptr_access
    else torch._C._set_throw_on_mutable_data_ptr
)
_states: dict[torch.device, dict[str, Any]] = {}
"""Attributes of new fake tensors by their device."""

_twins: Any = WeakIdKeyDictionary()
_decided: Any = WeakIdKeyDictionary()
_spoiled: "weakref.WeakSet[Any]" = weakref.WeakSet()


def is_on_device(value: Any) -> bool:
    """Return whether a value is a tensor of the device."""
    return isinstance(value, FakeTensor) and value.fake_device.type == "cuda"


def tensors_in(values: Any) -> list[torch.Tensor]:
    """Return the tensors among an operator's arguments or results, those in lists too."""
    tensors: list[torch.Tensor] = []
    for one in values:
        if isinstance(one, torch.Tensor):
            tensors.append(one)
        elif isinstance(one, list | tuple):
            tensors += tensors_in(one)
    return tensors


def twin(fake: torch.Tensor) -> torch.Tensor | None:
    """Return the tensor on the CPU with a fake one's numbers; None if they are unknown."""
    known: torch.Tensor | None = _twins.get(fake)
    if known is not None and known.untyped_storage() in _spoiled:
        return None
    return known


def learn(fake: torch.Tensor, numbers: torch.Tensor) -> None:
    """Take the numbers of a fake tensor from one on the CPU."""
    if numbers.numel() <= SMALL and numbers.layout == torch.strided:
        _twins[fake] = numbers.detach()


def decide(fake: torch.Tensor, numbers: torch.Tensor) -> None:
    """Decide the numbers of a fake tensor."""
    _twins[fake], _decided[fake] = numbers, True


def forget(fake: torch.Tensor) -> None:
    """Treat a fake tensor's numbers as unknown, and those of all views of it."""
    known = _twins.pop(fake, None)
    if known is not None:
        _spoiled.add(known.untyped_storage())


def number(fake: torch.Tensor) -> Any:
    """Return what the host reads of a tensor of one element."""
    known = twin(fake)
    return (
        known.item()
        if known is not None
        else fake.dtype != torch.bool and torch.ones((), dtype=fake.dtype).item()
    )


def numbers(fake: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return what the host reads of a tensor."""
    known = twin(fake)
    if known is not None:
        return known.to(dtype, copy=True)
    return torch.full(fake.shape, fake.dtype != torch.bool, dtype=dtype, device="cpu")


def fake_of(value: Any) -> Any:
    """Return a fake tensor in place of one of the host; anything else as it is."""
    if not isinstance(value, torch.Tensor) or isinstance(value, FakeTensor):
        return value
    fake = FAKE.from_tensor(value, static_shapes=True)
    learn(fake, value)
    return fake


def view(func: Any, args: Any, kwargs: Any, device: torch.device) -> Any:
    """Return a view of a fake tensor. The mode returns the same, at several times the cost."""
    with in_kernel_invocation_manager(FAKE):
        result = func(*args, **kwargs)
    return tree_map(lambda one: FakeTensor(FAKE, one, device), result)


def fake(meta: torch.Tensor, device: torch.device) -> Any:
    """Return what ``FakeTensor(FAKE, meta, device)`` does, at a fifth of the cost."""
    state = _states.get(device)
    if state is None:
        state = _states[device] = dict(vars(FakeTensor(FAKE, meta, device)))
    result = torch.Tensor._make_subclass(
        FakeTensor, meta, False, dispatch_device=True, device_for_backend_keys=device
    )
    _guard_data(result)
    vars(result).update(state)
    return result


def may_be_known(results: Sequence[torch.Tensor]) -> bool:
    """Return whether `compute_twins` would do anything for results of this size, if nothing is decided."""
    return all(one.numel() <= SMALL for one in results) or any(one.numel() == 1 for one in results)


def has_decided() -> bool:
    """Return whether recording decided any numbers."""
    return bool(_decided)


def compute_twins(func: Any, args: Any, kwargs: Any, fakes: Sequence[Any], result: Any) -> None:
    """Compute the numbers of an operator's results where all its inputs are known."""
    results = [one for one in tensors_in((result,)) if isinstance(one, FakeTensor)]
    is_known = torch.Tag.nondeterministic_seeded not in func.tags
    is_decided = has_decided() and any(one in _decided for one in fakes)
    is_known = is_known and all(one.numel() <= (CHOSEN if is_decided else SMALL) for one in results)
    if is_known and all(twin(one) is not None for one in fakes) and _compute(func, args, kwargs, result):
        _decided.update({one: True for one in results if is_decided})
        return
    largest = CHOSEN if has_decided() else SMALL
    for value, argument in zip(args, func._schema.arguments, strict=False):
        if argument.alias_info is not None and argument.alias_info.is_write:
            for one in tensors_in((value,)):
                if isinstance(one, FakeTensor) and 1 < one.numel() <= largest:
                    forget(one)
    if not func._schema.is_mutable:
        is_one = func._overloadpacket in _TRUE
        for one in results:
            if one.numel() == 1 and twin(one) is None:
                number = is_one or one.dtype != torch.bool
                assumed = torch.full(one.shape, number, dtype=one.dtype, device="cpu")
                _twins[one] = assumed


def _compute(func: Any, args: Any, kwargs: Any, result: Any) -> bool:
    """Compute the twins of a result; return whether this succeeded."""
    own_args, own_kwargs = tree_map(_twin_of, (args, dict(kwargs)))
    if own_kwargs.get("device") is not None:
        own_kwargs["device"] = torch.device("cpu")
    own_kwargs.pop("pin_memory", None)
    if func is torch.ops.aten.histc.default:  # which the CPU has for floating point alone
        own_args = own_args[0].double(), *own_args[1:]
    try:
        own = tree_leaves(func(*own_args, **own_kwargs))
    except Exception:  # an operator that the CPU has not: its numbers are unknown
        return False
    for one, value in zip(tree_leaves(result), own, strict=False):
        if isinstance(one, FakeTensor):
            _twins[one] = value if value.dtype == one.dtype else value.to(one.dtype)
    return True


def _twin_of(value: Any) -> Any:
    return twin(value) if isinstance(value, FakeTensor) else value


def of_twins(func: Any, args: Any, kwargs: Any, device: torch.device) -> Any:
    """Return the result, on the device, of an operator whose shapes are up to known numbers."""
    own_args, own_kwargs = tree_map(_twin_of, (args, dict(kwargs)))
    is_decided = any(one in _decided for one in tensors_in(args))

    def placed(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        with FAKE:
            fake = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=device)
        (decide if is_decided else learn)(fake, value)
        return fake

    return _with_those_of_host(func, func(*own_args, **own_kwargs), placed)


def of_assumed(func: Any, args: Any, kwargs: Any, device: torch.device) -> Any:
    """Return the result, on the device, of an operator whose shapes are up to numbers.

    Unknown ones are assumed: 1, or 0 where they are places.
    """
    has_places = func._overloadpacket is torch.ops.aten.index

    def own(value: Any) -> Any:
        if not isinstance(value, FakeTensor):
            return value
        known = twin(value)
        number = value.dtype == torch.bool or not has_places
        assumed = torch.full((), number, dtype=value.dtype, device="cpu").expand(value.shape)
        return assumed if known is None else known

    def placed(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        with FAKE:
            return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=device)

    result = func(*tree_map(own, args), **tree_map(own, dict(kwargs)))
    return _with_those_of_host(func, result, placed)


def _with_those_of_host(func: Any, result: Any, placed: Callable[[Any], Any]) -> Any:
    """Return an operator's result with its tensors placed on the device, but for one of the host's."""
    own = _OF_HOST.get(func._overloadpacket)
    if own is None:
        return tree_map(placed, result)
    return tuple(one if number == own else placed(one) for number, one in enumerate(result))
