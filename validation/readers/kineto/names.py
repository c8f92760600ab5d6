"""PyTorch's, NCCL's and Gloo's names of kinds of communication and of data types."""

import re

from ringside.sim.collective import ITEMSIZE
from ringside.validation.readers.kineto.trace import UNTOLD

WIDTHS = {
    **ITEMSIZE,
    **dict.fromkeys(("float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu"), 1),
    **{"uint16": 2, "uint32": 4, "uint64": 8, "complex32": 4},
}
"""Bytes per element of PyTorch's communicated types."""

_KINDS = {
    "sendrecv": UNTOLD,
    "barrier": "barrier",
    "allreduce": "all_reduce",
    "reducescatter": "reduce_scatter",
    "allgather": "all_gather",
    "alltoall": "all_to_all",
    "broadcast": "broadcast",
    "bcast": "broadcast",
    "reduce": "reduce",
    "gather": "gather",
    "scatter": "scatter",
    "send": "send",
    "recv": "recv",
}
"""Parts of names without underscores, the more specific first."""

_TYPES = {
    "float": "float32", "double": "float64", "half": "float16", "bfloat16": "bfloat16",
    "int": "int32", "long": "int64", "longint": "int64", "longlong": "int64", "short": "int16",
    "char": "int8", "signedchar": "int8", "byte": "uint8", "unsignedchar": "uint8", "bool": "bool",
    "complexfloat": "complex64", "complexdouble": "complex128",
    "complexhalf": "complex32",
    "complex<float>": "complex64", "complex<double>": "complex128",
    "float8e4m3fn": "float8_e4m3fn", "float8e5m2": "float8_e5m2",
}  # fmt: skip
"""Types by c10::ScalarType's name, or C++'s, without underscores and blanks."""

_KERNEL = re.compile(r"^(?:void\s+)?\w*?(?:nccl|rccl|msccl)\w*", re.IGNORECASE)
_ANNOTATION = re.compile(r"^(nccl|gloo|mpi|ucc|xccl):(\w+)$")


def kind_of(name: str) -> str | None:
    """Return the kind of communication that a name denotes; ``None`` for others, such as ``Generic``."""
    bare = name.lower().replace("_", "")
    return next((kind for word, kind in _KINDS.items() if word in bare), None)


def kernel_kind(name: str) -> str | None:
    """Return the kind of an NCCL kernel by its name, without the arguments after the first bracket."""
    return kind_of(re.split(r"[(<]", name, maxsplit=1)[0])


def is_communication(name: str) -> bool:
    """Return whether a kernel is one of NCCL, RCCL or MSCCL by its name."""
    return _KERNEL.match(name) is not None


def annotated(name: str) -> tuple[str, str] | None:
    """Parse backend and operation of an annotation such as ``nccl:all_reduce``; ``None`` for others."""
    match = _ANNOTATION.match(name)
    return (match[1], match[2]) if match else None


def dtype_of(word: str) -> str | None:
    """Return PyTorch's name of a type such as ``Float``, ``c10::BFloat16``, ``long int``, or ``None``."""
    bare = word.lower().replace("c10::", "").replace("_", "").replace(" ", "")
    name = _TYPES.get(bare, word.lower())
    return name if name in WIDTHS else None
