"""Plain values of a pickle, and nothing else: containers, numbers and text. No name is imported or called."""

import io
import pickle
import pickletools
from typing import Any

_SAFE = frozenset(
    {
        *("PROTO", "FRAME", "STOP", "MARK", "NONE", "NEWTRUE", "NEWFALSE"),
        *("EMPTY_DICT", "DICT", "SETITEM", "SETITEMS", "EMPTY_LIST", "LIST", "APPEND", "APPENDS"),
        *("EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"),
        *("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE"),
        *("BINPUT", "LONG_BINPUT", "BINGET", "LONG_BINGET", "MEMOIZE"),
    }
)
"""Instructions that make plain values; others import a name, call it or build an object."""


class UnsafePickleError(ValueError):
    """A pickle that does more than to make plain values; the message names it."""


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        raise UnsafePickleError(f"imports {module}.{name}")


def plain_values(content: bytes) -> Any:
    """Return the values; raise UnsafePickleError before anything is loaded, any exception if damaged.

    A number in the memo beyond the file's bytes would reserve memory for all numbers below it.
    """
    texts = ["?", "?"]
    for operation, argument, _ in pickletools.genops(content):
        if operation.name in ("GLOBAL", "INST"):
            raise UnsafePickleError(f"imports {str(argument).replace(' ', '.')}")
        if operation.name == "STACK_GLOBAL":
            raise UnsafePickleError(f"imports {'.'.join(texts)}")
        if operation.name not in _SAFE:
            raise UnsafePickleError(f"has the instruction {operation.name}")
        if operation.name == "LONG_BINPUT" and argument is not None and argument > len(content):
            raise UnsafePickleError(f"numbers a value {argument:,}")
        if isinstance(argument, str):
            texts = [texts[1], argument]
    return _PlainUnpickler(io.BytesIO(content)).load()
