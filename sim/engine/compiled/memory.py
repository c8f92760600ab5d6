"""Arrays by their address, for compiled code that hands one record on instead of thirty arrays."""

from typing import Any

import numba
import numpy as np
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from ringside.sim.jit import compiled

LINE = 64
"""Bytes of a cache line."""


def _as_pointer(context: Any, address: Any) -> Any:
    """An address as a pointer."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(address), generate


_pointer: Any = intrinsic(_as_pointer)
_carray: Any = vars(numba)["carray"]
_ir: Any = vars(cgutils)["ir"]


def lines(count: int, dtype: Any) -> Any:
    """Records whose first one begins a cache line, as all do that are as long as some lines."""
    room = np.empty(count * dtype.itemsize + LINE, dtype=np.uint8)
    begin = -room.ctypes.data % LINE
    return room[begin : begin + count * dtype.itemsize].view(dtype)


@compiled
def array_at(address: int, shape: Any, dtype: Any) -> Any:
    """The array of records or numbers that lies there."""
    return _carray(_pointer(address), shape, dtype)


def _fetch(context: Any, address: Any) -> Any:
    """Have the cache line at an address ready for when it is read, by LLVM's prefetch."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer, number = cgutils.voidptr_t, _ir.IntType(32)
        taken = _ir.FunctionType(_ir.VoidType(), [pointer, number, number, number])
        prefetch = builder.module.declare_intrinsic("llvm.prefetch", [pointer], taken)
        # to read, to be kept in all caches, data
        how = number(0), number(3), number(1)
        builder.call(prefetch, [builder.inttoptr(arguments[0], pointer), *how])
        return context.get_dummy_value()

    return types.void(address), generate


fetch: Any = intrinsic(_fetch)
