"""A training under a layout: what ``train`` simulates where more than plain data parallelism is asked."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import ceil
from pathlib import Path

from ringside.sim.libraries.rules import GLOO, NCCL
from ringside.sim.program.proof.check import FAILS, HANGS, check
from ringside.sim.program.simulation.libraries import Libraries
from ringside.sim.training.ddp.job import Costs
from ringside.sim.training.ddp.usual import OPERATOR_S, SPREAD, contention
from ringside.sim.training.layers import RankLayer
from ringside.sim.training.layout import (
    AT_ONCE,
    CLIPPING,
    CONTEXT_METHODS,
    COPIES,
    TORCH_CONTEXT_METHOD,
    Layout,
    LayoutError,
)
from ringside.sim.training.memory import find_optimizer
from ringside.sim.training.mesh import DATA, FOLDS, Mesh
from ringside.sim.training.parallel.decoder import parts_of_decoder
from ringside.sim.training.parallel.job import ParallelJob
from ringside.sim.training.parallel.parts import Parts, parts_of
from ringside.sim.training.parallel.simulate import simulate_parallel
from ringside.sim.training.pipeline.actions import COMPUTES, Table, read_tables, singles
from ringside.sim.training.pipeline.lowering import find_placement
from ringside.sim.training.pipeline.placement import Placement
from ringside.sim.training.pipeline.program import find_runtime, pipeline
from ringside.sim.training.pipeline.schedules import find_schedule
from ringside.sim.training.tensor.pull import pull_of
from ringside.sim.workload.architecture import Architecture
from ringside.sim.workload.decoder import DECODERS, Decoder
from ringside.sim.workload.devices import STORED, Device, full_name, stored
from ringside.topologies.catalogue import split
from ringside.validation.questions.trained import beyond_peak
from ringside.validation.questions.training import (
    Training,
    batch_of,
    find_model,
    is_timed,
    numerics,
    reached,
    sized_workload,
)

INTERLEAVED = 2
"""Stages of a pipeline rank where a schedule may have any number and nobody says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutWords:
    """The words of the command line; None is not said."""

    strategy: str = "ddp"
    tp: int = 1
    tp_style: str | None = None
    cp: int = 1
    cp_method: str | None = None
    async_tp: bool = False
    pp: int = 1
    shard: int | None = None
    schedule: str | None = None
    virtual: int | None = None
    micro_batch: int | None = None
    checkpointing: str = "none"
    sequence_parallel: bool = False
    clip: bool | None = None
    overlap_grad_reduce: bool = False
    overlap_param_gather: bool = False
    no_sync: bool = False
    param_dtype: str | None = None
    reduce_dtype: str | None = None
    ep: int = 1
    ep_imbalance: float = 1.0
    capacity_factor: float | None = None

    @property
    def is_parallel(self) -> bool:
        """Whether anything is said that a step of DistributedDataParallel alone does not have."""
        return replace(self, no_sync=False) != LayoutWords()

    def resolved(self, batch: Callable[[], int]) -> "LayoutWords":
        """The words without those that are usual: clipping, and a micro-batch of all of ``batch`` samples."""
        words = replace(self, clip=None) if self.clip is (self.strategy in CLIPPING) else self
        plain = replace(words, micro_batch=None)
        is_usual = words.micro_batch is not None and not plain.is_parallel and words.micro_batch == batch()
        return plain if is_usual else words

    def layout(self) -> Layout:
        """The layout that is meant."""
        if self.pp == 1 and (self.schedule, self.virtual) != (None, None):
            said = "--virtual" if self.schedule is None else "--schedule"
            raise LayoutError(f"{said} is a pipeline's, of which there is none; add --pp 2, or leave it out")
        if self.cp == 1 and self.cp_method is not None:
            raise LayoutError(
                "--cp-method is of context-parallel ranks, of which there is one; add --cp 2, or leave it out"
            )
        schedule = "1f1b" if self.schedule is None else self.schedule
        tables = self._tables()
        if tables:
            usual = find_placement(tables).stages_a_rank
        else:
            usual = 1 if self.pp == 1 else find_schedule(schedule).stages_a_rank or INTERLEAVED
        if self.micro_batch is not None and self.micro_batch < 1:
            raise LayoutError(f"--micro-batch {self.micro_batch}; write 1 or more")
        whole = self.strategy in AT_ONCE and (self.tp, self.cp, self.pp, self.ep) == (1, 1, 1, 1)
        found = Layout(
            strategy=self.strategy, tensor=self.tp, tensor_style=self.tp_style, context=self.cp,
            context_method=self._method,
            async_tensor=self.async_tp, pipeline=self.pp, shard=self.shard, schedule=schedule,
            virtual=self.virtual if self.virtual is not None else usual,
            micro_batch=self.micro_batch or (0 if whole else 1),
            checkpointing=self.checkpointing, sequence_parallel=self.sequence_parallel,
            clips=self.strategy in CLIPPING if self.clip is None else self.clip,
            overlap_grad_reduce=self.overlap_grad_reduce, overlap_param_gather=self.overlap_param_gather,
            no_sync=self.no_sync, tables=tables, expert=self.ep, imbalance=self.ep_imbalance,
            capacity=self.capacity_factor,
            param_dtype=full_name(self.param_dtype), reduce_dtype=full_name(self.reduce_dtype),
        )  # fmt: skip
        if found.strategy == "fsdp1" and found.pipeline > 1 and schedule not in ("gpipe", "1f1b"):
            raise LayoutError(
                f"FSDP1 has no part in {schedule}, which gathers and sums whole stages; write --strategy "
                "fsdp, or --schedule 1f1b or gpipe"
            )
        return found

    @property
    def _method(self) -> str:
        """How context-parallel ranks pass keys and values: as said, or as the strategy's framework does."""
        if self.cp_method is not None or self.cp == 1:
            return self.cp_method or "zigzag"
        return CONTEXT_METHODS.get(self.strategy, TORCH_CONTEXT_METHOD)

    def _tables(self) -> tuple[Table, ...]:
        """The actions that a file of them has, for as many ranks and stages as were asked for."""
        if self.schedule is None or not self.schedule.endswith(".csv"):
            return ()
        found = read_tables(Path(self.schedule))
        if len(found) != self.pp:
            raise LayoutError(f"{self.schedule} has actions of {len(found)} ranks; write --pp {len(found)}")
        where = find_placement(found)
        each = where.stages_a_rank
        if self.virtual not in (None, each):
            raise LayoutError(f"{self.schedule} has {each} stages on each rank; leave --virtual out")
        if any(one.kind not in COMPUTES for table in found for one in singles(table)):
            self._prove(found, where)
        return found

    def _prove(self, found: tuple[Table, ...], where: Placement) -> None:
        """Refuse messages of a file's own that do not meet; those that torch's rules put in always do."""
        layers = (RankLayer(name="layer"),)
        alone = pipeline(str(self.schedule), found, where, lambda _: layers, find_runtime("torch"))
        verdict = check(alone)
        if verdict.verdict in (HANGS, FAILS):
            raise LayoutError(f"{self.schedule} never ends: {'; '.join(verdict.story)}")


@dataclass(frozen=True, slots=True)
class LaidOut:
    """A training on ranks of a cluster, under any layout; ``precision`` is None where layers are timed."""

    training: Training
    gpu: Device
    libraries: Libraries
    precision: str | None
    factor: float = 1.0
    _contentions: dict[Mesh, float] = field(init=False, repr=False, compare=False, default_factory=dict)
    _cut: dict[Layout, Parts] = field(init=False, repr=False, compare=False, default_factory=dict)

    def job(self, layout: Layout, batch: int | None = None) -> ParallelJob:
        """The training under this layout, with ``batch`` samples of a replica if not with its own."""
        training, gpu, libraries = self.training, self.gpu, self.libraries
        mesh = layout.mesh(libraries.ranks, libraries.machine)
        if layout.strategy not in COPIES and mesh.degree(*DATA) == 1:
            raise LayoutError(
                f"{layout.strategy} deals out what data-parallel ranks share, but {layout.degrees} "
                f"leave one of {mesh.ranks}; write less, or --strategy ddp"
            )
        batch = batch_of(training, gpu) if batch is None else batch
        layout = replace(layout, micro_batch=layout.micro_batch or batch)
        parts = self._parts(layout, mesh)
        if layout.tables:
            _check_micro_batches(layout, batch)
        usual = 0.0 if self.precision is None else SPREAD
        on_cpu = libraries.entry.on_cpu
        if on_cpu and layout.strategy == "fsdp1":
            raise LayoutError(
                "FSDP1 does not run on CPUs, where Gloo is; write --strategy fsdp, or --library nccl"
            )
        if on_cpu and layout.strategy == "data_parallel":
            raise LayoutError("data_parallel runs on GPUs, where Gloo is not; write --library nccl")
        if on_cpu and training.ddp.compresses:
            raise LayoutError(
                "PowerSGD over Gloo waits in threads, which is known of plain data parallelism alone; leave "
                "--comm-hook out, or write --library nccl"
            )
        rules = GLOO if on_cpu else NCCL
        return ParallelJob(
            parts=parts, layout=layout, mesh=mesh, batch=batch, factor=self.factor,
            optimizer=find_optimizer(training.optimizer), ddp=training.ddp,
            precision=self.precision and STORED[self.precision],
            costs=Costs(
                memory_bandwidth=gpu.streaming,
                spread=usual if training.spread is None else training.spread,
                contention=self._contention(mesh),
                operator_s=OPERATOR_S,
            ),
            library=rules.name, workers=rules.workers,
        )  # fmt: skip

    def _contention(self, mesh: Mesh) -> float:
        """What data-parallel collectives take of a GPU, which are those that computing goes on beside."""
        if self.training.contention is not None:
            return self.training.contention
        if mesh not in self._contentions:
            group = mesh.together(0, *DATA)
            found = contention(self.libraries.of(group), self.gpu) if len(group) > 1 else 0.0
            self._contentions[mesh] = found
        return self._contentions[mesh]

    def _parts(self, layout: Layout, mesh: Mesh) -> Parts:
        """The model, made once for all layouts that differ in their pipelines alone."""
        alike = replace(layout, pipeline=1, schedule="1f1b", virtual=1, tables=())
        if alike not in self._cut:
            self._cut[alike] = self._made(layout, mesh)
        return self._cut[alike]

    def _made(self, layout: Layout, mesh: Mesh) -> Parts:
        training, name = self.training, self.training.model
        model = None if is_timed(name) else find_model(name)
        if isinstance(model, Decoder) and self.precision:
            pace = self.gpu.roofline(self.precision, reached(training, self.gpu))
            group = mesh.together(0, "tensor")
            pull = pull_of(self.libraries, group, self.gpu) if layout.async_tensor else None
            how = numerics(training, self.gpu, self.precision)
            dtype = stored(training.dtype) or "float32"
            return parts_of_decoder(model, layout, pace, dtype, numerics=how, pull=pull)
        mixtures = [one for one, made in DECODERS.items() if made.experts]
        for said, option, fitting in (
            (layout.tensor > 1, f"--tp {layout.tensor}", DECODERS),
            (layout.context > 1, f"--cp {layout.context}", DECODERS),
            (layout.checkpointing != "none", f"--checkpointing {layout.checkpointing}", DECODERS),
            (layout.expert > 1, f"--ep {layout.expert}", mixtures),
            (layout.imbalance != 1, f"--ep-imbalance {layout.imbalance:g}", mixtures),
            (layout.capacity is not None, f"--capacity-factor {layout.capacity}", mixtures),
        ):
            if said:
                raise LayoutError(
                    f"{option} needs to know what is in a layer, as of a decoder, and {name} is none; "
                    f"leave it out, or write --model {', '.join(fitting)}"
                )
        flops = self._flops(model) if isinstance(model, Architecture) else None
        units = layout.strategy not in COPIES
        sized, _ = sized_workload(training, self.gpu)
        return parts_of(sized(layout.micro_batch), units=units, model_flops=flops)

    def _flops(self, model: Architecture) -> float | None:
        """Those of a sample's forward and backward; None where convolutions are in a type of their own."""
        apart = self.precision == "float32" and "tfloat32" in self.gpu.flops_per_s
        return None if apart and any(block.convolves for block in model.blocks) else 3 * model.flops


def _check_micro_batches(layout: Layout, batch: int) -> None:
    """Refuse a batch of more or fewer micro-batches than one's own actions pass."""
    computing = (one for table in layout.tables for one in singles(table) if one.kind in COMPUTES)
    passed, count = len({one.micro_batch for one in computing}), layout.micro_batches(batch)
    if passed != count:
        raise LayoutError(
            f"{layout.schedule} passes {passed} micro-batches, and a batch of {batch} makes {count}; write "
            f"--batch {passed * layout.micro_batch}"
        )


def laid_out(training: Training, gpu: Device, libraries: Libraries, layout: Layout) -> LaidOut:
    """The training on all ranks of some libraries; a measured throughput is one under the same layout."""
    if training.slowdown:
        raise LayoutError(
            "one rank is simulated per stage, so a straggler is not possible; remove --straggler"
        )
    if training.ddp.accumulation > 1:
        raise LayoutError(
            "--accumulation is what micro-batches are; write --batch for all and --micro-batch for one"
        )
    found = LaidOut(training, gpu, libraries, sized_workload(training, gpu)[1])
    if training.measured is None:
        return found
    from ringside.validation.pace import parallel_pace

    samples_per_s, ranks = training.measured
    there = replace(found, libraries=_of_ranks(libraries, ranks))
    paced = replace(there, factor=parallel_pace(there.job(layout), there.libraries, samples_per_s))
    _check_possible(paced, layout, samples_per_s)
    return replace(found, factor=paced.factor)


def _check_possible(what: LaidOut, layout: Layout, samples_per_s: float) -> None:
    """Refuse a throughput at which GPUs would compute more than they can."""
    if what.precision is None:
        return
    step = simulate_parallel(what.job(layout), what.libraries)
    _, share = step.utilization(what.gpu.peak(what.precision))
    if share is not None and share > 1:
        raise LayoutError(beyond_peak((samples_per_s, step.ranks), share, what.gpu, what.precision))


def _of_ranks(libraries: Libraries, ranks: int) -> Libraries:
    """The same library on so many ranks of a cluster of the same machines, filled one after another."""
    if ranks == libraries.ranks:
        return libraries
    name, _ = split(libraries.cluster)
    machine = libraries.machine
    return Libraries(
        libraries.name, f"{name}:{ceil(ranks / machine)}", libraries.values, ranks, libraries.network,
        libraries.calibration, libraries.placement,
    )  # fmt: skip


def notes(libraries: Libraries, mesh: Mesh) -> list[str]:
    """What the libraries of a mesh's groups rest on."""
    found: list[str] = []
    for name in ("tensor", *DATA, *(FOLDS if mesh.expert > 1 else ())):
        group = mesh.together(0, name)
        library = libraries.of(group) if len(group) > 1 else None
        if library and library.has_tuner:
            found += [f"{libraries.entry.title} of {name} groups {library.basis}", *library.notes]
    return list(dict.fromkeys(found))
