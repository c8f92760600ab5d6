"""FSDP2's arguments: those of ``fully_shard`` and of its modules' setters."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from ringside.sim.collective import ITEMSIZE
from ringside.sim.training.fsdp.units import ROOT, Unit
from ringside.topologies.names import one_of

Reshard = bool | int | None
"""After forward: free whole parameters, keep them, or keep them sharded among this many ranks.

None frees them, except the root's.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class FullyShardPolicy:
    """How parameters are sharded, gathered and reduced.

    ``reshard_of`` gives the value by unit name where it differs from ``reshard_after_forward``.
    ``forward_prefetch`` and ``backward_prefetch`` name the units to gather as soon as a unit's own parameters
    are requested; without, backward gathers one ahead. Each backward is reduced, or with ``no_sync``
    (``set_requires_gradient_sync(False)``) only the last; with ``reshard_after_backward`` False parameters
    stay whole between micro-batches. ``separate_reduce_scatter`` gives reduce-scatters a communicator of
    their own, and ``max_input_buffers`` of them may be pending before backward waits. Parameters are sharded
    along the mesh's ``shard`` dimensions, and their shards are summed along ``replicate``.
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
                    f"unit {unit.name} has parameters of {dtypes}; FSDP reduces one type a unit, so wrap "
                    "them apart"
                )


def check_float(dtype: str | None) -> None:
    """Raise ValueError for a type that parameters cannot have."""
    allowed = [name for name in ITEMSIZE if name.removeprefix("b").startswith("float")]
    if dtype is not None and dtype not in allowed:
        raise ValueError(f"unknown type of parameters or gradients {dtype!r}; write {one_of(allowed, dtype)}")


def ahead(units: Sequence[str], count: int) -> dict[str, tuple[str, ...]]:
    """Return, for each unit, the ``count`` units after it as a list to gather ahead."""
    return {name: tuple(units[place + 1 : place + 1 + count]) for place, name in enumerate(units)}
