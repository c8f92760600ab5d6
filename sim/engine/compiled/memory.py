"""Arrays by their address, for compiled code that hands one record on instead of thirty arrays."""

from typing import Any

import numba
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from sim.jit import compiled


def _as_pointer(context: Any, address: Any) -> Any:
    """An address as a pointer."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(address), generate


_pointer: Any = intrinsic(_as_pointer)
_carray: Any = vars(numba)["carray"]


@compiled
def array_at(address: int, shape: Any, dtype: Any) -> Any:
    """The array of records or numbers that lies there."""
    return _carray(_pointer(address), shape, dtype)
