"""The collective that an entry is, by PyTorch's names, and its bytes."""

from math import prod

from ringside.sim.collective import ITEMSIZE, KINDS
from ringside.sim.flight.dump import FlightCall, Sizes

_KINDS = {
    "barrier": "all_reduce",
    "all_reduce_barrier": "all_reduce",
    "allreduce_coalesced": "all_reduce",
    "_all_gather_base": "all_gather",
    "all_gather_single": "all_gather",
    "all_gather_v": "all_gather",
    "all_gather_into_tensor_coalesced": "all_gather",
    "ALLGATHER_coalesced": "all_gather",
    "_reduce_scatter_base": "reduce_scatter",
    "reduce_scatter_single": "reduce_scatter",
    "reduce_scatter_v": "reduce_scatter",
    "reduce_scatter_tensor_coalesced": "reduce_scatter",
    "REDUCE_SCATTER_coalesced": "reduce_scatter",
    "_broadcast_oop": "broadcast",
    "_reduce_oop": "reduce",
    "all_to_all_single": "all_to_all",
    "all_to_all_v_single": "all_to_all",
}

_TYPES = {
    "Float": "float32", "Double": "float64", "Half": "float16", "BFloat16": "bfloat16", "Int": "int32",
    "Long": "int64", "Char": "int8", "Byte": "uint8", "Short": "int16", "Bool": "bool",
    "Float8_e4m3fn": "float8_e4m3fn", "Float8_e5m2": "float8_e5m2", "ComplexFloat": "complex64",
    "ComplexDouble": "complex128",
}  # fmt: skip
"""PyTorch's names of scalar types in C++."""

_UNEQUAL = {"gather", "scatter", "all_to_all"}
"""Collectives whose sizes differ rightly: roots' and unequal parts'."""


def kind_of(call: FlightCall) -> str | None:
    """Return the collective's kind, or None for messages and unknown calls."""
    kind = _KINDS.get(call.name, call.name)
    return kind if kind in KINDS and not call.is_p2p else None


def nbytes_of(call: FlightCall) -> int:
    """Return nccl-tests' size of a collective: of an all_gather the output, else the input."""
    if kind_of(call) == "all_gather":
        return _nbytes(call.output_sizes, call.output_dtypes)
    return _nbytes(call.input_sizes, call.input_dtypes)


def common_of(call: FlightCall) -> tuple[object, ...]:
    """Return what must be the same on all members: the name, and where these must be, bytes and types."""
    kind = kind_of(call)
    if kind is None or kind in _UNEQUAL or "_v" in call.name:
        return (call.name,)
    return call.name, nbytes_of(call), tuple(sorted(set(call.input_dtypes)))


def members_of(call: FlightCall) -> int:
    """Return how many ranks an all_gather's sizes show, 0 for other calls."""
    if kind_of(call) != "all_gather":
        return 0
    own, whole = _nbytes(call.input_sizes, call.input_dtypes), nbytes_of(call)
    return whole // own if own and not whole % own else 0


def _nbytes(sizes: Sizes, dtypes: tuple[str, ...]) -> int:
    types = (*dtypes, *[dtypes[-1] if dtypes else "Byte"] * len(sizes))
    return sum(
        prod(size) * ITEMSIZE.get(_TYPES.get(dtype, dtype), 1)
        for size, dtype in zip(sizes, types, strict=False)
    )
