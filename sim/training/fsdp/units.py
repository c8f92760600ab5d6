"""What FSDP gathers and reduces together: the parameters of one wrapped module, and its sizes."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from ringside.sim.collective import ITEMSIZE
from ringside.sim.training.layers import RankLayer
from ringside.sim.workload.workload import Tensor

ROOT = "root"
"""The name of the unit that has what no other has."""

PARAMETERS = "parameters"
"""The pool of a rank's shards of the parameters."""

GATHERED = "gathered parameters"
"""The pool of parameters that are whole while they are used."""

FLAT = "gather buffers"
"""The pool of what all-gathers write, from which whole parameters are copied out."""

UNREDUCED = "unreduced gradients"
"""The pool of gradients as backward makes them."""

BUFFERS = "reduce buffers"
"""The pool of what is reduced and of what comes of it in another type."""

GRADIENTS = "gradients"
"""The pool of a rank's shards of the gradients."""

OPTIMIZER = "optimizer"
"""The pool of a rank's shards of the optimizer's states."""


@dataclass(frozen=True, slots=True)
class Unit:
    """Parameters that are gathered by one collective and reduced by one, and the layers that they are of."""

    name: str
    layers: tuple[int, ...]
    tensors: tuple[Tensor, ...]

    def nbytes(self, dtype: str | None = None) -> int:
        """Bytes of its parameters, in a type if it is not their own."""
        return sum(tensor.count * ITEMSIZE[dtype or tensor.dtype] for tensor in self.tensors)

    def padded_nbytes(self, ranks: int, dtype: str | None = None) -> int:
        """Bytes of its parameters where each is dealt out to ranks in equal numbers of rows."""
        return sum(padded(tensor, ranks) * ITEMSIZE[dtype or tensor.dtype] for tensor in self.tensors)

    @property
    def dtype(self) -> str:
        """The type of its parameters, which is one."""
        return self.tensors[0].dtype


def padded(tensor: Tensor, ranks: int) -> int:
    """Elements of a tensor with rows added until they deal out evenly.

    ``fully_shard`` chunks dimension 0, and all ranks have as much as the first
    (torch/distributed/fsdp/_fully_shard/_fsdp_common.py, `_get_dim0_padded_size`).
    """
    rows = tensor.count if tensor.rows is None else tensor.rows
    return ceil(rows / ranks) * ranks * (tensor.count // rows) if rows else 0


def units(layers: Sequence[RankLayer]) -> tuple[Unit, ...]:
    """The units of layers in the order in which FSDP registers them: the root, then the others forward."""
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
                f"a layer that FSDP wraps is called {unit.name!r}, as another unit; give it a name of its own"
            )
        names.add(unit.name)
    return (root, *others) if rest else tuple(others)
