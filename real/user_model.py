"""A model of the user's own: ``FILE.py:NAME``, a function that returns a module and what to call it with."""

import importlib.util
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_leaves

_EXAMPLE = "write FILE.py:NAME, a function without arguments that returns (module, inputs)"


def build(text: str) -> tuple[nn.Module, tuple[Any, ...]]:
    """The module and the inputs, batch first, that the function returns on the current default device.

    Raise ValueError where there is no such function, or it fails, or returns something else.
    """
    path, _, name = text.partition(":")
    if not Path(path).is_file():
        raise ValueError(f"{path}: no such file; {_EXAMPLE}")
    spec = importlib.util.spec_from_file_location(Path(path).stem, path)
    assert spec
    assert spec.loader
    code = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(code)
        made = getattr(code, name)()
    except Exception as error:
        raise ValueError(f"{text}: {type(error).__name__}: {error}; {_EXAMPLE}") from error
    if not (isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], nn.Module)):
        raise ValueError(f"{text} returns {type(made).__name__}; {_EXAMPLE}")
    module, inputs = made
    return module, inputs if isinstance(inputs, tuple) else (inputs,)


def loss(outputs: Any) -> torch.Tensor:
    """One number that depends on every output that can be trained: their sum."""
    leaves = [leaf for leaf in tree_leaves(outputs) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    return torch.stack([leaf.sum() for leaf in leaves]).sum()
