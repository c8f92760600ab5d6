"""``transformers``, where it is installed: it takes tensors of the device for real ones.

It gives models an attention mask where it finds fake tensors, as exported models need one. On a GPU, where no
token is masked, there is none, and attention is another kernel.
"""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

from ringside.real.record.shims.registry import is_installed

PACKAGE = "transformers"
_CHECKS = "transformers.utils.import_utils"


class _Finder(MetaPathFinder):
    """Has one module say that no tensor is fake, once it is imported."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != _CHECKS:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        loader: Any = spec and spec.loader
        if loader is not None:
            run = loader.exec_module

            def exec_module(module: ModuleType) -> None:
                run(module)
                vars(module)["is_fake_tensor"] = lambda _: False

            loader.exec_module = exec_module
        return spec


def make() -> None:
    """Change the package when it is imported."""
    if is_installed(PACKAGE):
        sys.meta_path.insert(0, _Finder())
