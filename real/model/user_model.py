"""A user's own model: ``FILE.py:NAME``, a function that returns a module and its inputs."""

import sys
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from importlib.util import module_from_spec, spec_from_file_location
from inspect import isfunction
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy
from torch.utils._pytree import tree_leaves

from ringside.sim.program.record.script import imports_from, modules_beside

EXAMPLE = "write FILE.py:NAME, a function without arguments that returns (module, inputs)"
"""The form of a user's own model."""


def build(text: str) -> tuple[nn.Module, tuple[Any, ...]]:
    """Return the module and the inputs, batch first, of the function on the current default device.

    Raise ValueError where the function does not exist, fails, or returns something else.
    """
    path, _, name = text.partition(":")
    if not Path(path).is_file():
        raise ValueError(f"{path}: no such file; {EXAMPLE}")
    try:
        file = _imported(Path(path).resolve())
        made = getattr(file, name)() if hasattr(file, name) else None
    except (Exception, SystemExit) as error:
        raise ValueError(f"{text}: {type(error).__name__}: {error}; {EXAMPLE}") from error
    if not hasattr(file, name):
        raise ValueError(f"{path} has no function {name!r}; it has {_functions(file)}; {EXAMPLE}")
    if not (isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], nn.Module)):
        raise ValueError(f"{text} returns {type(made).__name__}; {EXAMPLE}")
    module, inputs = made
    if any(map(is_lazy, (*module.parameters(), *module.buffers()))):
        raise ValueError(
            f"{text}: {type(module).__name__} has lazy layers, whose parameters have no shape; call it "
            "once with its inputs before it is returned"
        )
    return module, inputs if isinstance(inputs, tuple) else (inputs,)


def _imported(file: Path) -> ModuleType:
    """Import the file as a module under a name of its own; it may import its neighbours.

    It is read again each time, with its neighbours: they may have changed, or share names with another
    file's.
    """
    for old in _neighbours:
        sys.modules.pop(old, None)
    known = set(sys.modules)
    name = f"{file.stem} of {file.parent}"
    spec = spec_from_file_location(name, file)
    assert spec
    assert spec.loader
    sys.modules[name] = module = module_from_spec(spec)
    try:
        with imports_from(file.parent):
            spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    finally:
        _neighbours[:] = modules_beside(file.parent, {*known, name})
    return module


_neighbours: list[str] = []
"""Modules next to the last file, which its functions may still import."""


def _functions(file: ModuleType) -> str:
    """List the names of the functions that a file defines."""
    made = vars(file).items()
    own = [name for name, one in made if isfunction(one) and one.__module__ == file.__name__]
    return ", ".join(own) if own else "none"


def build_light(text: str) -> tuple[nn.Module, tuple[Any, ...]]:
    """Run `build` on the meta device, which takes no memory; on the CPU where the function reads values."""
    try:
        with torch.device("meta"):
            return build(text)
    except ValueError:
        return build(text)


def batch_of(inputs: Any) -> int:
    """Return the number of samples of the first input that has a dimension; 1 where none has."""
    tensors = (leaf for leaf in tree_leaves(inputs) if isinstance(leaf, torch.Tensor) and leaf.dim())
    batch = next((tensor.shape[0] for tensor in tensors), 1)
    if not batch:
        raise ValueError(f"inputs without a sample; {EXAMPLE}, one sample or more, batch first")
    return batch


def trainable_outputs(outputs: Any) -> list[torch.Tensor]:
    """Return the outputs that depend on a parameter that is trained."""
    leaves = [tensor for tensor in _tensors(outputs) if tensor.requires_grad]
    if not leaves:
        raise ValueError("no output depends on a parameter that is trained")
    return leaves


def loss(outputs: Any) -> torch.Tensor:
    """Return a scalar that depends on every trainable output: their sum."""
    return torch.stack([leaf.sum() for leaf in trainable_outputs(outputs)]).sum()


def _tensors(outputs: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors that DistributedDataParallel finds: in containers and dataclass fields."""
    for leaf in tree_leaves(outputs):
        if isinstance(leaf, torch.Tensor):
            yield leaf
        elif isinstance(leaf, Mapping):
            yield from _tensors(list(leaf.values()))
        elif is_dataclass(leaf) and not isinstance(leaf, type):
            yield from _tensors([getattr(leaf, each.name) for each in fields(leaf)])
