"""FSDP's units: the parameters of one wrapped module, gathered and reduced as one, and their sizes."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from ringside.sim.collective import ITEMSIZE
from ringside.sim.training.layers import RankLayer
from ringside.sim.workload.workload import Tensor

ROOT = "root"
"""The name of the unit with all parameters that belong to no other."""

PARAMETERS = "parameters"
"""The pool of a rank's shards of the parameters."""

GATHERED = "gathered parameters"
"""The pool of parameters that are whole while they are used."""

FLAT = "gather buffers"
"""The pool of all-gather outputs, from which whole parameters are copied out."""

UNREDUCED = "unreduced gradients"
"""The pool of gradients as backward makes them."""

BUFFERS = "reduce buffers"
"""The pool of reduction inputs and of their casts."""

GRADIENTS = "gradients"
"""The pool of a rank's shards of the gradients."""

OPTIMIZER = "optimizer"
"""The pool of a rank's shards of the optimizer's states."""


@dataclass(frozen=True, slots=True)
class Unit:
    """Parameters gathered by one collective and reduced by one, and the layers that they belong to."""

    name: str
    layers: tuple[int, ...]
    tensors: tuple[Tensor, ...]

    def nbytes(self, dtype: str | None = None) -> int:
        """Return the bytes of its parameters, in a given type or their own."""
        return sum(tensor.count * ITEMSIZE[dtype or tensor.dtype] for tensor in self.tensors)

    def padded_nbytes(self, ranks: int, dtype: str | None = None) -> int:
        """Return the bytes of its parameters, each padded to rows that shard evenly over the ranks."""
        return sum(padded(tensor, ranks) * ITEMSIZE[dtype or tensor.dtype] for tensor in self.tensors)

    @property
    def dtype(self) -> str:
        """The one type of its parameters."""
        return self.tensors[0].dtype


def padded(tensor: Tensor, ranks: int) -> int:
    """Return the elements of a tensor with rows added until they shard evenly.

    ``fully_shard`` chunks dimension 0, and all ranks have the size of the first chunk
    (torch/distributed/fsdp/_fully_shard/_fsdp_common.py, `_get_dim0_padded_size`).
    """
    rows = tensor.count if tensor.rows is None else tensor.rows
    return ceil(rows / ranks) * ranks * (tensor.count // rows) if rows else 0


def units(layers: Sequence[RankLayer]) -> tuple[Unit, ...]:
    """Return the units of layers in the order in which FSDP registers them: the root, then forward order."""
    rest = [number for number, layer in enumerate(layers) if layer.parameters and not layer.wrapped]
    root = Unit(ROOT, tuple(rest), tuple(tensor for number in rest for tensor in layers[number].parameters))
    others = [
        Unit(layer.name, (number,), layer.parameters)
        for number, layer in enumerate(layers)
        if layer.parameters and layer.wrapped
    ]
    names = {ROOT}
    for unit in others:
        if unit.name in names:
            raise ValueError(
                f"two units are called {unit.name!r}; give the layer that FSDP wraps a name of its own"
            )
        names.add(unit.name)
    return (root, *others) if rest else tuple(others)
