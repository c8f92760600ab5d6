"""Chunks of a parameter as FSDP and DTensor ask for them: these make one for each rank and keep their own."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from functools import cache, wraps
from typing import Any, overload

import torch
from torch.distributed.fsdp._fully_shard import _fsdp_common
from torch.distributed.tensor import placement_types

from ringside.real.record.script.patches import everywhere


def install() -> None:
    """Replace PyTorch's functions that make all chunks: thousands for each parameter of a large job."""
    everywhere(_fsdp_common._chunk_with_empty, LazyChunks)
    placement: Any = placement_types._StridedShard
    placement.local_shard_size_and_offset = once(placement.local_shard_size_and_offset)


def once(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that is asked once for each of its arguments: it is up to these alone."""
    known = cache(function)

    @wraps(function)
    def remembered(*args: Any, **kwargs: Any) -> Any:
        return deepcopy(known(*args, **kwargs))

    return remembered


class LazyChunks(Sequence[torch.Tensor]):
    """What ``torch.chunk`` returns, with empty tensors up to ``count``; each is made when it is asked for."""

    def __init__(self, tensor: torch.Tensor, num_chunks: int, dim: int) -> None:
        self._tensor = tensor
        self._count = num_chunks
        self._dim = dim

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, place: int) -> torch.Tensor: ...
    @overload
    def __getitem__(self, place: slice) -> list[torch.Tensor]: ...
    def __getitem__(self, place: Any) -> Any:
        """Return a chunk."""
        if isinstance(place, slice):
            return [self[one] for one in range(self._count)[place]]
        extent = self._tensor.size(self._dim)
        size = -(-extent // self._count)
        begin = range(self._count)[place] * size
        if begin >= extent > 0:
            return self._tensor.new_empty(0)
        return self._tensor.narrow(self._dim, begin, min(size, extent - begin))
