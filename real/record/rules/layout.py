"""How an operator's tensors lie in memory, where its time depends on it."""

from collections.abc import Sequence
from typing import Any

import torch

Option = tuple[str, bool | int | float | str]

VECTOR = 16
"""Bytes of a GPU's widest load. Rows that are not aligned to it are loaded in smaller pieces."""

_PRODUCTS = ("mm", "addmm", "bmm", "baddbmm")
_OVER_CHANNELS = ("convolution", "batch_norm")


def layout(func: Any, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]) -> tuple[Option, ...]:
    """Return a product's ``alignment`` or an image's ``channels_last``, as options of the operator.

    ``alignment`` is the largest power of two in bytes that divides the distances between all rows. It is left
    out if a load of `VECTOR` bytes is aligned.
    """
    name = func._overloadpacket.__name__
    if name in _PRODUCTS:
        aligned = min(map(_alignment, (*inputs[-2:], *outputs)), default=VECTOR)
        return (("alignment", aligned),) if aligned < VECTOR else ()
    if any(part in name for part in _OVER_CHANNELS):
        images = [one for one in inputs if one.ndim == 4]
        if images:
            return (("channels_last", any(map(has_channels_last, images))),)
    return ()


def has_channels_last(image: torch.Tensor) -> bool:
    """Return whether channels vary fastest; they do not where that cannot be told from the usual order."""
    return image.is_contiguous(memory_format=torch.channels_last) and not image.is_contiguous()


def _alignment(tensor: torch.Tensor) -> int:
    """Return the largest power of two, `VECTOR` at most, that divides the bytes between a matrix's rows."""
    strides = [
        abs(int(stride)) * tensor.itemsize
        for stride, extent in zip(tensor.stride(), tensor.shape, strict=True)
        if extent > 1 and stride > 1
    ]
    aligned = VECTOR
    while any(stride % aligned for stride in strides):
        aligned //= 2
    return aligned
