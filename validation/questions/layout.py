"""Fields of a layout: degrees of parallelism, strategy and schedule."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Self

from ringside.sim.program.check import FAILS, HANGS, check
from ringside.sim.questions.question import Question, choices, option
from ringside.sim.training.layers import RankLayer
from ringside.sim.training.layout import Layout, LayoutError
from ringside.sim.training.pipeline.actions import (
    COMPUTES,
    Placement,
    Table,
    find_placement,
    read_tables,
    singles,
)
from ringside.sim.training.pipeline.layer_layout import stage_layers
from ringside.sim.training.pipeline.program import find_runtime, pipeline
from ringside.sim.training.pipeline.schedules import SCHEDULES
from ringside.sim.training.strategies import (
    AT_ONCE,
    CLIPPING,
    CONTEXT_METHODS,
    GROUPS,
    STRATEGIES,
    TORCH_CONTEXT_METHOD,
)
from ringside.sim.training.tensor.context import METHODS
from ringside.sim.training.tensor.cut import STYLES
from ringside.sim.training.tensor.dispatch import DISPATCHERS
from ringside.sim.workload.decoder import CHECKPOINTING, MODULES
from ringside.sim.workload.devices import full_name


@dataclass(frozen=True, kw_only=True)
class ByLayout(Question):
    """The layout of a training over ranks."""

    strategy: str = option(
        f"What data-parallel ranks do: {', '.join(STRATEGIES)} (docs/parallel.md).",
        metavar="NAME", default="ddp",
    )  # fmt: skip
    tp: int = option("Tensor-parallel ranks, which share each layer.", default=1)
    tp_style: str | None = option(
        "Products of one input: fused, or separate.",
        metavar=choices(STYLES), default=None, default_text="dtensor with --async-tp",
    )  # fmt: skip
    cp: int = option("Context-parallel ranks, which share each sequence.", default=1)
    cp_method: str | None = option(
        "How context-parallel ranks exchange keys and values.",
        metavar=choices(METHODS), default=None, default_text="the framework's own",
    )  # fmt: skip
    async_tp: bool = option("Hide tensor-parallel exchanges behind products.", default=False)
    pp: int = option("Pipeline-parallel ranks, which share the layers.", default=1)
    shard: int | None = option(
        f"{', '.join(GROUPS)}: number of ranks in a sharding group.",
        default=None,
        default_text="a machine's; all",
    )
    schedule: str | None = option(
        f"Pipeline schedule: {', '.join(SCHEDULES)}, or torch's CSV.",
        metavar="NAME|FILE.csv", default=None, default_text="1f1b",
    )  # fmt: skip
    virtual: int | None = option(
        "Stages per pipeline rank.", default=None, default_text="2 where interleaved, else 1", minimum=1
    )
    pp_layout: str | None = option(
        "Layers of each stage, as Megatron-LM writes them: Et*3|(tt|)*4tL.",
        metavar="TEXT", default=None, default_text="as even as can be",
    )  # fmt: skip
    microbatch_group: int | None = option(
        "interleaved1f1b: micro-batches that pass a stage in a row.", default=None, default_text="--pp"
    )
    micro_batch: int | None = option(
        "Samples of a --batch that pass at once.",
        default=None, default_text="1 under a layout, all in data_parallel",
    )  # fmt: skip
    checkpointing: str = option(
        "Which activations are recomputed.", metavar=choices(CHECKPOINTING), default="none"
    )
    recompute: str | None = option(
        f"Modules that selective checkpointing recomputes: {', '.join(MODULES)}.",
        metavar="NAME,NAME,...", default=None, default_text="core_attn",
    )  # fmt: skip
    sequence_parallel: bool = option(
        "Shard tokens among tensor-parallel ranks between products.", default=False
    )
    clip: bool | None = option(
        "Clip gradients by their norm over all ranks.", "--clip/--no-clip",
        default=None, default_text="on for Megatron-LM's strategy, off for others",
    )  # fmt: skip
    overlap_grad_reduce: bool = option(
        "Megatron-LM's strategies: reduce gradients bucket by bucket in backward.", default=False
    )
    overlap_param_gather: bool = option(
        "distributed_optimizer: gather parameters during the next forward.", default=False
    )
    no_sync: bool = option("DDP, FSDP: reduce gradients only in the last backward (no_sync).", default=False)
    wrap_ends: bool = option(
        "FSDP2: shard embedding and head as units of their own, and keep the head after forward.",
        default=False,
    )
    no_reshard: bool = option(
        "FSDP: keep parameters gathered from forward to backward (SHARD_GRAD_OP).", default=False
    )
    param_dtype: str | None = option(
        "FSDP: type in which parameters are gathered.", default=None, default_text="the products'"
    )
    reduce_dtype: str | None = option(
        "FSDP, Megatron-LM: type in which gradients are summed.",
        default=None,
        default_text="the parameters'; float32",
    )
    ep: int = option("Expert-parallel ranks, neighbours among the data-parallel ones.", default=1)
    etp: int | None = option("Ranks that share each expert.", default=None, default_text="those of --tp")
    dispatcher: str = option(
        "How tokens get to their experts and back.", metavar=choices(DISPATCHERS), default="alltoall"
    )
    overlap_experts: bool = option(
        "Hide exchanges of experts' tokens behind another micro-batch's passes.", default=False
    )
    ep_imbalance: float = option("Tokens of the busiest expert-parallel rank over the mean.", default=1.0)
    capacity_factor: float | None = option(
        "Capacity of each expert over the mean; tokens are padded or dropped.",
        default=None,
        default_text="no limit",
    )

    @cached_property
    def is_parallel(self) -> bool:
        """Whether any field differs from plain DistributedDataParallel."""
        return bool(self.changed(*(one.name for one in fields(ByLayout) if one.name != "no_sync")))

    def simplified(self, batch: Callable[[], int]) -> Self:
        """Return the question without default clipping and without a micro-batch of the whole ``batch``."""
        question = replace(self, clip=None) if self.clip is (self.strategy in CLIPPING) else self
        plain = replace(question, micro_batch=None)
        is_usual = question.micro_batch is not None and not plain.is_parallel
        return plain if is_usual and question.micro_batch == batch() else question

    def layout(self) -> Layout:
        """Return the layout; raise LayoutError for an invalid one."""
        if self.pp == 1 and (self.schedule, self.virtual) != (None, None):
            name = "virtual" if self.schedule is None else "schedule"
            raise LayoutError(f"`{name}` needs a pipeline; add `pp` 2, or leave it out")
        if self.cp == 1 and self.cp_method is not None:
            raise LayoutError("`cp_method` needs context-parallel ranks; add `cp` 2, or leave it out")
        schedule = self.schedule or self._usual_schedule
        tables = self._tables()
        if self.micro_batch is not None and self.micro_batch < 1:
            raise LayoutError(f"`micro_batch` {self.micro_batch}; write 1 or more")
        whole = self.strategy in AT_ONCE and (self.tp, self.cp, self.pp, self.ep) == (1, 1, 1, 1)
        layout = Layout(
            strategy=self.strategy, tp=self.tp, tp_style=self.tp_style, cp=self.cp,
            cp_method=self._method,
            async_tp=self.async_tp, pp=self.pp, shard=self.shard, schedule=schedule,
            virtual=self.virtual or 0, pp_layout=self.pp_layout, microbatch_group=self.microbatch_group,
            micro_batch=self.micro_batch or (0 if whole else 1),
            checkpointing=self.checkpointing, recompute=self.recompute,
            sequence_parallel=self.sequence_parallel,
            clip=self.strategy in CLIPPING if self.clip is None else self.clip,
            overlap_grad_reduce=self.overlap_grad_reduce, overlap_param_gather=self.overlap_param_gather,
            no_sync=self.no_sync, wrap_ends=self.wrap_ends, no_reshard=self.no_reshard,
            tables=tables, ep=self.ep, etp=self.etp,
            dispatcher=self.dispatcher, overlap_experts=self.overlap_experts,
            ep_imbalance=self.ep_imbalance,
            capacity_factor=self.capacity_factor,
            param_dtype=full_name(self.param_dtype), reduce_dtype=full_name(self.reduce_dtype),
        )  # fmt: skip
        if layout.strategy == "fsdp1" and layout.pp > 1 and schedule not in ("gpipe", "1f1b"):
            raise LayoutError(
                f"FSDP1 does not support {schedule}, which gathers and sums whole stages; write "
                "`strategy` fsdp, or `schedule` 1f1b or gpipe"
            )
        return layout

    @property
    def _usual_schedule(self) -> str:
        """The usual schedule: interleaved if a rank has several stages of `pp_layout`."""
        several = self.pp_layout is not None and len(stage_layers(self.pp_layout)) > self.pp > 1
        return "interleaved1f1b" if several else "1f1b"

    @property
    def _method(self) -> str:
        """How context-parallel ranks exchange keys and values; the strategy's framework has the default."""
        if self.cp_method is not None or self.cp == 1:
            return self.cp_method or "zigzag"
        return CONTEXT_METHODS.get(self.strategy, TORCH_CONTEXT_METHOD)

    def _tables(self) -> tuple[Table, ...]:
        """Return the actions of a file; raise LayoutError for another number of ranks or stages."""
        if self.schedule is None or not self.schedule.endswith(".csv"):
            return ()
        actions = read_tables(Path(self.schedule))
        if len(actions) != self.pp:
            raise LayoutError(
                f"{self.schedule} has actions of {len(actions)} ranks; write `pp` {len(actions)}"
            )
        where = find_placement(actions)
        each = where.stages_a_rank
        if self.virtual not in (None, each):
            raise LayoutError(f"{self.schedule} has {each} stages on each rank; leave `virtual` out")
        if any(one.kind not in COMPUTES for table in actions for one in singles(table)):
            self._prove(actions, where)
        return actions

    def _prove(self, actions: tuple[Table, ...], where: Placement) -> None:
        """Raise LayoutError for a file's own messages that never match; those that torch adds always do."""
        layers = (RankLayer(name="layer"),)
        alone = pipeline(str(self.schedule), actions, where, lambda _: layers, find_runtime("torch"))
        verdict = check(alone)
        if verdict.verdict in (HANGS, FAILS):
            raise LayoutError(f"{self.schedule} never ends: {'; '.join(verdict.story)}")
