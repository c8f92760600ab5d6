"""A mesh of ranks with a group along each dimension, as torch.distributed.device_mesh makes it."""

from math import prod
from typing import Any, Protocol


class Maker(Protocol):
    """Whoever knows the ranks of a job and makes groups of them."""

    def get_rank(self) -> int:
        """Which rank asks."""
        ...

    def get_world_size(self) -> int:
        """How many ranks there are."""
        ...

    @property
    def WORLD(self) -> Any:  # noqa: N802
        """The group of all."""
        ...

    def new_group(self, ranks: list[int], *, group_desc: str | None) -> Any:
        """A group of some ranks."""
        ...


class DeviceMesh:
    """All ranks of a job in row-major order; every rank makes every group, dimension by dimension.

    A dimension that has all ranks shares the group of all.
    """

    def __init__(self, dist: Maker, shape: tuple[int, ...], names: tuple[str, ...]) -> None:
        ranks = dist.get_world_size()
        if prod(shape) != ranks or any(length < 1 for length in shape):
            raise ValueError(f"a mesh of {shape} on {ranks} ranks; write lengths whose product is {ranks}")
        if names and (len(names) != len(shape) or len(set(names)) < len(names)):
            raise ValueError(f"names {names} for a mesh of {shape}; write one name a dimension, each once")
        self.shape = shape
        self.mesh_dim_names = names
        self._rank = dist.get_rank()
        self._groups: list[Any] = []
        for dimension, length in enumerate(shape):
            if length == ranks:
                self._groups.append(dist.WORLD)
                continue
            stride = prod(shape[dimension + 1 :])
            firsts = [rank for rank in range(ranks) if rank // stride % length == 0]
            own = [
                dist.new_group(
                    [first + stride * i for i in range(length)],
                    group_desc=f"{names[dimension]} {first}" if names else None,
                )
                for first in firsts
            ]
            mine = self._rank - stride * self._place(dimension)
            self._groups.append(own[firsts.index(mine)])

    def _place(self, dimension: int) -> int:
        return self._rank // prod(self.shape[dimension + 1 :]) % self.shape[dimension]

    def _dimension(self, dimension: int | str | None) -> int:
        if dimension is None and len(self.shape) == 1:
            return 0
        if isinstance(dimension, str) and dimension in self.mesh_dim_names:
            return self.mesh_dim_names.index(dimension)
        if isinstance(dimension, int) and 0 <= dimension < len(self.shape):
            return dimension
        known: tuple[object, ...] = self.mesh_dim_names or tuple(range(len(self.shape)))
        raise ValueError(f"{dimension!r} is no dimension of the mesh; write one of {known}")

    def get_group(self, mesh_dim: int | str | None = None) -> Any:
        """The rank's group along a dimension."""
        return self._groups[self._dimension(mesh_dim)]

    def get_local_rank(self, mesh_dim: int | str | None = None) -> int:
        """The rank's place along a dimension."""
        return self._place(self._dimension(mesh_dim))

    def get_coordinate(self) -> list[int]:
        """The rank's place along every dimension."""
        return [self._place(dimension) for dimension in range(len(self.shape))]

    def size(self, mesh_dim: int | str | None = None) -> int:
        """Ranks along a dimension, or of the whole mesh."""
        return prod(self.shape) if mesh_dim is None else self.shape[self._dimension(mesh_dim)]
