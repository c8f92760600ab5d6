"""Put one function in place of another, for all modules of PyTorch that have imported it by name."""

import sys
from typing import Any


def everywhere(old: Any, new: Any) -> None:
    """Replace an object in all of PyTorch's modules."""
    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").partition(".")[0] == "torch":
            for name, value in list(vars(module).items()):
                if value is old:
                    setattr(module, name, new)
