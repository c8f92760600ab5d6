"""How an operator's tensors lie in memory, where its time depends on it."""

from collections.abc import Sequence
from typing import Any

import torch

Option = tuple[str, bool | int | float | str]

VECTOR = 16
"""Bytes that a load of a GPU moves at once: an operand whose rows do not begin at multiples of them takes
loads of fewer."""

_PRODUCTS = ("mm", "addmm", "bmm", "baddbmm")
_OVER_CHANNELS = ("convolution", "batch_norm")


def layout(func: Any, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]) -> tuple[Option, ...]:
    """Return options that say how tensors lie: ``alignment`` of products, ``channels_last`` of images.

    ``alignment`` are the bytes of which all rows are multiples, where these are fewer than `VECTOR`.
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
