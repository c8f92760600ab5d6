"""A model of the user's own: ``FILE.py:NAME``, a function that returns a module and what to call it with."""

import importlib
import sys
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
    folder, name_of_file = str(Path(path).resolve().parent), Path(path).stem
    sys.path.insert(0, folder)  # its neighbours are its own to import
    try:
        made = getattr(importlib.import_module(name_of_file), name)()
    except (Exception, SystemExit) as error:
        raise ValueError(f"{text}: {type(error).__name__}: {error}; {_EXAMPLE}") from error
    finally:
        sys.path.remove(folder)
    if not (isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], nn.Module)):
        raise ValueError(f"{text} returns {type(made).__name__}; {_EXAMPLE}")
    module, inputs = made
    return module, inputs if isinstance(inputs, tuple) else (inputs,)


def build_light(text: str) -> tuple[nn.Module, tuple[Any, ...]]:
    """`build` on the meta device, which takes no memory; on the CPU where the function reads numbers."""
    try:
        with torch.device("meta"):
            return build(text)
    except ValueError:
        return build(text)


def batch_of(inputs: Any) -> int:
    """Samples of the first input that has any; 1 where none has."""
    tensors = (leaf for leaf in tree_leaves(inputs) if isinstance(leaf, torch.Tensor) and leaf.dim())
    return max(next((tensor.shape[0] for tensor in tensors), 1), 1)


def loss(outputs: Any) -> torch.Tensor:
    """One number that depends on every output that can be trained: their sum."""
    leaves = [leaf for leaf in tree_leaves(outputs) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    return torch.stack([leaf.sum() for leaf in leaves]).sum()
