"""Packages that need a GPU, by what recording has in place of each; a user can register more.

>>> register("my_kernels", lambda: module("my_kernels", norm=lambda x: x))
"""

import sys
import types
from collections.abc import Callable
from importlib.abc import MetaPathFinder
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


def after_import(name: str, change: Callable[[Any], None]) -> None:
    """Have ``change`` change a module as soon as the script has imported it."""
    sys.meta_path.insert(0, _After(name, change))


class _After(MetaPathFinder):
    """Finds a module as it would be without this, which then is changed."""

    def __init__(self, name: str, change: Callable[[Any], None]) -> None:
        self._name = name
        self._change = change

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(fullname)
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            execute = loader.exec_module

            def changed(module: types.ModuleType) -> None:
                execute(module)
                self._change(module)

            loader.exec_module = changed
        return spec


def is_installed(package: str) -> bool:
    """Return whether the real package is here."""
    return find_spec(package) is not None
