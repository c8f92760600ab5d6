"""Packages that need a GPU, by what recording has in place of each; a user can register more.

>>> register("my_kernels", lambda: module("my_kernels", norm=lambda x: x))
"""

import sys
import types
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from typing import Any

SHIMS: dict[str, Callable[[], None]] = {}
"""What makes a package's modules, by the package's name."""


def register(package: str, make: Callable[[], None]) -> None:
    """Have ``make`` put a package's modules in place before the script is run."""
    SHIMS[package] = make


class _Shim(types.ModuleType):
    """A module in place of one that is not here: what is not shimmed fails when it is called.

    A name with a capital letter is a class without instances.
    """

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        full = f"{self.__name__}.{name}"

        def missing(*_: Any, **__: Any) -> Any:
            from ringside.real.record.script.refusal import refusal

            raise refusal(f"{full} has no shim", "register one, see ringside.real.record.shims.registry")

        return type(name, (), {"__init__": missing}) if name[0].isupper() else missing


def module(name: str, **names: Any) -> types.ModuleType:
    """Make a module with these names, and its parents."""
    shim = _Shim(name)
    vars(shim).update(names)
    shim.__path__ = []
    shim.__spec__ = ModuleSpec(name, None, is_package=True)
    shim.__version__ = "9.9.9"  # type: ignore[attr-defined]
    sys.modules[name] = shim
    parent, _, child = name.rpartition(".")
    if parent:
        if parent not in sys.modules:
            module(parent)
        setattr(sys.modules[parent], child, shim)
    return shim


def is_installed(package: str) -> bool:
    """Return whether the real package is here."""
    return find_spec(package) is not None
