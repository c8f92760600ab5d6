"""How a training is laid out over the ranks of a job: which of them do what kind of parallelism, and how."""

from dataclasses import dataclass

from ringside.sim.training.context import ContextParallel
from ringside.sim.training.mesh import Mesh
from ringside.sim.training.pipeline.actions import Table
from ringside.sim.training.pipeline.lowering import find_placement
from ringside.sim.training.pipeline.placement import Placement
from ringside.sim.training.pipeline.schedules import placement, tables
from ringside.sim.training.tensor.cut import STYLES
from ringside.sim.workload.decoder import CHECKPOINTING
from ringside.topologies.words import one_of

STRATEGIES = (
    *("ddp", "data_parallel", "fsdp", "fsdp1", "hsdp", "zero1", "zero2", "zero3"),
    *("distributed_optimizer", "zero_redundancy", "hybrid_zero"),
)
"""What data-parallel ranks do: each has all parameters, or deals them out; hsdp within machines alone.

Of the others `ringside.sim.training.zero` and `ringside.sim.training.distributed_optimizer` say more.
"""

FSDP = ("fsdp", "fsdp1", "hsdp")
"""Those of torch that deal parameters out, and gather them for every pass."""

COPIES = ("ddp", "data_parallel", "zero_redundancy")
"""Those in which each data-parallel rank has all parameters and gradients, as DistributedDataParallel has."""

AT_ONCE = ("ddp", "data_parallel")
"""Those whose whole batch passes at once unless told otherwise, where ranks share nothing but data."""

BUCKETS = ("ddp", "zero_redundancy")
"""Those whose gradients go into DistributedDataParallel's buckets."""

FUSING = ("distributed_optimizer", "hybrid_zero")
"""Those of frameworks that compute products of one input as one, as Megatron-LM does."""

GROUPS = ("hsdp", "hybrid_zero")
"""Those that deal out within groups of ``shard`` ranks."""

_SCHEDULES = {
    "zero1": ("DeepSpeed", ("1f1b",)),
    "distributed_optimizer": ("Megatron-LM", ("1f1b", "interleaved1f1b")),
    "hybrid_zero": ("InternEvo", ("1f1b", "interleaved1f1b")),
}
"""Schedules of a pipeline that whose frameworks have, where not all."""

SYNCING = ("ddp", "zero_redundancy", *FSDP)
"""Those of torch that reduce gradients in every backward unless told otherwise (``no_sync``)."""

OFFLOADS = ("offload", "infinity")
"""Words in the names of strategies that keep a part of it all in the host's memory or on its disks."""

ULYSSES_STRATEGIES = ("zero1", "zero2", "zero3")
"""Strategies whose ranks share sequences by all-to-alls and do nothing else, as DeepSpeed-Ulysses does.

Megatron-DeepSpeed, megatron/core/parallel_state.py, initialize_model_parallel.
"""

CONTEXT_STRATEGIES = ("ddp", "fsdp", "fsdp1", "hsdp", "distributed_optimizer", *ULYSSES_STRATEGIES)
"""Strategies whose ranks may share sequences."""

CONTEXT_METHODS = {**dict.fromkeys(ULYSSES_STRATEGIES, "ulysses"), "distributed_optimizer": "zigzag"}
"""How ranks pass keys and values if nobody says: DeepSpeed's only way; Megatron-LM's ``p2p``."""

TORCH_CONTEXT_METHOD = "all-gather"
"""The same of torch's strategies (``_ContextParallelOptions``): gathered, the causal mask balanced."""

CLIPPING = ("distributed_optimizer",)
"""Those of frameworks that clip gradients if nobody says: Megatron-LM's ``--clip-grad`` is 1.0."""

FSDP_DTYPES = ("float32", "bfloat16", "float16", "float8_e4m3fn")
"""Types in which FSDP may gather parameters, with torchao in the last too; it sums none in that."""

EXPERT_STRATEGIES = ("ddp", "fsdp", "distributed_optimizer")
"""Strategies whose ranks may deal experts out."""


class LayoutError(ValueError):
    """A layout that cannot be; the message says what would fit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """``tensor`` ranks share each layer, ``pipeline`` ranks the layers; data parallelism has all others.

    ``context`` ranks share each sequence, by ``context_method`` of `ringside.sim.training.context.METHODS`.
    ``async_tensor`` hides the exchanges of tensor-parallel ranks behind the products, as torch does;
    ``tensor_style`` is one of `STYLES`, the usual one where None (`style`).

    ``shard`` ranks hold one copy of the parameters together under ``hsdp``: those of a machine where it is
    None; under ``hybrid_zero`` they share an optimizer, all of them where it is None. Of ``schedule`` and
    ``virtual``, stages a rank, `ringside.sim.training.pipeline` says more; they matter in a pipeline alone.
    ``tables`` are one's own actions of its ranks, which ``schedule`` then is only a name for.
    ``micro_batch`` samples pass at once, with 0 all. ``clips`` says that gradients are clipped by their
    norm, of which all ranks have a part; ``no_sync`` that gradients are reduced
    after the last micro-batch alone, which holds them whole until then (`syncs_each`).
    ``overlap_grad_reduce`` and ``overlap_param_gather`` are Megatron-LM's: its distributed optimizer's
    exchanges go bucket by bucket beside the passes, and not all at once before and after the optimizer.
    ``expert`` neighbours among the data-parallel ranks deal experts out; of ``imbalance`` and ``capacity``
    `ringside.sim.training.tensor.ExpertParallel` says more. FSDP gathers parameters in ``param_dtype`` and
    sums gradients in ``reduce_dtype``: where None in the products' type, and in the parameters'.
    """

    strategy: str = "ddp"
    tensor: int = 1
    context: int = 1
    context_method: str = "zigzag"
    async_tensor: bool = False
    tensor_style: str | None = None
    pipeline: int = 1
    shard: int | None = None
    schedule: str = "1f1b"
    virtual: int = 1
    micro_batch: int = 1
    checkpointing: str = "none"
    sequence_parallel: bool = False
    clips: bool = False
    no_sync: bool = False
    overlap_grad_reduce: bool = False
    overlap_param_gather: bool = False
    tables: tuple[Table, ...] = ()
    expert: int = 1
    imbalance: float = 1.0
    capacity: float | None = None
    param_dtype: str | None = None
    reduce_dtype: str | None = None

    def __post_init__(self) -> None:
        if any(word in self.strategy for word in OFFLOADS):
            raise LayoutError(
                f"{self.strategy!r} keeps parameters or optimizers in the host's memory, and what goes there "
                "and back is not simulated; write --strategy zero3 or fsdp, which deal everything out"
            )
        for what, word, known in (
            ("strategy", self.strategy, STRATEGIES),
            ("checkpointing", self.checkpointing, CHECKPOINTING),
            ("style of tensor parallelism", self.tensor_style or STYLES[0], STYLES),
            ("type to gather in", self.param_dtype or FSDP_DTYPES[0], FSDP_DTYPES),
            ("type to sum in", self.reduce_dtype or FSDP_DTYPES[0], FSDP_DTYPES[:-1]),
        ):
            if word not in known:
                raise LayoutError(f"{word!r} is no known {what}; write {one_of(known, word)}")
        for option, count in (
            ("--tp", self.tensor), ("--cp", self.context), ("--pp", self.pipeline),
            ("--virtual", self.virtual),
            ("--micro-batch", self.micro_batch or self.strategy in AT_ONCE),
            ("--shard", 1 if self.shard is None else self.shard),
            ("--ep", self.expert),
        ):  # fmt: skip
            if count < 1:
                raise LayoutError(f"{option} {count}; write 1 or more")
        if self.shard is not None and self.strategy not in GROUPS:
            raise LayoutError(
                f"--shard is hsdp's and hybrid_zero's, and --strategy is {self.strategy}; leave it out"
            )
        if self.strategy == "data_parallel" and (self.tensor, self.pipeline) != (1, 1):
            raise LayoutError(
                "data_parallel is one process that copies a whole model; leave --tp and --pp out, or write "
                "--strategy ddp"
            )
        self._check_reducing()
        self._check_framework()
        if self.sequence_parallel and self.tensor == 1:
            raise LayoutError(
                "--sequence-parallel cuts tokens among tensor-parallel ranks, and there is one; add --tp 2"
            )
        if self.tensor_style and self.tensor == 1:
            raise LayoutError("--tp-style is of tensor-parallel ranks; add --tp 2, or leave it out")
        if self.async_tensor and self.tensor_style == "megatron":
            raise LayoutError("--async-tp is torch's, and --tp-style is megatron; leave one of them out")
        if self.async_tensor and not self.sequence_parallel:
            raise LayoutError(
                "--async-tp takes apart the gathers and scatters of sequence parallelism; add "
                "--sequence-parallel"
            )
        ContextParallel(degree=self.context, method=self.context_method)
        self._check_context()
        if self.expert > 1 and self.strategy not in EXPERT_STRATEGIES:
            raise LayoutError(
                f"--ep {self.expert} is not known with --strategy {self.strategy}; write --strategy "
                f"{', '.join(EXPERT_STRATEGIES)}"
            )

    def _check_reducing(self) -> None:
        """Refuse ways to reduce gradients that the strategy's framework does not have."""
        if self.no_sync and self.strategy not in SYNCING:
            raise LayoutError(
                f"--no-sync is what torch's DistributedDataParallel and FSDP have, and --strategy is "
                f"{self.strategy}; leave it out"
            )
        if self.no_sync and self.strategy == "fsdp1" and self.pipeline > 1:
            raise LayoutError(
                "torch's pipelines have FSDP1 reduce gradients in every backward; leave --no-sync out, or "
                "write --strategy fsdp"
            )
        for option, dtype in (("--param-dtype", self.param_dtype), ("--reduce-dtype", self.reduce_dtype)):
            if dtype is not None and self.strategy not in FSDP:
                raise LayoutError(f"{option} is of FSDP; leave it out, or write --strategy {', '.join(FSDP)}")
        if self.strategy != "distributed_optimizer" and (
            self.overlap_grad_reduce or self.overlap_param_gather
        ):
            option = "--overlap-grad-reduce" if self.overlap_grad_reduce else "--overlap-param-gather"
            raise LayoutError(
                f"{option} is of --strategy distributed_optimizer, and it is {self.strategy}; leave it out"
            )
        if self.overlap_param_gather and not self.overlap_grad_reduce:
            raise LayoutError(
                "Megatron-LM has --overlap-param-gather with --overlap-grad-reduce alone; add that"
            )

    def _check_context(self) -> None:
        """Refuse strategies whose ranks share no sequences, or not in this way."""
        if self.context == 1:
            return
        if self.strategy not in CONTEXT_STRATEGIES:
            raise LayoutError(
                f"--cp {self.context} is not known with --strategy {self.strategy}; leave --cp out, or write "
                f"--strategy {', '.join(CONTEXT_STRATEGIES)}"
            )
        whole = (self.tensor, self.pipeline) == (1, 1)
        if self.strategy in ULYSSES_STRATEGIES and not (self.context_method == "ulysses" and whole):
            raise LayoutError(
                f"DeepSpeed, whose {self.strategy} is, has ranks share sequences by ulysses alone; write "
                "--cp-method ulysses and leave --tp and --pp out, or write --strategy fsdp"
            )

    def _check_framework(self) -> None:
        """Refuse what the strategy's own framework refuses."""
        if self.strategy in ("zero2", "zero3") and self.pipeline > 1:
            raise LayoutError(
                f"DeepSpeed has no pipeline under {self.strategy}; write --strategy zero1, or leave --pp out"
            )
        if self.strategy == "zero_redundancy" and self.tensor > 1:
            raise LayoutError(
                "ZeroRedundancyOptimizer broadcasts whole tensors and knows none that are cut; leave --tp "
                "out, or write --strategy ddp, fsdp or distributed_optimizer"
            )
        if self.pipeline > 1 and self.strategy in _SCHEDULES:
            whose, schedules = _SCHEDULES[self.strategy]
            if self.tables or self.schedule not in schedules:
                raise LayoutError(
                    f"{whose}, whose {self.strategy} is, has no {self.schedule} pipeline; write --schedule "
                    f"{' or '.join(schedules)}"
                )

    @property
    def syncs_each(self) -> bool:
        """Whether torch reduces gradients in every backward.

        A pipeline's stages have DistributedDataParallel and FSDP2 do so once a step
        (torch/distributed/pipelining/stage.py, backward_maybe_with_nosync), and know nothing of FSDP1.
        """
        if self.pipeline > 1:
            return self.strategy == "fsdp1"
        return self.strategy in SYNCING and not self.no_sync

    @property
    def style(self) -> str:
        """How products are computed: Megatron-LM's way where nothing else is said and ranks share layers."""
        if self.tensor_style:
            return self.tensor_style
        fuses = self.tensor > 1 or self.strategy in FUSING
        return "megatron" if fuses and not self.async_tensor else "dtensor"

    @property
    def stages(self) -> int:
        """Stages of the pipeline."""
        return self.pipeline * self.virtual

    @property
    def placement(self) -> Placement:
        """Where the stages of the pipeline stand."""
        if self.pipeline == 1:
            return Placement(1)
        if self.tables:
            return find_placement(self.tables)
        return placement(self.schedule, self.pipeline, self.virtual)

    def actions(self, micro_batches: int) -> tuple[Table, ...]:
        """What each rank of the pipeline does with so many micro-batches, in order."""
        if self.tables:
            return self.tables
        return tables(self.schedule, self.pipeline, self.virtual, micro_batches)

    def mesh(self, ranks: int, machine: int) -> Mesh:
        """The mesh of so many ranks, ``machine`` of which are on each machine."""
        near = self.tensor * self.context
        data, rest = divmod(ranks, near * self.pipeline)
        if rest:
            raise LayoutError(
                f"{ranks} ranks do not divide by {self.degrees}; write "
                f"degrees whose product is one of {_listed(_divisors(ranks))}"
            )
        if machine % self.tensor and self.tensor % machine:
            raise LayoutError(
                f"groups of --tp {self.tensor} ranks lie across machines of {machine}, each in another way; "
                f"write one of {_listed(_divisors(machine))}, or a multiple of {machine}"
            )
        if machine % near and near % machine:
            raise LayoutError(
                f"groups of --tp {self.tensor} times --cp {self.context} ranks lie across machines of "
                f"{machine}, each in another way; write degrees whose product is one of "
                f"{_listed(_divisors(machine))}, or a multiple of {machine}"
            )
        if self.strategy == "data_parallel" and ranks > machine:
            raise LayoutError(
                f"data_parallel is one process, and {ranks} ranks are on machines of {machine}; write -g "
                f"{machine}, or --strategy ddp"
            )
        self._check_experts(data * self.context, machine)
        if self.strategy in COPIES:
            return Mesh(
                tensor=self.tensor, context=self.context, replicate=data, pipeline=self.pipeline,
                expert=self.expert,
            )  # fmt: skip
        shard = data
        if self.strategy == "hsdp":
            shard = self._shard(data, machine)
        elif self.shard is not None:
            shard = self.shard
            if data % shard:
                raise LayoutError(
                    f"--shard {shard} does not divide {data} data-parallel ranks; write one of "
                    f"{_listed(_divisors(data))}"
                )
        return Mesh(
            tensor=self.tensor, context=self.context, shard=shard, replicate=data // shard,
            pipeline=self.pipeline, expert=self.expert,
        )  # fmt: skip

    def _check_experts(self, data: int, machine: int) -> None:
        """Refuse groups of expert-parallel ranks that cannot be, or that lie across machines unevenly."""
        together = self.expert * self.tensor
        fitting = [
            count for count in _divisors(data)
            if machine % (count * self.tensor) == 0 or count * self.tensor % machine == 0
        ]  # fmt: skip
        if data % self.expert:
            raise LayoutError(
                f"--ep {self.expert} does not divide the {data} data-parallel ranks"
                f"{', those of --cp among them' if self.context > 1 else ''}; write one of --ep "
                f"{_listed(fitting)}"
            )
        if machine % together and together % machine:
            raise LayoutError(
                f"groups of --ep {self.expert} times --tp {self.tensor} ranks lie across machines of "
                f"{machine}, each in another way; write one of --ep {_listed(fitting)}"
            )

    @property
    def degrees(self) -> str:
        """The degrees that do not only share data, as options."""
        context = f"--cp {self.context} times " if self.context > 1 else ""
        return f"--tp {self.tensor} times {context}--pp {self.pipeline}"

    def _shard(self, data: int, machine: int) -> int:
        fitting = [count for count in _divisors(data) if 1 < count < data]
        whole = "ddp" if data == 1 else "fsdp"
        words = f"write one of --shard {_listed(fitting)}" if fitting else f"write --strategy {whole}"
        shard = self.shard
        if shard is None:
            near = self.tensor * self.context
            shard = machine // near if machine % near == 0 else 0
            if not (1 < shard < data and data % shard == 0):
                raise LayoutError(
                    f"hsdp deals parameters out among a machine's ranks, but {data} data-parallel ranks with "
                    f"{machine} ranks a machine and --tp {self.tensor} leave no such groups; {words}"
                )
        if data % shard or shard == data or shard == 1:
            raise LayoutError(
                f"--shard {shard} makes no groups of {data} data-parallel ranks that are fewer than all and "
                f"more than one; {words}"
            )
        return shard

    def micro_batches(self, batch: int) -> int:
        """How many of them ``batch`` samples of a replica make."""
        count, rest = divmod(batch, self.micro_batch or batch)
        if rest or not count:
            fitting = _listed(_divisors(batch))
            raise LayoutError(
                f"a batch of {batch} does not divide into micro-batches of {self.micro_batch}; write "
                f"--micro-batch {fitting}, or another --batch"
            )
        return count


def _divisors(number: int) -> list[int]:
    small = [one for one in range(1, int(number**0.5) + 1) if number % one == 0]
    return sorted({*small, *(number // one for one in small)})


def _listed(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers))
