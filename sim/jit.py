"""Numba's one door: functions that are compiled where they are first called, and kept on disk."""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, TypeVar, cast

F = TypeVar("F", bound=Callable[..., Any])


def available() -> bool:
    """Whether Numba is here, which the extra ``fast`` installs."""
    try:
        return find_spec("numba") is not None
    except ValueError:  # in place of the module stands something that is none
        return False


def entry(function: F, *calls: Callable[..., Any]) -> F:
    """The function as machine code, with all that it calls, compiled once on this machine.

    ``calls`` are the plain functions among these, which stay as they are for whoever interprets them.
    """
    import numba  # type: ignore[import-untyped, import-not-found, unused-ignore]

    for called in calls:
        numba.extending.register_jitable(called)
    return cast(F, numba.njit(error_model="numpy", cache=True)(function))
