"""FSDP2's arguments: those of ``fully_shard`` and of its modules' setters."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil, inf

from ringside.sim.collective import ITEMSIZE
from ringside.sim.training.layers import RankLayer
from ringside.sim.workload.workload import Tensor
from ringside.topologies.names import one_of

ROOT = "root"
"""The name of the unit with all remaining parameters."""

PARAMETERS = "parameters"
"""The pool of a rank's shards of the parameters."""

GATHERED = "gathered parameters"
"""The pool of whole parameters while they are used."""

FLAT = "gather buffers"
"""The pool of all-gather outputs, from which whole parameters are copied out."""

UNREDUCED = "unreduced gradients"
"""The pool of gradients made by backward."""

BUFFERS = "reduce buffers"
"""The pool of reduction inputs and of their casts."""

GRADIENTS = "gradients"
"""The pool of a rank's shards of the gradients."""

OPTIMIZER = "optimizer"
"""The pool of a rank's shards of the optimizer's states, which the first step of it allocates."""

COPIES = "float32 copies"
"""The pool of a rank's shards of parameters in float32, beside those in the type of products."""


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


Reshard = bool | int | None
"""After forward: free whole parameters, keep them, or keep them sharded among this many ranks.

None frees all except the root's.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class FullyShardPolicy:
    """How parameters are sharded, gathered and reduced.

    ``reshard_of`` gives the value by unit name where it differs from ``reshard_after_forward``.
    ``forward_prefetch`` and ``backward_prefetch`` name the units to gather as soon as a unit's own parameters
    are requested; by default backward gathers one ahead. Each backward is reduced, or with ``no_sync``
    (``set_requires_gradient_sync(False)``) only the last; with ``reshard_after_backward`` False parameters
    stay whole between micro-batches. ``separate_reduce_scatter`` gives reduce-scatters a communicator of
    their own, and ``max_input_buffers`` of them may be pending before backward waits. Parameters are sharded
    along the mesh's ``shard`` dimensions, and their shards are summed along ``replicate``. Where it is
    ``in_place``, as Megatron-LM's, shards are held in ``param_dtype`` too and gathered without copies.
    """

    reshard_after_forward: Reshard = None
    reshard_of: Mapping[str, Reshard] = field(default_factory=dict)
    param_dtype: str | None = None
    reduce_dtype: str | None = None
    forward_prefetch: Mapping[str, Sequence[str]] = field(default_factory=dict)
    backward_prefetch: Mapping[str, Sequence[str]] = field(default_factory=dict)
    no_sync: bool = False
    reshard_after_backward: bool = True
    separate_reduce_scatter: bool = False
    max_input_buffers: int = 1
    memory_bandwidth: float = inf
    shard: tuple[str, ...] = ("context", "shard")
    replicate: tuple[str, ...] = ("replicate",)
    in_place: bool = False

    def __post_init__(self) -> None:
        for dtype in (self.param_dtype, self.reduce_dtype):
            check_float(dtype)
        if self.max_input_buffers < 1:
            raise ValueError(f"{self.max_input_buffers} reduce-scatters pending; write 1 or more")
        if not self.memory_bandwidth > 0:
            raise ValueError(f"a memory bandwidth of {self.memory_bandwidth} bytes/s; write more than 0")

    def keeps(self, unit: Unit, ranks: int) -> int:
        """Return the number of ranks among which a unit stays sharded after forward.

        All of its ``ranks`` if it is freed, 0 if each keeps all of it.
        """
        kept = self.reshard_of.get(unit.name, self.reshard_after_forward)
        if kept is None:
            kept = unit.name != ROOT
        if isinstance(kept, bool):
            return ranks if kept else 0
        if kept < 1 or ranks % kept:
            raise ValueError(
                f"parameters of {ranks} ranks cannot be kept by groups of {kept} after forward; write a "
                f"divisor of {ranks}"
            )
        return kept if kept > 1 else 0

    def check(self, units: Sequence[Unit], ranks: int) -> None:
        """Raise ValueError for names that are not units, and for types that FSDP cannot reduce."""
        names = [ROOT, *(unit.name for unit in units if unit.name != ROOT)]
        named = [*self.reshard_of]
        for table in (self.forward_prefetch, self.backward_prefetch):
            named += [*table, *(name for listed in table.values() for name in listed)]
        for name in named:
            if name not in names:
                raise ValueError(f"unknown unit of the model {name!r}; write {one_of(names, name)}")
        for unit in units:
            self.keeps(unit, ranks)
            if len({tensor.dtype for tensor in unit.tensors}) > 1:
                dtypes = ", ".join(sorted({tensor.dtype for tensor in unit.tensors}))
                raise ValueError(
                    f"unit {unit.name} has parameters of {dtypes}; FSDP reduces one type per unit; wrap "
                    "them separately"
                )


def check_float(dtype: str | None) -> None:
    """Raise ValueError for a type that parameters cannot have."""
    allowed = [name for name in ITEMSIZE if name.removeprefix("b").startswith("float")]
    if dtype is not None and dtype not in allowed:
        raise ValueError(f"unknown type of parameters or gradients {dtype!r}; write {one_of(allowed, dtype)}")


def ahead(units: Sequence[str], count: int) -> dict[str, tuple[str, ...]]:
    """Return for each unit the ``count`` next units, to gather ahead."""
    return {name: tuple(units[place + 1 : place + 1 + count]) for place, name in enumerate(units)}
