"""Where in a script a call stands: the first frame outside PyTorch, Python's library and this package."""

import os
import sys
from functools import cache
from types import FrameType

import torch

_HERE = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
_LIBRARY = os.path.dirname(os.path.realpath(os.__file__))
_TORCH = os.path.dirname(os.path.realpath(torch.__file__))
_PACKAGES = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")
_INNER = ("torch", "ringside.real.record")
"""Modules whose frames are not looked at; to ask a frame for its code raises an audit event."""

_outer: dict[str, bool] = {}


def caller() -> str | None:
    """Return FILE:LINE of the calling script or package; None where no such frame calls, as in backward."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        module = frame.f_globals.get("__name__")
        if not (isinstance(module, str) and _is_inner(module)):
            file = frame.f_code.co_filename
            is_outer = _outer.get(file)
            if is_outer is None:
                is_outer = _outer[file] = _is_outer(file)
            if is_outer:
                return f"{file}:{frame.f_lineno}"
        frame = frame.f_back
    return None


@cache
def _is_inner(module: str) -> bool:
    return f"{module}.".startswith(tuple(f"{one}." for one in _INNER))


def _is_outer(file: str) -> bool:
    if file.startswith("<"):
        return False
    file = os.path.realpath(file)
    if file.startswith((_TORCH + os.sep, _HERE + os.sep)):
        return False
    return _is_of_package(file) or not file.startswith(_LIBRARY + os.sep)


def _is_of_package(file: str) -> bool:
    return any(folder in file for folder in _PACKAGES)


def of(failure: BaseException) -> str | None:
    """Return FILE:LINE of the last line of the script that an exception passed, else of a package."""
    place, is_of_script = None, False
    trace = failure.__traceback__
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        is_of_package = _is_of_package(os.path.realpath(file))
        if _is_outer(file) and not (is_of_script and is_of_package):
            place, is_of_script = f"{file}:{trace.tb_lineno}", not is_of_package
        trace = trace.tb_next
    return place
