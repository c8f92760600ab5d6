"""Arrays by their address, for compiled code that hands one record on instead of thirty arrays."""

from typing import Any

from numba import carray, types
from numba.core import cgutils
from numba.extending import intrinsic

from sim.jit import compiled


@intrinsic
def _pointer(context: Any, address: Any) -> Any:
    """An address as a pointer."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(address), generate


@compiled
def array_at(address: int, shape: Any, dtype: Any) -> Any:
    """The array of records or numbers that lies there."""
    return carray(_pointer(address), shape, dtype)
