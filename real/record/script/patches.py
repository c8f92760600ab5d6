"""Put one function in place of another of PyTorch's, for all that call it."""

import sys
from collections.abc import Callable
from typing import Any

import torch

Function = Callable[..., Any]


def everywhere(old: Any, new: Any) -> None:
    """Replace an object in all of PyTorch's modules."""
    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").partition(".")[0] == "torch":
            for name, value in list(vars(module).items()):
                if value is old:
                    setattr(module, name, new)


class _Engine:
    """Autograd's engine with another ``run_backward``."""

    def __init__(self, engine: Any, run_backward: Function) -> None:
        self._engine = engine
        self.run_backward = run_backward

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


def around_backward(wrap: Callable[[Function], Function]) -> None:
    """Have ``wrap`` of it in place of ``run_backward``, which Megatron-LM calls past ``torch.autograd``."""
    variable: Any = torch.autograd.Variable
    engine = variable._execution_engine
    variable._execution_engine = _Engine(engine, wrap(engine.run_backward))
