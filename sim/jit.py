"""Numba's one door: functions on arrays that are compiled where they are first called, and kept on disk."""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])


def available() -> bool:
    """Whether Numba is here, which the extra ``fast`` installs."""
    try:
        return find_spec("numba") is not None
    except ValueError:  # a module of that name that is none
        return False


def compiled(function: F, *calls: Callable[..., Any]) -> F:
    """The function as machine code, compiled once on this machine; ``calls`` are plain ones that it calls."""
    import numba  # type: ignore[import-untyped, unused-ignore]

    for called in calls:
        numba.extending.register_jitable(called)
    return cast(F, numba.njit(cache=True)(function))
