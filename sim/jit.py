"""The one importer of Numba: functions compiled at their first call, and cached on disk."""

from collections.abc import Callable
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])


def available() -> bool:
    """Return whether Numba, which the extra ``fast`` installs, is available."""
    try:
        return find_spec("numba") is not None
    except ValueError:  # sys.modules holds something that is not a module
        return False


def compiled(function: F) -> F:
    """Compile a function that only compiled code calls."""
    return _jit(function, no_cpython_wrapper=True)


def entry(function: F, *calls: Callable[..., Any]) -> F:
    """Compile a function with all its callees, once per machine.

    ``calls`` are the plain functions among these, which stay unchanged for interpreted callers.
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
    """Return a number that changes with the files' content and with how they are compiled; never 0."""
    digest = sha256(b"".join(Path(file).read_bytes() for file in (__file__, *files))).digest()
    return 1 + int.from_bytes(digest[:6], "big")


def is_kept(function: Any) -> bool:
    """Return whether an `entry` is already compiled on this machine, by the dates of its files."""
    source = Path(function.py_func.__code__.co_filename)
    kept = Path(function.stats.cache_path).glob(f"{source.stem}.*{function.py_func.__name__}-*.nbi")
    return any(file.stat().st_mtime >= source.stat().st_mtime for file in kept)
