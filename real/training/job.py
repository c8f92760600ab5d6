"""The job of a real training, which the launcher hands to every rank as a JSON file."""

from dataclasses import dataclass, field, fields
from typing import ClassVar, Literal

from pydantic import ConfigDict

from ringside.real.collective.job import check_repeats, check_timeout
from ringside.real.launch.follow import RankJob
from ringside.sim.training.mesh import DATA, Mesh
from ringside.sim.training.pipeline.actions import Placement, deal_layers
from ringside.sim.training.pipeline.schedules import placement, tables
from ringside.sim.training.tensor.context import ContextParallel
from ringside.topologies.names import one_of

SCHEDULES = {
    "gpipe": "GPipe",
    "1f1b": "1F1B",
    "interleaved1f1b": "Interleaved1F1B",
    "looped_bfs": "LoopedBFS",
    "zb-h1": "InterleavedZeroBubble",
    "interleaved_zero_bubble": "InterleavedZeroBubble",
    "zbv": "ZBVZeroBubble",
    "dualpipev": "DualPipeV",
}
"""Pipeline schedules, and torch.distributed.pipelining's names of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sleeping:
    """Sleeping layers: each has two matrices, ``inner x hidden`` and its transpose.

    A micro-batch has ``rows`` rows of ``hidden`` elements. Forward sleeps ``forward_s``, backward half of
    ``backward_s`` for the gradients of inputs and half for those of weights.
    """

    kind: Literal["sleeping"] = "sleeping"
    layers: int = 8
    hidden: int = 512
    inner: int = 512
    rows: int = 8
    forward_s: float = 0.02
    backward_s: float = 0.04

    @property
    def nbytes(self) -> int:
        """Bytes of its parameters and of a micro-batch's activations between layers."""
        return 4 * self.layers * self.hidden * (2 * self.inner + self.rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallDecoder:
    """A small Llama-like decoder, which computes; a micro-batch has ``batch`` sequences."""

    kind: Literal["decoder"] = "decoder"
    layers: int = 2
    hidden: int = 64
    inner: int = 128
    heads: int = 4
    sequence: int = 16
    vocabulary: int = 128
    batch: int = 2
    key_value_heads: int = 0

    @property
    def few_heads(self) -> int:
        """Heads of keys and values: ``key_value_heads``, or as many as of queries."""
        return self.key_value_heads or self.heads

    @property
    def nbytes(self) -> int:
        """Bytes of its parameters and of a micro-batch's activations between layers."""
        each = 4 * self.hidden + 3 * self.inner + self.batch * self.sequence
        return 4 * self.hidden * (self.layers * each + 2 * self.vocabulary)


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallGpt(SmallDecoder):
    """The same of GPT's kind: layer norms, biases, GELU, learned positions."""

    kind: Literal["gpt"] = "gpt"  # type: ignore[assignment]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertLayers:
    """Layers of ``experts`` of two matrices, ``hidden x inner`` and its transpose, to which tokens are sent.

    A rank has ``rows`` tokens of ``hidden`` elements, each routed to ``active`` experts: round robin, except
    a share ``skew`` of the tokens, which go to the first ones. Half of ``forward_s`` is slept before tokens
    are sent, for attention, half by experts with the mean load; those with more sleep proportionally longer.
    ``backward_s`` likewise.
    """

    kind: Literal["experts"] = "experts"
    layers: int = 2
    hidden: int = 512
    inner: int = 16
    rows: int = 256
    experts: int = 8
    active: int = 2
    skew: float = 0.0
    forward_s: float = 0.08
    backward_s: float = 0.16

    def __post_init__(self) -> None:
        if not 0 <= self.skew <= 1:
            raise ValueError(f"a skew of {self.skew:g}; write a share of the tokens, 0 to 1")
        if self.active > self.experts:
            raise ValueError(
                f"{self.active} of {self.experts} experts for a token; write {self.experts} or less"
            )

    @property
    def nbytes(self) -> int:
        """Bytes of its parameters and of a micro-batch's tokens."""
        return 4 * self.layers * self.hidden * (self.experts * (2 * self.inner + 1) + self.active * self.rows)

    def choices(self, rank: int) -> list[list[int]]:
        """Return the experts of each of a rank's tokens."""
        skewed = round(self.rows * self.skew)
        return [
            [(first + one) % self.experts for one in range(self.active)]
            for first in (0 if token < skewed else rank + token * self.active for token in range(self.rows))
        ]

    def counts(self, rank: int) -> list[int]:
        """Return the number of a rank's tokens per expert."""
        counts = [0] * self.experts
        for token in self.choices(rank):
            for one in token:
                counts[one] += 1
        return counts

    def load(self, rank: int, ranks: int) -> float:
        """Return the load of a rank's experts over the mean."""
        each = self.experts // ranks
        own = slice(rank * each, (rank + 1) * each)
        return sum(sum(self.counts(sender)[own]) for sender in range(ranks)) / (self.rows * self.active)


Model = Sleeping | SmallDecoder | SmallGpt | ExpertLayers

COPIES = ("ddp", "zero_redundancy")
"""DistributedDataParallel on ``replicate`` ranks, without and with ZeroRedundancyOptimizer."""

STRATEGIES = ("fsdp", *COPIES)
"""FSDP2, or one of those that copy the parameters."""

DTYPES = ("float32", "bfloat16", "float16")
"""The types in which FSDP gathers parameters and sums gradients."""

MODELS: dict[str, type[Sleeping] | type[SmallDecoder] | type[SmallGpt] | type[ExpertLayers]] = {
    "sleeping": Sleeping,
    "decoder": SmallDecoder,
    "gpt": SmallGpt,
    "experts": ExpertLayers,
}
"""The models to train, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingJob(RankJob):
    """``iterations`` steps of a model on a mesh of ranks, after ``warmup`` untimed ones.

    FSDP2 shards parameters along ``shard`` and copies them along ``replicate``, unless the ``strategy`` is
    another of `STRATEGIES`; where ``pipeline`` is above 1 a ``schedule`` passes micro-batches through
    ``virtual`` stages per rank. ``context`` ranks share the tokens of each sequence, or a sleeping layer's
    rows, by ``context_method``; FSDP shards along them too. Otherwise ``micro_batches`` are accumulated, and
    their gradients reduced in every backward, or with ``no_sync`` in the last only. ``reshard`` is FSDP2's
    ``reshard_after_forward`` of layers. ``expert`` neighbours among ``replicate`` ranks shard `ExpertLayers`.
    ``realtime`` as `ringside.real.ddp.job.DdpJob`'s. Without ``moves`` process groups are torch's fake
    ones: communication has no effect and takes no time.
    """

    __pydantic_config__: ClassVar = ConfigDict(extra="forbid", allow_inf_nan=False)
    worker: ClassVar[str] = "ringside.real.training.worker"

    model: Model = field(default_factory=Sleeping)
    strategy: str = "fsdp"
    shard: int = 1
    replicate: int = 1
    tensor: int = 1
    context: int = 1
    context_method: str = "zigzag"
    pipeline: int = 1
    schedule: str = "1f1b"
    virtual: int = 1
    micro_batches: int = 1
    reshard: bool = True
    no_sync: bool = False
    param_dtype: str = "float32"
    reduce_dtype: str = "float32"
    sequence_parallel: bool = False
    iterations: int = 5
    warmup: int = 2
    realtime: bool = False
    moves: bool = True
    expert: int = 1

    def __post_init__(self) -> None:
        check_repeats(self.iterations, self.warmup)
        check_timeout(self.timeout_s)
        if self.micro_batches < 1:
            raise ValueError(f"{self.micro_batches} micro-batches; write 1 or more")
        if self.mesh.ranks < 2:
            raise ValueError("one rank does not communicate; write 2 or more")
        for name in (self.param_dtype, self.reduce_dtype):
            if name not in DTYPES:
                raise ValueError(f"unknown dtype {name!r} here; write {one_of(DTYPES, name)}")
        if self.pipeline > 1:
            self._check_pipeline()
        elif self.virtual > 1:
            raise ValueError(f"{self.virtual} stages per rank, but no pipeline; leave `virtual` out")
        if self.strategy not in STRATEGIES:
            raise ValueError(f"unknown strategy {self.strategy!r}; write {one_of(STRATEGIES, self.strategy)}")
        if self.strategy in COPIES:
            self._check_copies()
        self._check_model()
        if self.mesh.degree(*DATA) == 1:
            self._check_not_of_fsdp("no ranks of this job share parameters")
        if self.no_sync and (self.mesh.degree(*DATA) == 1 or self.pipeline > 1):
            raise ValueError(
                "`no_sync` needs ranks that share parameters, and a pipeline reduces once per step "
                "anyway; leave it out"
            )

    @property
    def mesh(self) -> Mesh:
        """The ranks along each dimension."""
        return Mesh(
            tensor=self.tensor, context=self.context, shard=self.shard, replicate=self.replicate,
            pipeline=self.pipeline, expert=self.expert,
        )  # fmt: skip

    @property
    def data_independent(self) -> bool:
        """Whether no received value affects control flow: a pipeline receives shapes, experts counts."""
        return self.pipeline == 1 and not isinstance(self.model, ExpertLayers)

    @property
    def shared(self) -> ContextParallel:
        """The division of tokens among context-parallel ranks."""
        return ContextParallel(degree=self.context, method=self.context_method)

    @property
    def stages(self) -> int:
        """The number of pipeline stages; 1 without a pipeline."""
        return self.pipeline * self.virtual if self.pipeline > 1 else 1

    @property
    def placement(self) -> Placement:
        """The ranks of the pipeline's stages."""
        return placement(self.schedule, self.pipeline, self.virtual)

    def layers_of(self, stage: int) -> range:
        """Return the layers of a stage."""
        counts = deal_layers(self.model.layers, self.stages)
        begin = sum(counts[:stage])
        return range(begin, begin + counts[stage])

    def _check_copies(self) -> None:
        """Refuse options of FSDP2, and steps in which DistributedDataParallel rebuilds its buckets."""
        if self.mesh.degree("tensor", "context", "shard", "pipeline") > 1:
            raise ValueError(
                f"{self.strategy} keeps whole models on all ranks; leave `tp`, `cp`, `pp` and `shard` out"
            )
        self._check_not_of_fsdp(f"{self.strategy} shards no parameters")
        if self.warmup < 2:
            raise ValueError(
                f"{self.warmup} warm-up steps; DistributedDataParallel rebuilds its buckets before the "
                "second, so write 2 or more"
            )

    def _check_not_of_fsdp(self, why: str) -> None:
        usual = {"reshard": True, "param_dtype": "float32", "reduce_dtype": "float32"}
        if any(getattr(self, name) != value for name, value in usual.items()):
            raise ValueError(
                f"`keep_gathered`, `param_dtype` and `reduce_dtype` are FSDP2's, and {why}; leave them out"
            )

    def _check_pipeline(self) -> None:
        if self.schedule not in SCHEDULES:
            known = ", ".join(SCHEDULES)
            raise ValueError(f"unknown torch schedule {self.schedule!r}; write one of {known}")
        if self.context > 1:
            raise ValueError("context parallelism cannot be measured with a pipeline; leave `pp` or `cp` out")
        tables(self.schedule, self.pipeline, self.virtual, self.micro_batches)
        if self.schedule == "1f1b" and self.micro_batches < self.pipeline:
            raise ValueError(
                f"{self.micro_batches} micro-batches, but torch's 1f1b on {self.pipeline} ranks needs "
                f"{self.pipeline} or more; write `micro_batches` {self.pipeline}"
            )
        deal_layers(self.model.layers, self.stages)

    def _check_model(self) -> None:
        model = self.model
        if isinstance(model, ExpertLayers):
            self._check_experts(model)
            return
        if self.expert > 1:
            raise ValueError(f"{model.kind} layers have no experts; write `model` experts, or leave `ep` out")
        parts = {"inner": model.inner}
        if isinstance(model, SmallGpt) and self.mesh.degree("tensor", "context") > 1:
            raise ValueError("gpt layers are not cut here; leave `tp` and `cp` out, or write `model` decoder")
        if isinstance(model, SmallDecoder):
            parts |= {"heads": model.few_heads, "vocabulary": model.vocabulary}
            if model.heads % model.few_heads:
                raise ValueError(
                    f"{model.few_heads} key-value heads do not divide {model.heads} heads; write some that do"
                )
            if model.hidden % model.heads:
                raise ValueError(
                    f"{model.heads} heads do not divide hidden {model.hidden}; write heads that do"
                )
        tokens = {"sequence": model.sequence} if isinstance(model, SmallDecoder) else {"rows": model.rows}
        self._check_context(tokens)
        if self.sequence_parallel:
            parts |= {name: count // self.context for name, count in tokens.items()}
        for name, count in parts.items():
            if count % self.tensor:
                raise ValueError(
                    f"{self.tensor} tensor-parallel ranks do not divide {name} {count}; write a multiple"
                )

    def _check_experts(self, model: ExpertLayers) -> None:
        usual = {one.name: one.default for one in fields(self)}
        for option, name in _NOT_OF_EXPERTS.items():
            if getattr(self, name) != usual[name]:
                raise ValueError(f"{option} cannot be combined with expert layers; leave it out")
        if model.experts % self.expert:
            raise ValueError(
                f"{model.experts} experts do not divide by {self.expert} expert-parallel ranks; write "
                f"experts={self.expert * 2} or another `ep`"
            )

    def _check_context(self, tokens: dict[str, int]) -> None:
        """Refuse tokens, or heads, that context-parallel ranks do not divide."""
        model, pieces = self.model, self.shared.pieces
        parts = {name: (count, pieces) for name, count in tokens.items()}
        if self.context > 1:
            each = self.tensor * (self.context if self.context_method == "ulysses" else 1)
            parts |= {"heads": (model.heads if isinstance(model, SmallDecoder) else model.inner, each)}
        for name, (count, least) in parts.items():
            if count % least:
                raise ValueError(
                    f"{self.context} context-parallel ranks do not divide {name} {count}, which "
                    f"{self.context_method} cuts into {least} pieces; write a multiple"
                )


_NOT_OF_EXPERTS = {
    "`tp`": "tensor", "`cp`": "context", "`pp`": "pipeline", "`shard`": "shard", "`schedule`": "schedule",
    "`virtual`": "virtual", "`keep_gathered`": "reshard", "`no_sync`": "no_sync",
    "`sequence_parallel`": "sequence_parallel",
    "`param_dtype`": "param_dtype", "`reduce_dtype`": "reduce_dtype",
}  # fmt: skip
"""Settings without effect on `ExpertLayers`, by their option."""
