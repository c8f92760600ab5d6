"""Arrays by address, for compiled code that passes one record instead of thirty arrays."""

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
    """Return an address as a pointer."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(address), generate


_pointer: Any = intrinsic(_as_pointer)
_carray: Any = vars(numba)["carray"]
_ir: Any = vars(cgutils)["ir"]


def lines(count: int, dtype: Any) -> Any:
    """Return records aligned to cache lines, if their length is a multiple of one."""
    room = np.empty(count * dtype.itemsize + LINE, dtype=np.uint8)
    begin = -room.ctypes.data % LINE
    return room[begin : begin + count * dtype.itemsize].view(dtype)


@compiled
def array_at(address: int, shape: Any, dtype: Any) -> Any:
    """Return the array of records or numbers at an address."""
    return _carray(_pointer(address), shape, dtype)


def _fetch(context: Any, address: Any) -> Any:
    """Prefetch the cache line at an address, by LLVM's prefetch."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer, number = cgutils.voidptr_t, _ir.IntType(32)
        taken = _ir.FunctionType(_ir.VoidType(), [pointer, number, number, number])
        prefetch = builder.module.declare_intrinsic("llvm.prefetch", [pointer], taken)
        # read access, maximum locality, data cache
        how = number(0), number(3), number(1)
        builder.call(prefetch, [builder.inttoptr(arguments[0], pointer), *how])
        return context.get_dummy_value()

    return types.void(address), generate


fetch: Any = intrinsic(_fetch)
