"""The groups of a job during recording, and meshes of ranks, as torch.distributed.device_mesh makes them.

Groups that ranks create with equal arguments are one; a mesh has a group along each dimension.
"""

from copy import copy
from dataclasses import dataclass, field
from itertools import product
from math import prod
from operator import mul
from typing import Any, Protocol

from ringside.sim.collective import Collective
from ringside.sim.libraries.rules import RULES
from ringside.sim.program.operations import Call, Group, Operation


@dataclass(slots=True)
class Groups:
    """The groups of one job; ranks that pass the same name and ranks share a group."""

    ranks: int
    library: str
    world: Group = field(init=False)
    recorded: list[Operation] = field(default_factory=list)
    """The list of the rank that was recorded last."""
    _made: dict[tuple[str, tuple[int, ...]], Group] = field(default_factory=dict)

    _calls: dict[tuple[Group, str, str, int, int, str], Call] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.library not in RULES:
            raise ValueError(f"{self.library!r} cannot carry out programs; write {' or '.join(RULES)}")
        self.world = self.get("world", tuple(range(self.ranks)))

    def get(self, name: str, ranks: tuple[int, ...]) -> Group:
        """Return the group of this name and these ranks."""
        key = (name, ranks)
        if key not in self._made:
            self._made[key] = Group(name, ranks, self.library, RULES[self.library].workers)
        return self._made[key]

    def pair(self, group: Group, one: int, other: int) -> Group:
        """Return the communicator of two ranks that NCCL makes for messages outside batches."""
        low, high = min(one, other), max(one, other)
        return self.get(f"pair {low}:{high} of {group.name}", (low, high))

    def call(self, group: Group, name: str, kind: str, nbytes: int, root: int, redop: str) -> Call:
        """Return a collective with ``nbytes`` per rank; equal arguments give the same object."""
        key = (group, name, kind, nbytes, root, redop)
        if key not in self._calls:
            parts = len(group.ranks) if kind in ("all_gather", "gather", "scatter") else 1
            self._calls[key] = Call(
                group, name, Collective(kind, len(group.ranks), nbytes * parts, root=root, redop=redop)
            )
        return self._calls[key]


class Maker(Protocol):
    """Maker of groups for the ranks of a job."""

    def get_rank(self) -> int:
        """Return the calling rank."""
        ...

    def get_world_size(self) -> int:
        """Return the number of ranks."""
        ...

    @property
    def WORLD(self) -> Any:  # noqa: N802
        """The group of all ranks."""
        ...

    def new_group(self, ranks: list[int], *, group_desc: str | None) -> Any:
        """Return a group of some ranks."""
        ...


class DeviceMesh:
    """All ranks of a job in row-major order; every rank makes every group, dimension by dimension.

    A dimension that has all ranks shares the group of all. ``mesh["dp", "tp"]`` is the mesh along some
    dimensions, with the existing groups; its ``_flatten()`` merges them into one dimension.
    """

    def __init__(self, dist: Maker, shape: tuple[int, ...], names: tuple[str, ...]) -> None:
        ranks = dist.get_world_size()
        if prod(shape) != ranks or any(length < 1 for length in shape):
            raise ValueError(f"a mesh of {shape} on {ranks} ranks; write lengths whose product is {ranks}")
        if names and (len(names) != len(shape) or len(set(names)) < len(names)):
            raise ValueError(f"names {names} for a mesh of {shape}; write one name per dimension, each once")
        self.shape = shape
        self.mesh_dim_names = names
        self._dist = dist
        self._strides = tuple(prod(shape[dimension + 1 :]) for dimension in range(len(shape)))
        self._groups: list[Any] = []
        for dimension in range(len(shape)):
            name = names[dimension] if names else ""
            self._groups.append(self._made((dimension,), name))

    def __getitem__(self, names: str | tuple[str, ...]) -> "DeviceMesh":
        """Return the mesh along some of its dimensions, by name."""
        chosen = [self._dimension(name) for name in ((names,) if isinstance(names, str) else names)]
        part = copy(self)
        part.shape = tuple(self.shape[one] for one in chosen)
        part.mesh_dim_names = tuple(self.mesh_dim_names[one] for one in chosen)
        part._strides = tuple(self._strides[one] for one in chosen)
        part._groups = [self._groups[one] for one in chosen]
        return part

    def _flatten(self, mesh_dim_name: str | None = None) -> "DeviceMesh":
        """Return the mesh with its dimensions merged into one; every rank makes its groups."""
        flat = copy(self)
        name = mesh_dim_name or "_".join(self.mesh_dim_names)
        flat._groups = [self._made(tuple(range(len(self.shape))), name)]
        flat.shape, flat.mesh_dim_names = (prod(self.shape),), (name,)
        flat._strides = (self._strides[-1],)
        return flat

    def _made(self, dimensions: tuple[int, ...], name: str) -> Any:
        """Make all groups along some dimensions and return the rank's own."""
        lengths = [range(self.shape[one]) for one in dimensions]
        strides = [self._strides[one] for one in dimensions]
        offsets = [sum(map(mul, place, strides)) for place in product(*lengths)]
        ranks = self._dist.get_world_size()
        if len(offsets) == ranks:
            return self._dist.WORLD
        firsts = [rank for rank in range(ranks) if not any(self._place_of(rank, one) for one in dimensions)]
        made = [
            self._dist.new_group(
                [first + offset for offset in offsets], group_desc=f"{name} {first}" if name else None
            )
            for first in firsts
        ]
        mine = self._dist.get_rank() - sum(self._place(one) * self._strides[one] for one in dimensions)
        return made[firsts.index(mine)]

    def _place(self, dimension: int) -> int:
        return self._place_of(self._dist.get_rank(), dimension)

    def _place_of(self, rank: int, dimension: int) -> int:
        return rank // self._strides[dimension] % self.shape[dimension]

    def _dimension(self, dimension: int | str | None) -> int:
        if dimension is None and len(self.shape) == 1:
            return 0
        if isinstance(dimension, str) and dimension in self.mesh_dim_names:
            return self.mesh_dim_names.index(dimension)
        if isinstance(dimension, int) and 0 <= dimension < len(self.shape):
            return dimension
        known: tuple[object, ...] = self.mesh_dim_names or tuple(range(len(self.shape)))
        raise ValueError(f"{dimension!r} is not a dimension of the mesh; write one of {known}")

    def get_group(self, mesh_dim: int | str | None = None) -> Any:
        """Return the rank's group along a dimension."""
        return self._groups[self._dimension(mesh_dim)]

    def get_local_rank(self, mesh_dim: int | str | None = None) -> int:
        """Return the rank's place along a dimension."""
        return self._place(self._dimension(mesh_dim))

    def get_coordinate(self) -> list[int]:
        """Return the rank's place along every dimension."""
        return [self._place(dimension) for dimension in range(len(self.shape))]

    def size(self, mesh_dim: int | str | None = None) -> int:
        """Return the number of ranks along a dimension, or of the whole mesh."""
        return prod(self.shape) if mesh_dim is None else self.shape[self._dimension(mesh_dim)]
