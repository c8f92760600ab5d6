"""A cache of operators' outputs: equal layers call the same operators with the same shapes.

PyTorch's fake tensors derive shapes in Python, which took most of a recording's time. The key is the operator
with its numbers, and its tensors' sizes, strides, devices and types.
"""

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch._subclasses.fake_tensor import FakeTensor

from ringside.real.record.rules.operators import by_operator
from ringside.real.record.rules.regions import TensorForm, form
from ringside.real.record.script import values
from ringside.sim.recorded.job import Operator

_META = torch.device("meta")

_REMEMBERED = ("aten", "fsdp", "_c10d_functional")
"""Namespaces whose operators return the same kinds of tensors for the same kinds."""

_NOT_REMEMBERED = ("set_", "resize_", "resize_as_", "lift", "lift_fresh", "lift_fresh_copy")
"""Operators of aten that change what a tensor's storage is, or take a tensor over as it is."""

_PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "addmm_", "baddbmm_", "_addmm_activation")
"""Operators of aten that cuBLAS computes in TensorFloat-32, where the script allows it."""

_PLAIN = {
    *(int, float, bool, complex, str, type(None)),
    *(torch.dtype, torch.device, torch.layout, torch.memory_format),
}

_TENSORS = (torch.Tensor, torch.nn.Parameter)

_UNSEEN: frozenset[type] = frozenset()
"""Types of arguments whose value an answer is not up to."""

_UNSEEN_IN_PLACE = frozenset({float})
"""Those of an operator that returns but what it changes: an optimizer's rates differ from step to step."""


class OperatorCall(NamedTuple):
    """An operator's call as far as its answer is up to it, and the fake tensors that it is given."""

    key: Hashable
    fakes: list[Any]


@dataclass(frozen=True, slots=True)
class _Made:
    """A tensor that an operator returns.

    ``owner`` is the place of what has its storage, among the arguments and then the answer's ``storages``;
    None for one of its own.
    """

    size: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    offset: int
    is_conj: bool
    is_neg: bool
    owner: int | None

    def again(self, owners: Sequence[Any]) -> Any:
        """Return another tensor like this one."""
        if self.owner is None:
            own = torch.empty_strided(self.size, self.stride, dtype=self.dtype, device=_META)
        else:
            own = torch.empty(0, dtype=self.dtype, device=_META)
            own.set_(owners[self.owner].untyped_storage(), self.offset, self.size, self.stride)
        if self.is_conj:
            torch._C._set_conj(own, True)
        if self.is_neg:
            torch._C._set_neg(own, True)
        return values.fake(own, self.device)


@dataclass(slots=True)
class OperatorAnswer:
    """What an operator returns: tensors that it makes, or arguments by their number, or what is no tensor."""

    kind: type[list[Any]] | type[tuple[Any, ...]] | None
    items: list[Any]
    storages: list[int]
    """Bytes of new storages that results share, or do not fill."""
    has_numbers: bool
    """Whether numbers of the result may be known, or those of an argument change."""
    operator: Operator | None
    """What the call puts on the tape, None for nothing."""
    written: tuple[int, ...] = ()
    """Places of tensors of the device that it returns or changes, among the items and then the arguments."""
    reads: tuple[TensorForm, ...] = ()
    writes: tuple[TensorForm, ...] = ()

    def again(self, fakes: Sequence[Any]) -> tuple[Any, list[Any]]:
        """Return the answer to another question like the first, and what of the device it has written."""
        owners = fakes
        if self.storages:
            owners = [*fakes, *(torch.empty(one, dtype=torch.uint8, device=_META) for one in self.storages)]
        items = [
            one.again(owners) if type(one) is _Made else fakes[one.place] if type(one) is _Given else one
            for one in self.items
        ]
        count = len(items)
        written = [items[one] if one < count else fakes[one - count] for one in self.written]
        return items[0] if self.kind is None else items if self.kind is list else tuple(items), written


class _Given(NamedTuple):
    """An argument that is returned."""

    place: int


ANSWERS: dict[Hashable, OperatorAnswer] = {}
"""Those of this process."""


def question(func: Any, args: Any, kwargs: Any) -> OperatorCall | None:
    """Return the question that a call is; None if its answer is up to more than can be compared."""
    facts = _facts(func)
    if not facts.is_remembered:
        return None
    parts: list[Any] = [id(func), torch.get_default_dtype(), torch.is_inference_mode_enabled()]
    if facts.is_product:
        parts.append(allows_tf32(func))
    fakes: list[Any] = []
    unseen = facts.unseen
    with torch._C.DisableTorchFunctionSubclass():
        if not _add(args, parts, fakes, unseen):
            return None
        for name, value in kwargs.items():
            parts.append(name)
            if not _add((value,), parts, fakes, unseen):
                return None
    return OperatorCall(tuple(parts), fakes)


def of(func: Any, args: Any, kwargs: Any) -> Any:
    """Return what an operator that is put on the tape otherwise returns."""
    call = question(func, args, kwargs)
    known = None if call is None else ANSWERS.get(call.key)
    if call is not None and known is not None:
        return known.again(call.fakes)[0]
    with values.FAKE:
        result = func(*args, **kwargs)
    if call is not None:
        remember(call, func, result)
    return result


def _add(some: Iterable[Any], parts: list[Any], fakes: list[Any], unseen: Collection[type]) -> bool:
    """Add arguments to a question, those of ``unseen`` types without value; return if all can be compared."""
    for one in some:
        kind = type(one)
        if kind is FakeTensor:
            if one.layout is not torch.strided or one.constant is not None:
                return False
            fakes.append(one)
            parts.append(_seen(one))
        elif kind in _PLAIN:
            parts.append(kind if kind in unseen else (kind, one))  # as 1, 1.0 and True are equal
        elif kind in _TENSORS and one.device.type == "meta":
            parts.append((one.shape, one.stride(), one.dtype, one.requires_grad))
        elif isinstance(one, (list, tuple)):
            parts.append(len(one))
            if not _add(one, parts, fakes, unseen):
                return False
        else:
            return False
    return True


def _seen(one: Any) -> tuple[Any, ...]:
    return (
        one.shape, one.stride(), one.dtype, one.fake_device, one.storage_offset(), one.requires_grad,
        one.is_conj(), one.is_neg(),
    )  # fmt: skip


class _Facts(NamedTuple):
    """What a question takes of its operator; ``unseen`` are types of arguments without value."""

    is_remembered: bool
    is_product: bool
    unseen: frozenset[type]


@by_operator
def _facts(func: Any) -> _Facts:
    aliases = [one.alias_info for one in func._schema.returns]
    is_in_place = all(one is not None and one.is_write for one in aliases)
    return _Facts(
        func.namespace in _REMEMBERED and func._overloadpacket.__name__ not in _NOT_REMEMBERED,
        is_product(func),
        _UNSEEN_IN_PLACE if is_in_place else _UNSEEN,
    )


def is_product(func: Any) -> bool:
    """Return whether TensorFloat-32 may compute an operator."""
    name = func._overloadpacket.__name__
    return name in _PRODUCTS or "convolution" in name


def allows_tf32(func: Any) -> bool:
    """Return whether the script lets cuDNN or cuBLAS compute an operator in TensorFloat-32 now.

    All ways to say so end in these two: ``allow_tf32``, ``set_float32_matmul_precision``, and
    ``fp32_precision`` of all backends, which the older flags cannot be read after. cuDNN's default is True.
    """
    backends: Any = torch.backends
    is_convolution = func._overloadpacket.__name__ not in _PRODUCTS
    own = backends.cudnn.conv if is_convolution else backends.cuda.matmul
    return bool(own.fp32_precision == "tf32")


def remember(
    call: OperatorCall, func: Any, result: Any, operator: Operator | None = None, written: Sequence[Any] = ()
) -> None:
    """Remember what an operator returned, put on the tape and wrote, if another such call does the same."""
    kind = type(result) if isinstance(result, list | tuple) else None
    items = list(result) if kind else [result]
    tensors = [one for one in items if isinstance(one, torch.Tensor)]
    given = {id(one): place for place, one in enumerate(call.fakes)}
    if kind not in (None, list, tuple) or not all(id(one) in given or _can_be_made(one) for one in items):
        return
    owners: dict[int, int] = {}
    for place, one in enumerate(call.fakes):
        owners.setdefault(one.untyped_storage()._cdata, place)
    shared = Counter(one.untyped_storage()._cdata for one in tensors)
    storages: list[int] = []
    for one in tensors:
        storage = one.untyped_storage()
        if storage._cdata not in owners and (shared[storage._cdata] > 1 or not _fills(one, storage)):
            owners[storage._cdata] = len(call.fakes) + len(storages)
            storages.append(storage.nbytes())
    answered = [_item(one, given, owners) if isinstance(one, torch.Tensor) else one for one in items]
    has_numbers = func._schema.is_mutable or not tensors or values.may_be_known(tensors)
    places = {id(one): place for place, one in reversed([*enumerate((*items, *call.fakes))])}
    ANSWERS[call.key] = OperatorAnswer(
        kind, answered, storages, has_numbers, operator, tuple(places[id(one)] for one in written),
        tuple(map(form, call.fakes)), tuple(map(form, written)),
    )  # fmt: skip


def _can_be_made(one: Any) -> bool:
    """Return whether an answer can have this: a tensor that is up to what `_Made` has, or no tensor."""
    return (
        one is None
        or type(one) is int
        or (
            type(one) is FakeTensor
            and one.layout is torch.strided
            and not one.requires_grad
            and one.constant is None
        )
    )


def _fills(one: torch.Tensor, storage: Any) -> bool:
    """Return whether a tensor is as large as its storage."""
    alike = torch.empty_strided(one.shape, one.stride(), dtype=one.dtype, device=_META)
    return not one.storage_offset() and bool(alike.untyped_storage().nbytes() == storage.nbytes())


def _item(one: Any, given: Mapping[int, int], owners: Mapping[int, int]) -> Any:
    """Return a tensor of a result as an answer has it."""
    if id(one) in given:
        return _Given(given[id(one)])
    return _Made(
        tuple(one.shape), one.stride(), one.dtype, one.fake_device, one.storage_offset(), one.is_conj(),
        one.is_neg(), owners.get(one.untyped_storage()._cdata),
    )  # fmt: skip
