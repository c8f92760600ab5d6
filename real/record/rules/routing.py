"""Tokens of experts, by a stated policy: the places that a top-k chooses are all chosen equally often.

What a router chooses depends on numbers, which recording has not. So the chosen places are counted through,
0, 1, 2 and so on over all tokens, as torchtitan does to balance routing for debugging. What follows from them
is computed: how many tokens each expert has, where they are, what ranks send to one another.
"""

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._pytree import tree_map

from ringside.real.record.script import values
from ringside.real.record.script.tape import TAPE

NOTE = "top-k choices are balanced: every expert has as many tokens"

aten = torch.ops.aten

CHOICES = {aten.topk.default: 1, aten.max.dim: 1, aten.argmax.default: 0}
"""Operators that choose, and which of their results are the places."""


def choose(func: Any, args: Any, kwargs: Any, result: Any) -> None:
    """Know the places that an operator chooses among several of each row."""
    if func not in CHOICES or not args[0].is_floating_point():
        return
    places = (result if isinstance(result, tuple) else (result,))[CHOICES[func]]
    given = dict(zip((one.name for one in func._schema.arguments), args, strict=False)) | kwargs
    dim = given.get("dim", -1)
    if dim is None or args[0].dim() < 2 or dim % args[0].dim() != args[0].dim() - 1:
        return
    if places.numel() > values.CHOSEN:
        return
    many = args[0].shape[-1]
    values.decide(places, (torch.arange(places.numel()) % many).reshape(places.shape))
    if func is aten.topk.default:
        TAPE.notes[NOTE] += 1


def with_places(func: Any, args: Any) -> Any:
    """Return the arguments of an index with masks as places, where these are known; None otherwise."""
    if func is not aten.index.Tensor:
        return None
    places: list[Any] = []
    for one in args[1]:
        if isinstance(one, FakeTensor) and one.dtype in (torch.bool, torch.uint8):
            known = values.twin(one)
            if known is None:
                return None
            places += [
                tree_map(values.fake_of, place).to(one.device) for place in known.nonzero(as_tuple=True)
            ]
        else:
            places.append(one)
    return args[0], places
