"""A training job: a model as a layout cuts it over a mesh, a rank's part of it, and a step's costs."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import accumulate, groupby, pairwise

from ringside.sim.training.ddp.job import Costs, DataParallel, expected_maximum
from ringside.sim.training.layers import Kernels, Pass, RankLayer
from ringside.sim.training.layout import Layout, LayoutError
from ringside.sim.training.memory.optimizers import Optimizer
from ringside.sim.training.memory.software import Software
from ringside.sim.training.mesh import Mesh
from ringside.sim.training.pipeline.actions import Placement
from ringside.sim.training.strategies import COPIES, SYNCING
from ringside.sim.workload.workload import Tensor, Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class RankModel:
    """``layers`` in forward order, each as one rank has it, for one micro-batch.

    ``between_nbytes`` pass from layer to layer, one entry for each but the last; where these are a rank's
    part alone, ``received`` makes the whole of it. ``tokens`` is the number per sample, if it has tokens;
    ``model_flops`` are forward and backward of one sample on all ranks together, ``recomputed_flops`` those
    of checkpointing's recomputation, None if unknown. ``output_nbytes`` are a micro-batch's logits, of a
    model that returns its loss beside them. ``tied`` is the embedding if the output product shares it, or a
    layer that predicts a further token looks tokens up. ``software`` is what decides its buffers, None if
    that is unknown. ``letters`` are the layers' in Megatron-LM's texts of pipelines, empty if they have none.
    ``splits`` is `FlatPolicy`'s.
    """

    name: str
    sample: str
    layers: tuple[RankLayer, ...]
    between_nbytes: tuple[int, ...]
    num_parameters: int
    received: Pass = ()
    tokens: int | None = None
    model_flops: float | None = None
    recomputed_flops: float = 0.0
    buffers: tuple[Tensor, ...] = ()
    frozen_nbytes: int = 0
    output_nbytes: int = 0
    tied: Tensor | None = None
    software: Software | None = None
    letters: str = ""
    splits: bool = True

    def cut(self, stages: int, parts: Sequence[str] = ()) -> tuple[range, ...]:
        """Return the layers of each stage, by the letters of ``parts`` where there are any.

        Else, if the repeated layers divide by the stages, each stage has the same number of them, plus
        the layers before the first and after the last, such as an embedding and the output product;
        otherwise the longest stage is as short as possible.
        """
        if parts:
            return self._as_written(parts)
        alone = [number for number, letter in enumerate(self.letters) if letter == "t"] or [
            number for number, layer in enumerate(self.layers) if layer.wrapped
        ]
        if len(self.layers) < stages:
            raise LayoutError(
                f"{len(self.layers)} layers of {self.name} on {stages} stages leave a stage without layers; "
                f"write `pp` and `virtual` whose product is {len(self.layers)} at the most"
            )
        if alone and len(alone) % stages == 0:
            each = len(alone) // stages
            firsts = [0, *alone[each::each], len(self.layers)]
        else:
            firsts = _shortest(tuple(seconds_of(layer) for layer in self.layers), stages)
        return tuple(range(first, stop) for first, stop in pairwise(firsts))

    def _as_written(self, parts: Sequence[str]) -> tuple[range, ...]:
        """Return the layers of each stage by letters; raise LayoutError for another number of layers."""
        written = "".join(parts)
        if written != self.letters:
            own, needed = (Counter(letters) for letters in (written, self.letters))
            raise LayoutError(
                f"`pp_layout` has {own['t']} t and {own['m']} m; write {needed['t']} t and {needed['m']} m, "
                f"as many as {self.name} has layers and further predictions"
            )
        ends = list(accumulate(map(len, parts), initial=0))
        return tuple(range(first, stop) for first, stop in pairwise(ends))


def workload_on_rank(workload: Workload, *, units: bool, model_flops: float | None = None) -> RankModel:
    """Convert a workload, which tensor parallelism does not cut, to a rank's model.

    With ``units`` the layers of one block, by their names, make one layer, as FSDP wraps them. The tensor
    between layers is the later one's kept activation, its input. Logits are the activations kept by layers
    after the last parameters.
    """
    forward = workload.layers[::-1]
    loss = 1 + max((number for number, layer in enumerate(forward) if layer.gradients), default=len(forward))
    runs = [[layer] for layer in forward]
    names = [layer.name for layer in forward]
    if units:
        runs = [list(run) for _, run in groupby(forward, key=lambda layer: _block(layer.name) or layer.name)]
        names = [_block(run[0].name) or run[0].name for run in runs]
    layers = tuple(
        RankLayer(
            name=name,
            # backward finishes the gradients of the last parameters first
            parameters=tuple(
                workload.parameters[index] for layer in run for index in reversed(layer.gradients)
            ),
            forward=(Kernels(sum(layer.forward_s for layer in run)),),
            backward=(Kernels(sum(layer.backward_s for layer in run)),),
            # half of it is for the input's gradient, if there are both
            input_gradient=(Kernels(sum(layer.backward_s for layer in run) / 2),),
            weight_gradient=(Kernels(sum(layer.backward_s for layer in run) / 2),),
            kept=(("activations", sum(layer.activation_nbytes for layer in run)),),
            wrapped=not units or _block(run[0].name) is not None,
        )
        for name, run in zip(names, runs, strict=True)
    )
    return RankModel(
        name=workload.name, sample=workload.sample, layers=layers,
        between_nbytes=tuple(run[0].activation_nbytes for run in runs[1:]),
        num_parameters=workload.num_parameters, buffers=workload.buffers,
        frozen_nbytes=workload.frozen_nbytes, model_flops=model_flops,
        output_nbytes=sum(layer.activation_nbytes for layer in forward[loss:]),
    )  # fmt: skip


def seconds_of(layer: RankLayer) -> float:
    """Return a micro-batch's compute seconds in a layer, forward and backward."""
    passes = (*layer.forward, *layer.recomputed, *layer.backward)
    return sum(part.seconds for part in passes if isinstance(part, Kernels))


def _block(name: str) -> str | None:
    """Return ``encoder.layer.3`` of ``encoder.layer.3.output.dense``; None for a name without a number.

    Torchvision's ``encoder_layer_3`` counts too.
    """
    match = re.match(r"(.*?(?:\.|layer_)\d+)(?:\.|$)", name)
    return match[1] if match else None


@lru_cache(maxsize=1024)
def _shortest(seconds: tuple[float, ...], stages: int) -> list[int]:
    """Return the begin of each stage, and the end; minimise the longest stage, and leave none empty."""
    low, high = max(seconds), sum(seconds)
    firsts = _filled(seconds, stages, high)
    for _ in range(60):
        middle = (low + high) / 2
        begins = _filled(seconds, stages, middle)
        if begins is None:
            low = middle
        else:
            firsts, high = begins, middle
    assert firsts is not None
    return firsts


def _filled(seconds: Sequence[float], stages: int, most: float) -> list[int] | None:
    """Fill stages one after another up to ``most`` seconds; return None if layers are left."""
    firsts, total = [0], 0.0
    for number, own in enumerate(seconds):
        left = len(seconds) - number
        full = total + own > most or left == stages - len(firsts)
        if number > firsts[-1] and full:
            firsts.append(number)
            total = 0.0
        total += own
    enough = len(firsts) == stages and total <= most * (1 + 1e-12)
    return [*firsts, len(seconds)] if enough else None


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

    def __post_init__(self) -> None:
        if self.layout.wrap_ends and self.model.tied is not None and not self.copies_embedding:
            raise LayoutError(
                f"the embedding of {self.model.name} is also used after the layers, so that FSDP shards it "
                "with the root; leave `wrap_ends` out"
            )

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
        """Whether the last stage has a copy of the embedding: it is tied, and the first stage elsewhere."""
        where = self.placement
        return self.model.tied is not None and where.rank(where.stages - 1) != where.rank(0)

    @property
    def in_torchs_pipeline(self) -> bool:
        """Whether stages pass micro-batches in a schedule of torch.distributed.pipelining."""
        return self.layout.pp > 1 and self.layout.strategy in SYNCING

    @property
    def roles(self) -> tuple[int, ...]:
        """Each rank's representative in the simulation: the first of its stage."""
        stage = self.mesh.ranks // self.mesh.pipeline
        return tuple(rank // stage * stage for rank in range(self.mesh.ranks))

    def layers(self, stage: int) -> tuple[RankLayer, ...]:
        """Return the layers of a stage, at the pace of the slowest rank."""
        own = self.model.cut(self.layout.stages, self.layout.parts)[stage]
        layers = [at_pace(self.model.layers[number], self.pace * self.factor) for number in own]
        before, after = self.receives(stage)
        if before:
            layers[0] = replace(layers[0], forward=(*before, *layers[0].forward))
        if after:
            layers[-1] = replace(
                layers[-1], backward=(*after, *layers[-1].backward),
                input_gradient=(*after, *layers[-1].input_gradient),
            )  # fmt: skip
        if stage == self.layout.stages - 1 and self.model.tied and self.copies_embedding:
            layers[-1] = replace(layers[-1], parameters=(*layers[-1].parameters, self.model.tied))
        if self.in_torchs_pipeline and layers and stage == self.layout.stages - 1:
            # a stage keeps its output until its backward, the logits too
            logits = "logits until backward", self.model.output_nbytes // self.layout.tp
            layers[-1] = replace(layers[-1], kept=(*layers[-1].kept, logits))
        # parts of tensors are no input or gradient yet
        among = self.in_torchs_pipeline and layers and not self.model.received
        if among and stage < self.layout.stages - 1:
            # its output's gradient is among the tensors for messages
            own_nbytes = layers[-1].backward_nbytes - self.model.between_nbytes[own[-1]]
            layers[-1] = replace(layers[-1], backward_nbytes=max(own_nbytes, 0))
        if among and stage:
            # its first layer's input is among the tensors for messages
            received = min(layers[0].kept_nbytes, self.model.between_nbytes[own[0] - 1])
            layers[0] = replace(layers[0], kept=(*layers[0].kept, ("input among messages", -received)))
        return tuple(layers)

    def receives(self, stage: int) -> tuple[Pass, Pass]:
        """Return what makes whole tensors of the parts that a stage gets, before its forward and backward."""
        inputs, gradients = self.placement.gets(stage)
        return self.model.received if inputs else (), self.model.received if gradients else ()

    def own_nbytes(self, layers: Iterable[RankLayer]) -> int:
        """Return the bytes of some layers' parameters whose optimizer state a rank holds."""
        listed = list(layers)
        experts = sum(layer.expert_nbytes for layer in listed)
        dealt = self.mesh.expert_shard if self.mesh.separates_experts and self.dealt else self.holders
        return (sum(layer.nbytes for layer in listed) - experts) // self.holders + experts // dealt

    @property
    def between_nbytes(self) -> tuple[int, ...]:
        """Return the bytes that a micro-batch sends from each stage to the next."""
        _, *later = self.model.cut(self.layout.stages, self.layout.parts)
        return tuple(self.model.between_nbytes[own.start - 1] for own in later)


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
