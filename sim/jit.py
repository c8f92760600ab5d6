"""Numba's one door: functions that are compiled where they are first called, and kept on disk."""

from collections.abc import Callable
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])


def available() -> bool:
    """Whether Numba is here, which the extra ``fast`` installs."""
    try:
        return find_spec("numba") is not None
    except ValueError:  # in place of the module stands something that is none
        return False


def compiled(function: F) -> F:
    """The function as machine code, to be called by compiled code alone."""
    return _jit(function, no_cpython_wrapper=True)


def entry(function: F, *calls: Callable[..., Any]) -> F:
    """The function as machine code, with all that it calls, compiled once on this machine.

    ``calls`` are the plain functions among these, which stay as they are for whoever interprets them.
    """
    import numba

    for called in calls:
        numba.extending.register_jitable(called)
    return _jit(function, cache=True)


def _jit(function: F, **options: bool) -> F:
    import numba

    njit: Any = numba.njit
    return cast(F, njit(error_model="numpy", no_cfunc_wrapper=True, **options)(function))


def fingerprint(*files: str) -> int:
    """A number that changes with what stands in the files; never 0."""
    digest = sha256(b"".join(Path(file).read_bytes() for file in files)).digest()
    return 1 + int.from_bytes(digest[:6], "big")


def is_kept(function: Any) -> bool:
    """Whether an `entry` was compiled on this machine already, as far as the dates of its files say."""
    source = Path(function.py_func.__code__.co_filename)
    kept = Path(function.stats.cache_path).glob(f"{source.stem}.*{function.py_func.__name__}-*.nbi")
    return any(file.stat().st_mtime >= source.stat().st_mtime for file in kept)
