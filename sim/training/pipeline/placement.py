"""The placement of stages on the ranks of a pipeline, and of layers in stages."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Placement:
    """``stages_a_rank`` stages on each of ``ranks`` ranks of a pipeline.

    In a loop rank r has stages r, r + ranks, ... In a ``v`` the second half goes back: it has r and
    2 ranks - 1 - r, so that the first rank also has the last stage, and the last rank two in a row.
    """

    ranks: int
    stages_a_rank: int = 1
    v: bool = False

    def __post_init__(self) -> None:
        if self.ranks < 1 or self.stages_a_rank < 1:
            raise ValueError(
                f"a pipeline of {self.ranks} ranks with {self.stages_a_rank} stages on each; write 1 or more"
            )
        if self.v and self.stages_a_rank != 2:
            raise ValueError(
                f"a V has exactly 2 stages on each rank, not {self.stages_a_rank}; write 2, or a "
                "schedule that loops"
            )

    @property
    def stages(self) -> int:
        """Number of stages."""
        return self.ranks * self.stages_a_rank

    def rank(self, stage: int) -> int:
        """Return the rank of a stage."""
        turn, place = divmod(stage, self.ranks)
        return self.ranks - 1 - place if self.v and turn else place

    def of(self, rank: int) -> tuple[int, ...]:
        """Return the stages of a rank, in forward order."""
        if self.v:
            return rank, 2 * self.ranks - 1 - rank
        return tuple(range(rank, self.stages, self.ranks))

    def receives_forward(self, stage: int) -> bool:
        """Return whether a stage's input comes from another rank."""
        return stage > 0 and self.rank(stage - 1) != self.rank(stage)

    def receives_backward(self, stage: int) -> bool:
        """Return whether the gradient of a stage's output comes from another rank."""
        return stage < self.stages - 1 and self.rank(stage + 1) != self.rank(stage)


def deal_layers(layers: int, stages: int) -> tuple[int, ...]:
    """Return the number of layers of each stage: equal, or one more in the first stages."""
    if stages < 1:
        raise ValueError(f"{stages} stages; write 1 or more")
    if layers < stages:
        raise ValueError(
            f"{layers} layers on {stages} stages leave some without a layer; write {layers} stages or fewer"
        )
    each, more = divmod(layers, stages)
    return tuple(each + (stage < more) for stage in range(stages))
