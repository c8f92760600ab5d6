"""What is asked of FSDP2: the arguments of ``fully_shard`` and what its modules are told afterwards."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf

from ringside.sim.collective import ITEMSIZE
from ringside.sim.training.fsdp.units import ROOT, Unit
from ringside.topologies.words import one_of

Reshard = bool | int | None
"""After forward: give whole parameters back, keep them, or keep them dealt out among so few ranks.

None gives them back, those of the root excepted.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class FullyShardPolicy:
    """How parameters are dealt out, gathered and reduced.

    ``reshard_of`` says it for units by name where they differ from ``reshard_after_forward``.
    ``forward_prefetch`` and ``backward_prefetch`` name units that are gathered as soon as one has what it
    needs itself; without, backward gathers one ahead. Each backward is reduced, or with ``no_sync``
    (``set_requires_gradient_sync(False)``) the last alone; with ``reshard_after_backward`` False parameters
    stay whole between micro-batches. ``separate_reduce_scatter`` gives reduce-scatters a communicator of
    their own, and ``max_input_buffers`` of them may be pending before backward waits. Parameters are dealt
    out along ``shard`` dimensions of the mesh, and their shards are summed along ``replicate``.
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
        """Of a unit that has passed forward: how many ranks keep it dealt out among themselves.

        All of its ``ranks`` where it is given back, 0 where each keeps all of it.
        """
        asked = self.reshard_of.get(unit.name, self.reshard_after_forward)
        if asked is None:
            asked = unit.name != ROOT
        if isinstance(asked, bool):
            return ranks if asked else 0
        if asked < 1 or ranks % asked:
            raise ValueError(
                f"parameters of {ranks} ranks cannot be kept by groups of {asked} after forward; write a "
                f"divisor of {ranks}"
            )
        return asked if asked > 1 else 0

    def check(self, units: Sequence[Unit], ranks: int) -> None:
        """Refuse what these units do not have, or what their types forbid."""
        names = [ROOT, *(unit.name for unit in units if unit.name != ROOT)]
        asked = [*self.reshard_of]
        for table in (self.forward_prefetch, self.backward_prefetch):
            asked += [*table, *(name for listed in table.values() for name in listed)]
        for name in asked:
            if name not in names:
                raise ValueError(f"{name!r} is no unit of the model; write {one_of(names, name)}")
        for unit in units:
            self.keeps(unit, ranks)
            if len({tensor.dtype for tensor in unit.tensors}) > 1:
                found = ", ".join(sorted({tensor.dtype for tensor in unit.tensors}))
                raise ValueError(
                    f"unit {unit.name} has parameters of {found}; FSDP reduces one type a unit, so wrap "
                    "them apart"
                )


def check_float(dtype: str | None) -> None:
    """Refuse a type in which no parameters are."""
    allowed = [name for name in ITEMSIZE if name.removeprefix("b").startswith("float")]
    if dtype is not None and dtype not in allowed:
        raise ValueError(f"{dtype!r} is no type of parameters or gradients; write {one_of(allowed, dtype)}")


def ahead(units: Sequence[str], count: int) -> dict[str, tuple[str, ...]]:
    """For each unit the ``count`` that come after it, as lists of what is to be gathered ahead."""
    return {name: tuple(units[place + 1 : place + 1 + count]) for place, name in enumerate(units)}
