"""The ranks of a job along the dimensions of parallelism, and the members of each group.

The order from near to far is that of Megatron-LM's ``tp-cp-dp-pp``: tensor-parallel ranks are neighbours, as
they exchange most; stages of a pipeline are farthest apart.
"""

from dataclasses import dataclass, field
from math import gcd, prod

from ringside.sim.program import Group

DIMENSIONS = ("tensor", "context", "shard", "replicate", "pipeline")
"""Dimensions from near to far. Data parallelism is ``shard``, which shards parameters, and ``replicate``."""

DATA = ("context", "shard", "replicate")
"""Dimensions along which gradients are summed: their ranks see different tokens."""

FOLDS = ("expert", "expert_data")
"""Expert parallelism within data parallelism: near ranks shard experts, the others hold the same ones.

Megatron-LM and torchtitan make the same groups: a fold of the data-parallel ranks, not a dimension.
"""

UNFOLDED = {
    "expert_tensor": ("tensor",), "expert": ("context",), "expert_data": ("shard", "replicate"),
    "expert_shard": ("shard",), "expert_replicate": ("replicate",),
}  # fmt: skip
"""The place of each fold in a mesh of experts; ``expert_replicate`` is across ``replicate`` groups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mesh:
    """Number of ranks along each dimension; ranks are numbered with the nearest dimension fastest.

    ``expert_tensor`` ranks share each expert of a mixture, 0 those that share a layer. ``expert`` neighbours
    of these groups among a stage's ranks shard the experts (`FOLDS`).
    """

    tensor: int = 1
    context: int = 1
    shard: int = 1
    replicate: int = 1
    pipeline: int = 1
    expert: int = 1
    expert_tensor: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "expert_tensor", self.expert_tensor or self.tensor)
        for name in (*DIMENSIONS, "expert", "expert_tensor"):
            if self.degree(name) < 1:
                raise ValueError(f"{self.degree(name)} ranks along {name}; write 1 or more")
        if self.degree("tensor", *DATA) % (self.expert * self.expert_tensor):
            raise ValueError(
                f"{self.expert} expert-parallel times {self.expert_tensor} ranks that share an expert do not "
                f"divide {self.degree('tensor', *DATA)} ranks of a stage; write divisors"
            )

    @property
    def expert_data(self) -> int:
        """Number of ranks with the same experts."""
        return self.degree("tensor", *DATA) // (self.expert * self.expert_tensor)

    @property
    def separates_experts(self) -> bool:
        """Whether other ranks have the same experts than have the same other parameters."""
        return (self.expert, self.expert_tensor) != (1, self.tensor)

    @property
    def expert_replicate(self) -> int:
        """Number of ranks with the same experts in different ``replicate`` groups, as many as divide them."""
        return gcd(self.replicate, self.expert_data)

    @property
    def expert_shard(self) -> int:
        """Number of ranks with the same experts in one such group."""
        return self.expert_data // self.expert_replicate

    def degree(self, *dimensions: str) -> int:
        """Return the number of ranks along these dimensions together."""
        return prod(getattr(self, name) for name in dimensions)

    @property
    def ranks(self) -> int:
        """Number of all ranks."""
        return self.degree(*DIMENSIONS)

    def place(self, rank: int) -> dict[str, int]:
        """Return a rank's position along each dimension."""
        place = {}
        for name in DIMENSIONS:
            rank, place[name] = divmod(rank, self.degree(name))
        return place

    def rank(self, place: dict[str, int]) -> int:
        """Return the rank at a position."""
        number = 0
        for name in reversed(DIMENSIONS):
            number = number * self.degree(name) + place[name]
        return number

    def together(self, rank: int, *dimensions: str) -> tuple[int, ...]:
        """Return the ranks that differ from this one only along these dimensions, in ascending order.

        `UNFOLDED` combine with pipeline only, and with tensor if as many ranks share an expert.
        """
        if UNFOLDED.keys() & set(dimensions):
            folded = Mesh(
                tensor=self.expert_tensor, context=self.expert, shard=self.expert_shard,
                replicate=self.expert_replicate, pipeline=self.pipeline,
            )  # fmt: skip
            unfolded = [own for name in dimensions for own in UNFOLDED.get(name, (name,))]
            return folded.together(rank, *unfolded)
        own, stride = self.place(rank), 1
        base, steps = rank, [0]
        for name in DIMENSIONS:
            degree = self.degree(name)
            if name in dimensions:
                base -= own[name] * stride
                steps = [place * stride + step for place in range(degree) for step in steps]
            stride *= degree
        return tuple(base + step for step in steps)


@dataclass(slots=True)
class Communicators:
    """The groups of a mesh, each made once; ``library`` and ``workers`` are `ringside.sim.program.Group`'s.

    Another ``purpose`` makes a second communicator of the same ranks, with a queue of its own.
    """

    mesh: Mesh
    library: str = "nccl"
    workers: int = 1
    _made: dict[tuple[str, tuple[int, ...]], Group] = field(default_factory=dict)
    _along: dict[tuple[int, tuple[str, ...], str], Group] = field(default_factory=dict)

    def along(self, rank: int, *dimensions: str, purpose: str = "") -> Group:
        """Return a rank's group along some dimensions; a ``purpose`` makes it a second one."""
        key = rank, dimensions, purpose
        if key not in self._along:
            ranks = self.mesh.together(rank, *dimensions)
            self._along[key] = self.of(ranks, purpose or " ".join(dimensions))
        return self._along[key]

    def of(self, ranks: tuple[int, ...], purpose: str) -> Group:
        """Return the group of these ranks for a purpose."""
        key = purpose, ranks
        if key not in self._made:
            self._made[key] = Group(f"{purpose} {ranks[0]}", ranks, self.library, self.workers)
        return self._made[key]
