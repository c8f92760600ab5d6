"""The layout of a training over the ranks of a job: degrees of parallelism, strategy and schedule."""

from dataclasses import dataclass

from ringside.sim.training.pipeline.actions import Placement, Table, find_placement
from ringside.sim.training.pipeline.layer_layout import stage_layers
from ringside.sim.training.pipeline.schedules import placement, tables
from ringside.sim.training.strategies import (
    AT_ONCE,
    CONTEXT_STRATEGIES,
    EXPERT_STRATEGIES,
    FSDP,
    FSDP2,
    FSDP_DTYPES,
    FUSING,
    GROUPS,
    MEGATRON,
    OFFLOADS,
    REDUCING,
    SCHEDULES_OF,
    STRATEGIES,
    SYNCING,
    TORCH_FSDP,
    ULYSSES_STRATEGIES,
)
from ringside.sim.training.tensor.context import METHODS
from ringside.sim.training.tensor.cut import STYLES
from ringside.sim.training.tensor.dispatch import DISPATCHERS
from ringside.sim.workload.decoder import CHECKPOINTING, MODULES, USUAL_MODULES
from ringside.topologies.names import one_of


class LayoutError(ValueError):
    """An invalid layout; the message gives valid values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """``tp`` ranks share each layer, ``pp`` ranks the layers; the rest is data parallelism.

    ``cp`` ranks share each sequence, by ``cp_method`` (`ringside.sim.training.tensor.context`). ``async_tp``
    hides the exchanges of tensor-parallel ranks behind the products, as torch does; ``tp_style`` is one of
    `STYLES`, None the strategy's default (`style`).

    ``shard`` ranks hold one copy of the parameters together under ``hsdp``, None those of a machine; under
    ``distributed_optimizer`` and ``hybrid_zero`` they share an optimizer, None all of them. ``schedule`` and
    ``virtual``, stages per rank or 0 for the usual number, only matter in a pipeline
    (`ringside.sim.training.pipeline`), as do ``microbatch_group``, the number of consecutive micro-batches of
    an interleaved stage, None that of ranks, and ``pp_layout``, Megatron-LM's text for the layers of each
    stage. ``tables`` are custom actions of its ranks; ``schedule`` is then only their name. A micro-batch has
    ``micro_batch`` samples, 0 for all. ``recompute`` are the modules that selective ``checkpointing``
    recomputes, separated by commas. ``clip`` says that gradients are clipped by their norm over all ranks;
    ``no_sync`` that gradients are reduced only after the last micro-batch, and held whole until then
    (`syncs_each`); ``wrap_ends`` that FSDP2 shards what is before and after the repeated layers as units of
    their own, not with the root, and keeps the last one whole after forward; ``no_reshard`` that FSDP keeps
    parameters whole from forward to backward. ``overlap_grad_reduce`` and ``overlap_param_gather`` are
    Megatron-LM's: its exchanges go bucket by bucket beside the passes, not all at once before and after the
    optimizer. ``ep`` neighbours among the data-parallel ranks shard the experts, and ``etp`` ranks share
    each, None ``tp`` (with fewer, ``ep`` may be over tensor-parallel ranks too);
    `ringside.sim.training.tensor.dispatch` has ``ep_imbalance``, ``capacity_factor`` and ``dispatcher``.
    ``overlap_experts`` passes a micro-batch forward together with another's backward, so
    that each computes while the other exchanges tokens. FSDP gathers parameters in ``param_dtype``, None for
    the products' type, and sums gradients in ``reduce_dtype``, None for the parameters'. Megatron-LM's buffer
    of gradients is of ``reduce_dtype`` too, None for float32, or float16 if products are.
    """

    strategy: str = "ddp"
    tp: int = 1
    cp: int = 1
    cp_method: str = "zigzag"
    async_tp: bool = False
    tp_style: str | None = None
    pp: int = 1
    shard: int | None = None
    schedule: str = "1f1b"
    virtual: int = 1
    pp_layout: str | None = None
    microbatch_group: int | None = None
    micro_batch: int = 1
    checkpointing: str = "none"
    recompute: str | None = None
    sequence_parallel: bool = False
    clip: bool = False
    no_sync: bool = False
    wrap_ends: bool = False
    no_reshard: bool = False
    overlap_grad_reduce: bool = False
    overlap_param_gather: bool = False
    tables: tuple[Table, ...] = ()
    ep: int = 1
    etp: int | None = None
    ep_imbalance: float = 1.0
    capacity_factor: float | None = None
    dispatcher: str = "alltoall"
    overlap_experts: bool = False
    param_dtype: str | None = None
    reduce_dtype: str | None = None

    def __post_init__(self) -> None:
        if any(word in self.strategy for word in OFFLOADS):
            raise LayoutError(
                f"{self.strategy!r} offloads parameters or optimizers to the host, which is not simulated; "
                "write `strategy` zero3 or fsdp, which shard everything"
            )
        for what, word, known in (
            ("strategy", self.strategy, STRATEGIES),
            ("checkpointing", self.checkpointing, CHECKPOINTING),
            ("context-parallel method", self.cp_method, METHODS),
            ("dispatcher of tokens", self.dispatcher, DISPATCHERS),
            ("style of tensor parallelism", self.tp_style or STYLES[0], STYLES),
            ("type to gather in", self.param_dtype or FSDP_DTYPES[0], FSDP_DTYPES),
            ("type to sum in", self.reduce_dtype or FSDP_DTYPES[0], FSDP_DTYPES[:-1]),
        ):
            if word not in known:
                raise LayoutError(f"unknown {what} {word!r}; write {one_of(known, word)}")
        for option, count in (
            ("`tp`", self.tp), ("`cp`", self.cp), ("`pp`", self.pp),
            ("`virtual`", self.virtual or 1),
            ("`micro_batch`", self.micro_batch or self.strategy in AT_ONCE),
            ("`shard`", 1 if self.shard is None else self.shard),
            ("`ep`", self.ep),
            ("`etp`", 1 if self.etp is None else self.etp),
            ("`microbatch_group`", 1 if self.microbatch_group is None else self.microbatch_group),
        ):  # fmt: skip
            if count < 1:
                raise LayoutError(f"{option} {count}; write 1 or more")
        self._check_pipeline()
        self._check_recomputed()
        if not self.virtual:
            object.__setattr__(self, "virtual", self.placement.stages_a_rank)
        if self.shard is not None and self.strategy not in GROUPS:
            raise LayoutError(
                f"`shard` applies to {', '.join(GROUPS)}, and `strategy` is {self.strategy}; leave it out"
            )
        if self.strategy == "data_parallel" and (self.tp, self.pp) != (1, 1):
            raise LayoutError(
                "data_parallel is one process that copies a whole model; leave `tp` and `pp` out, or write "
                "`strategy` ddp"
            )
        self._check_reducing()
        self._check_framework()
        if self.sequence_parallel and self.tp == 1:
            raise LayoutError(
                "`sequence_parallel` cuts tokens among tensor-parallel ranks, and there is one; add `tp` 2"
            )
        if self.tp_style and self.tp == 1:
            raise LayoutError("`tp_style` needs tensor-parallel ranks; add `tp` 2, or leave it out")
        if self.async_tp and not self.sequence_parallel:
            raise LayoutError(
                "`async_tp` splits the gathers and scatters of sequence parallelism; add `sequence_parallel`"
            )
        self._check_context()
        option = f"`ep` {self.ep}" if self.ep > 1 else f"`etp` {self.etp}"
        if (self.ep > 1 or self.etp) and self.strategy not in EXPERT_STRATEGIES:
            raise LayoutError(
                f"{option} is not modelled with `strategy` {self.strategy}; write `strategy` "
                f"{', '.join(EXPERT_STRATEGIES)}"
            )
        self._check_overlap()

    def _check_overlap(self) -> None:
        """Raise LayoutError for layouts whose micro-batches cannot hide each other's exchanges of experts."""
        if not self.overlap_experts:
            return
        if self.ep == 1:
            raise LayoutError("`overlap_experts` hides the exchanges of `ep`; add `ep` 2, or leave it out")
        if self.dispatcher == "allgather":
            raise LayoutError(
                "`overlap_experts` hides all-to-alls; write `dispatcher` alltoall or deepep, or leave it out"
            )
        if self.strategy not in ("ddp", *MEGATRON):
            raise LayoutError(
                f"`overlap_experts` needs `strategy` ddp or {' or '.join(MEGATRON)}, not {self.strategy}; "
                "leave it out"
            )
        allowed = ("interleaved1f1b",) if self.strategy in MEGATRON else ("dualpipev",)
        if self.pp > 1 and self.schedule not in allowed:
            raise LayoutError(
                f"`overlap_experts` in a pipeline needs `schedule` {allowed[0]} with `strategy` "
                f"{self.strategy}, not {self.schedule}; write it, or leave `overlap_experts` out"
            )

    def _check_pipeline(self) -> None:
        """Raise LayoutError for stages and groups of micro-batches that a pipeline cannot have."""
        grouped = "interleaved1f1b"
        if self.microbatch_group is not None and (self.pp == 1 or self.schedule != grouped):
            raise LayoutError(
                f"`microbatch_group` applies to the schedule {grouped}; leave it out, or write `pp` 2 and "
                f"`schedule` {grouped}"
            )
        if self.pp_layout is None:
            return
        count = len(stage_layers(self.pp_layout))
        if self.pp == 1:
            raise LayoutError(f"`pp_layout` needs a pipeline; write `pp` {count}, or leave it out")
        virtual, rest = divmod(count, self.pp)
        if rest or self.virtual not in (0, virtual):
            raise LayoutError(
                f"`pp_layout` has {count} stages, and `pp` {self.pp} with `virtual` {self.virtual or 1} "
                f"{self.pp * (self.virtual or 1)}; write as many, or `pp` {listed(divisors(count)[1:])}"
            )
        object.__setattr__(self, "virtual", virtual)

    def _check_recomputed(self) -> None:
        """Raise LayoutError for modules that selective checkpointing cannot recompute."""
        if self.recompute is not None and self.checkpointing != "selective":
            raise LayoutError(
                f"`recompute` needs `checkpointing` selective, and it is {self.checkpointing}; write it, or "
                "leave it out"
            )
        for module in self.modules:
            if module not in MODULES:
                raise LayoutError(f"`recompute`: unknown module {module!r}; write {one_of(MODULES, module)}")
            if self.modules.count(module) > 1:
                raise LayoutError(f"`recompute` has {module} twice; write it once")

    @property
    def modules(self) -> tuple[str, ...]:
        """The modules that selective checkpointing recomputes."""
        return USUAL_MODULES if self.recompute is None else tuple(self.recompute.split(","))

    def _check_reducing(self) -> None:
        """Raise LayoutError for ways to reduce gradients that the strategy's framework lacks."""
        if self.no_sync and self.strategy not in SYNCING:
            raise LayoutError(
                f"`no_sync` only applies to torch's DistributedDataParallel and FSDP, and `strategy` is "
                f"{self.strategy}; leave it out"
            )
        if self.no_sync and self.strategy == "fsdp1" and self.pp > 1:
            raise LayoutError(
                "torch's pipelines have FSDP1 reduce gradients in every backward; leave `no_sync` out, or "
                "write `strategy` fsdp"
            )
        for option, is_given, fitting in (
            ("`wrap_ends`", self.wrap_ends, FSDP2),
            ("`no_reshard`", self.no_reshard, TORCH_FSDP),
            ("`param_dtype`", self.param_dtype is not None, FSDP),
            ("`reduce_dtype`", self.reduce_dtype is not None, REDUCING),
            ("`overlap_grad_reduce`", self.overlap_grad_reduce, MEGATRON),
            ("`overlap_param_gather`", self.overlap_param_gather, ("distributed_optimizer",)),
        ):
            if is_given and self.strategy not in fitting:
                raise LayoutError(
                    f"{option} needs `strategy` {' or '.join(fitting)}, not {self.strategy}; leave it out"
                )
        if self.overlap_param_gather and not self.overlap_grad_reduce:
            raise LayoutError(
                "Megatron-LM allows `overlap_param_gather` only with `overlap_grad_reduce`; add that"
            )

    def _check_context(self) -> None:
        """Raise LayoutError for strategies whose ranks cannot share sequences by this method."""
        if self.cp == 1:
            return
        if self.strategy not in CONTEXT_STRATEGIES:
            raise LayoutError(
                f"`cp` {self.cp} is not modelled with `strategy` {self.strategy}; leave `cp` out, or "
                f"write `strategy` {', '.join(CONTEXT_STRATEGIES)}"
            )
        whole = (self.tp, self.pp) == (1, 1)
        if self.strategy in ULYSSES_STRATEGIES and not (self.cp_method == "ulysses" and whole):
            raise LayoutError(
                f"DeepSpeed ({self.strategy}) shares sequences only by ulysses; write `cp_method` "
                "ulysses and leave `tp` and `pp` out, or write `strategy` fsdp"
            )

    def _check_framework(self) -> None:
        """Raise LayoutError for a layout that the strategy's own framework refuses."""
        if self.strategy in ("zero2", "zero3") and self.pp > 1:
            raise LayoutError(
                f"DeepSpeed has no pipeline under {self.strategy}; write `strategy` zero1, or leave `pp` out"
            )
        if self.strategy == "megatron_fsdp" and (self.pp > 1 or self.no_sync):
            option = f"`pp` {self.pp}" if self.pp > 1 else "`no_sync`"
            raise LayoutError(
                f"{option} is not modelled with `strategy` megatron_fsdp; leave it out, or write `strategy` "
                "fsdp"
            )
        if self.strategy == "zero_redundancy" and self.tp > 1:
            raise LayoutError(
                "ZeroRedundancyOptimizer broadcasts whole tensors and cannot handle cut ones; leave `tp` "
                "out, or write `strategy` ddp, fsdp or distributed_optimizer"
            )
        if self.pp > 1 and self.strategy in SCHEDULES_OF:
            whose, schedules = SCHEDULES_OF[self.strategy]
            if self.tables or self.schedule not in schedules:
                raise LayoutError(
                    f"{whose}, the framework of {self.strategy}, has no {self.schedule} pipeline; write "
                    f"`schedule` {' or '.join(schedules)}"
                )

    @property
    def syncs_each(self) -> bool:
        """Whether torch reduces gradients in every backward.

        Pipeline stages under DistributedDataParallel and FSDP2 reduce once a step
        (torch/distributed/pipelining/stage.py, backward_maybe_with_nosync); that code does not handle FSDP1.
        """
        if self.pp > 1:
            return self.strategy == "fsdp1"
        return self.strategy in SYNCING and not self.no_sync

    @property
    def style(self) -> str:
        """The style of products: by default Megatron-LM's with tensor parallelism, or torch's."""
        if self.tp_style:
            return self.tp_style
        fuses = self.strategy in FUSING or (self.tp > 1 and not self.async_tp)
        return "megatron" if fuses else "dtensor"

    @property
    def parts(self) -> tuple[str, ...]:
        """The letters of each stage's layers, if they are written."""
        return () if self.pp_layout is None else stage_layers(self.pp_layout)

    @property
    def stages(self) -> int:
        """Number of pipeline stages."""
        return self.pp * self.virtual

    @property
    def placement(self) -> Placement:
        """The ranks of the pipeline's stages."""
        if self.pp == 1:
            return Placement(1)
        if self.tables:
            return find_placement(self.tables)
        return placement(self.schedule, self.pp, self.virtual)

    def actions(self, micro_batches: int) -> tuple[Table, ...]:
        """Return each pipeline rank's actions for this number of micro-batches, in order."""
        if self.tables:
            return self.tables
        return tables(self.schedule, self.pp, self.virtual, micro_batches, group=self.microbatch_group)

    @property
    def degrees(self) -> str:
        """The degrees other than data parallelism, as options."""
        context = f"`cp` {self.cp} times " if self.cp > 1 else ""
        return f"`tp` {self.tp} times {context}`pp` {self.pp}"

    def micro_batches(self, batch: int) -> int:
        """Return the number of micro-batches in ``batch`` samples of a replica."""
        count, rest = divmod(batch, self.micro_batch or batch)
        if rest or not count:
            fitting = listed(divisors(batch))
            raise LayoutError(
                f"a batch of {batch} does not divide into micro-batches of {self.micro_batch}; write "
                f"`micro_batch` {fitting}, or another `batch`"
            )
        return count


def divisors(number: int) -> list[int]:
    """Return the divisors of a number, in ascending order."""
    small = [one for one in range(1, int(number**0.5) + 1) if number % one == 0]
    return sorted({*small, *(number // one for one in small)})


def listed(numbers: list[int]) -> str:
    """Return numbers as text."""
    return ", ".join(map(str, numbers))
