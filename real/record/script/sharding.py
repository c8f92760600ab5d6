"""What FSDP and DTensor compute for each parameter or rank, computed once, or for this rank alone.

Where chunks are not equal, what a rank does is up to its place among those that have them.
"""

from collections.abc import Callable, Hashable, Sequence
from contextlib import nullcontext
from copy import deepcopy
from functools import cache, wraps
from typing import Any, NamedTuple, overload

import torch
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp._flat_param import FlatParamHandle
from torch.distributed.fsdp._fully_shard import _fsdp_common
from torch.distributed.tensor import _sharding_prop, placement_types
from torch.distributed.tensor._op_schema import OpStrategy
from torch.distributed.tensor._ops import utils
from torch.distributed.tensor._random import OffsetBasedRNGTracker

from ringside.real.record.part import FlatShards, ShardedExtent
from ringside.real.record.script.patches import everywhere

_FLAG = "_propagate_use_strided_shard_flag"
"""The function that tells strategies how strided shards are ordered."""

uneven: dict[ShardedExtent | FlatShards, None] = {}
"""All chunks of unequal size so far, and flat parameters, in order."""


def install() -> None:
    """Replace functions of PyTorch that take long in a large job, for what they return is the same again."""
    everywhere(_fsdp_common._chunk_with_empty, LazyChunks)
    plain: Any = placement_types.Shard
    strided: Any = placement_types._StridedShard
    strided.local_shard_size_and_offset = once(strided.local_shard_size_and_offset)
    plain.local_shard_size_and_offset = staticmethod(_seen(plain.local_shard_size_and_offset))
    plain._split_tensor = _seen_of_tensor(plain._split_tensor)
    handles: Any = FlatParamHandle
    handles.shard = _seen_of_handle(handles.shard)
    meshes: Any = DeviceMesh
    meshes._concatenate = staticmethod(_of_each(meshes._concatenate))
    random: Any = OffsetBasedRNGTracker
    random._distribute_region = _without_numbers(random._distribute_region)
    propagator: Any = _sharding_prop.ShardingPropagator
    propagator._propagate_tensor_meta_non_cached = _of_results(propagator._propagate_tensor_meta_non_cached)
    kinds = _Kinds()
    everywhere(utils.expand_to_full_mesh_op_strategy, kinds.expand)
    if hasattr(_sharding_prop, _FLAG):
        everywhere(getattr(_sharding_prop, _FLAG), kinds.flag)


def _of_each(concatenate: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that has one mesh of each list of meshes: each has all ranks of the job."""
    known = cache(lambda *meshes: concatenate(list(meshes)))
    return lambda meshes: known(*meshes)


def _without_numbers(region: Callable[..., Any]) -> Callable[..., Any]:
    """Return a region of random numbers that shares none out among ranks of the device, which has none."""

    @wraps(region)
    def of_spec(self: Any, spec: Any, *args: Any, **kwargs: Any) -> Any:
        return nullcontext() if spec.mesh.device_type == "cuda" else region(self, spec, *args, **kwargs)

    return of_spec


def _of_results(propagate: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that runs no operator on fake tensors for the shapes of results that it has not."""

    @wraps(propagate)
    def of_schema(self: Any, schema: Any) -> Any:
        return propagate(self, schema) if schema.op._schema.returns else None

    return of_schema


class _Flags(NamedTuple):
    """The arguments of an operator as far as the flag of strided shards is up to them."""

    schema: Any
    args_spec: tuple[Any, ...]


class _Kinds:
    """How operators on lists are shared out: once for each kind of tensor, where PyTorch looks at thousands.

    An operator's strategies are expanded first, then they are flagged, by all its arguments.
    """

    def __init__(self) -> None:
        self._expand: Any = utils.expand_to_full_mesh_op_strategy
        self._flag: Any = getattr(_sharding_prop, _FLAG, None)
        self._expanded: dict[Hashable, Any] = {}
        self._last = _Flags(None, ())

    def expand(self, mesh: Any, schema: Any, strategies: Any, **options: Any) -> Any:
        """Return the strategies of tensors, as before if they are for tensors of the same kinds."""
        key = _compared((mesh, schema.op, schema.args_schema, schema.kwargs_schema, strategies, options))
        try:
            known = self._expanded.get(key)
        except TypeError:  # some argument cannot be compared
            return self._expand(mesh, schema, strategies, **options)
        if known is None:
            known = self._expanded[key] = self._expand(mesh, schema, strategies, **options)
        return known

    def flag(self, strategy: Any, schema: Any) -> None:
        """Flag strategies by one argument of each flag, not by all for each of as many results."""
        if self._last.schema is not schema:
            strided = (
                one
                for one in schema.args_spec
                if any(isinstance(place, placement_types._StridedShard) for place in one.placements)
            )
            flags = {one.use_strided_shard_as_shard_order: one for one in strided}
            self._last = _Flags(schema, tuple(flags.values()))
            self._expanded.clear()
        self._flag(strategy, self._last)


def _compared(value: Any) -> Any:
    """Return what is equal for equal arguments."""
    if isinstance(value, OpStrategy):
        return tuple((one.output_specs, one.input_specs) for one in value.strategies)
    if isinstance(value, dict):
        return tuple((name, _compared(one)) for name, one in value.items())
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        return tuple(map(_compared, value))
    return value


def _see(extent: Any, count: Any) -> None:
    if isinstance(extent, int) and isinstance(count, int) and extent % count:
        uneven[ShardedExtent(extent, count)] = None


def _seen(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def of_extent(curr_local_size: Any, num_chunks: Any, *args: Any, **kwargs: Any) -> Any:
        _see(curr_local_size, num_chunks)
        return function(curr_local_size, num_chunks, *args, **kwargs)

    return of_extent


def _seen_of_tensor(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def of_tensor(self: Any, tensor: torch.Tensor, num_chunks: Any, *args: Any, **kwargs: Any) -> Any:
        _see(tensor.size(self.dim), num_chunks)
        return function(self, tensor, num_chunks, *args, **kwargs)

    return of_tensor


def _seen_of_handle(shard: Callable[..., Any]) -> Callable[..., Any]:
    """Return what shards a flat parameter: where optimizers see the parameters in it, by their parts."""

    @wraps(shard)
    def of_handle(self: Any) -> None:
        if self._use_orig_params and self.uses_sharded_strategy:
            uneven[FlatShards(tuple(self.flat_param._numels_with_padding), self.world_size)] = None
        shard(self)

    return of_handle


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
        _see(tensor.size(dim), num_chunks)

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
