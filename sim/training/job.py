"""A training job: a model as a rank has it, a layout over a mesh, and a step's costs beside its layers."""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from ringside.sim.training.ddp.job import Costs, DataParallel, expected_maximum
from ringside.sim.training.layers import Kernels, Pass, RankLayer
from ringside.sim.training.layout import COPIES, Layout
from ringside.sim.training.memory import Optimizer
from ringside.sim.training.mesh import Mesh
from ringside.sim.training.pipeline.placement import Placement
from ringside.sim.training.rank_model import RankModel


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelJob:
    """Each step takes ``batch`` samples per replica, passed in the layout's micro-batches.

    ``library`` and ``workers`` are those of `ringside.sim.program.Group`. ``ddp`` only matters under the
    strategy of that name. Products are kept in ``precision``, None for the parameters' own type. Layers take
    ``factor`` times the model's times. The slowdown of single ranks in ``costs`` does not apply: all stages
    have the pace of the slowest rank.
    """

    model: RankModel
    layout: Layout
    mesh: Mesh
    batch: int
    optimizer: Optimizer
    precision: str | None = None
    ddp: DataParallel = field(default_factory=DataParallel)
    costs: Costs = field(default_factory=Costs)
    factor: float = 1.0
    library: str = "nccl"
    workers: int = 1

    @property
    def micro_batches(self) -> int:
        """Number of micro-batches in a step."""
        return self.layout.micro_batches(self.batch)

    @property
    def samples(self) -> int:
        """Samples of all replicas in a step."""
        return self.batch * self.mesh.degree("shard", "replicate")

    @property
    def gathered(self) -> str | None:
        """The type in which FSDP gathers parameters; None for their own."""
        return self.layout.param_dtype or self.precision

    @property
    def dealt(self) -> tuple[str, ...]:
        """The dimensions along which parameters are sharded."""
        return () if self.layout.strategy in COPIES else ("context", "shard")

    @property
    def holders(self) -> int:
        """Number of ranks that hold one copy of the parameters together."""
        return self.mesh.degree(*self.dealt)

    @property
    def pace(self) -> float:
        """The factor by which the slowest rank is slower than the mean."""
        return 1 + self.costs.spread * expected_maximum(self.mesh.ranks)

    @property
    def placement(self) -> Placement:
        """The ranks of the pipeline's stages."""
        return self.layout.placement

    @property
    def copies_embedding(self) -> bool:
        """Whether the last stage has a copy of the embedding, as it is tied and the first stage elsewhere."""
        where = self.placement
        return self.model.tied is not None and where.rank(where.stages - 1) != where.rank(0)

    @property
    def roles(self) -> tuple[int, ...]:
        """Each rank's representative in the simulation: the first of its stage."""
        stage = self.mesh.ranks // self.mesh.pipeline
        return tuple(rank // stage * stage for rank in range(self.mesh.ranks))

    def layers(self, stage: int) -> tuple[RankLayer, ...]:
        """Return the layers of a stage, at the pace of the slowest rank."""
        own = self.model.cut(self.layout.stages)[stage]
        layers = [at_pace(self.model.layers[number], self.pace * self.factor) for number in own]
        if stage == self.layout.stages - 1 and self.model.tied and self.copies_embedding:
            layers[-1] = replace(layers[-1], parameters=(*layers[-1].parameters, self.model.tied))
        return tuple(layers)

    def own_nbytes(self, layers: Iterable[RankLayer]) -> int:
        """Return the bytes of some layers' parameters whose optimizer state a rank holds."""
        listed = list(layers)
        experts = sum(layer.expert_nbytes for layer in listed)
        dealt = self.mesh.expert_data if self.mesh.expert > 1 and self.dealt else self.holders
        return (sum(layer.nbytes for layer in listed) - experts) // self.holders + experts // dealt

    @property
    def between_nbytes(self) -> tuple[int, ...]:
        """Return the bytes that a micro-batch sends from each stage to the next."""
        return tuple(self.model.between_nbytes[own[0] - 1] for own in self.model.cut(self.layout.stages)[1:])


def at_pace(layer: RankLayer, factor: float) -> RankLayer:
    """Return the layer with all of its compute times multiplied by ``factor``."""

    def paced(parts: Pass) -> Pass:
        return tuple(Kernels(part.seconds * factor) if isinstance(part, Kernels) else part for part in parts)

    return replace(
        layer,
        forward=paced(layer.forward),
        backward=paced(layer.backward),
        input_gradient=paced(layer.input_gradient),
        weight_gradient=paced(layer.weight_gradient),
        recomputed=paced(layer.recomputed),
    )
