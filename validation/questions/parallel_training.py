"""A training under a layout, which ``train`` simulates unless it is plain data parallelism."""

from dataclasses import dataclass, field, replace
from math import ceil

from ringside.sim.libraries.rules import GLOO, NCCL
from ringside.sim.program.libraries import Libraries
from ringside.sim.training.ddp.job import Costs
from ringside.sim.training.ddp.scaling import OPERATOR_S, SPREAD, contention
from ringside.sim.training.job import ParallelJob
from ringside.sim.training.layout import COPIES, Layout, LayoutError
from ringside.sim.training.memory import find_optimizer
from ringside.sim.training.mesh import DATA, FOLDS, Mesh
from ringside.sim.training.pipeline.actions import COMPUTES, singles
from ringside.sim.training.rank_model import RankModel, workload_on_rank
from ringside.sim.training.simulate import simulate_parallel
from ringside.sim.training.step import ParallelStep
from ringside.sim.training.tensor.decoder import decoder_on_rank, pull_of
from ringside.sim.workload.architecture import Architecture
from ringside.sim.workload.decoder import DECODERS, Decoder
from ringside.sim.workload.devices import STORED, Device, stored
from ringside.topologies.catalogue import split
from ringside.validation.questions.model import find_model, is_timed
from ringside.validation.questions.training import (
    Training,
    batch_of,
    beyond_peak,
    numerics,
    reached,
    sized_workload,
)


@dataclass(frozen=True, slots=True)
class ParallelTraining:
    """A training on ranks of a cluster, under any layout; ``precision`` is None for timed layers."""

    training: Training
    gpu: Device
    libraries: Libraries
    precision: str | None
    factor: float = 1.0
    _contentions: dict[Mesh, float] = field(init=False, repr=False, compare=False, default_factory=dict)
    _cut: dict[Layout, RankModel] = field(init=False, repr=False, compare=False, default_factory=dict)

    def job(self, layout: Layout, batch: int | None = None) -> ParallelJob:
        """Return the training under this layout, with ``batch`` samples per replica or its own."""
        training, gpu, libraries = self.training, self.gpu, self.libraries
        mesh = layout.mesh(libraries.ranks, libraries.machine)
        if layout.strategy not in COPIES and mesh.degree(*DATA) == 1:
            raise LayoutError(
                f"{layout.strategy} shards over data-parallel ranks, but {layout.degrees} leave one of "
                f"{mesh.ranks}; write smaller degrees, or `strategy` ddp"
            )
        batch = batch_of(training, gpu) if batch is None else batch
        layout = replace(layout, micro_batch=layout.micro_batch or batch)
        model = self._model(layout, mesh)
        if layout.tables:
            _check_micro_batches(layout, batch)
        usual = 0.0 if self.precision is None else SPREAD
        on_cpu = libraries.entry.on_cpu
        if on_cpu and layout.strategy == "fsdp1":
            raise LayoutError(
                "FSDP1 does not run on CPUs, which Gloo uses; write `strategy` fsdp, or `library` nccl"
            )
        if on_cpu and layout.strategy == "data_parallel":
            raise LayoutError("data_parallel runs on GPUs, but Gloo on CPUs; write `library` nccl")
        if on_cpu and training.ddp.compresses:
            raise LayoutError(
                "PowerSGD over Gloo is modelled only for plain data parallelism; leave `comm_hook` "
                "out, or write `library` nccl"
            )
        rules = GLOO if on_cpu else NCCL
        return ParallelJob(
            model=model, layout=layout, mesh=mesh, batch=batch, factor=self.factor,
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

    def utilization(self, step: ParallelStep) -> tuple[float | None, float | None]:
        """Return MFU and HFU of a step, None if FLOPs or the peak are unknown."""
        return (None, None) if self.precision is None else step.utilization(self.gpu.peak(self.precision))

    def _contention(self, mesh: Mesh) -> float:
        """Return the share of a GPU that data-parallel collectives take while it computes."""
        if self.training.contention is not None:
            return self.training.contention
        if mesh not in self._contentions:
            group = mesh.together(0, *DATA)
            alone = len(group) == 1
            self._contentions[mesh] = 0.0 if alone else contention(self.libraries.of(group), self.gpu)
        return self._contentions[mesh]

    def _model(self, layout: Layout, mesh: Mesh) -> RankModel:
        """Return the model, built once for all layouts that differ only in their pipelines."""
        alike = replace(layout, pp=1, schedule="1f1b", virtual=1, tables=())
        if alike not in self._cut:
            self._cut[alike] = self._made(layout, mesh)
        return self._cut[alike]

    def _made(self, layout: Layout, mesh: Mesh) -> RankModel:
        training, name = self.training, self.training.model
        model = None if is_timed(name) else find_model(name)
        if isinstance(model, Decoder) and self.precision:
            pace = self.gpu.roofline(self.precision, reached(training, self.gpu))
            group = mesh.together(0, "tensor")
            pull = pull_of(self.libraries, group, self.gpu) if layout.async_tp else None
            how = numerics(training, self.gpu, self.precision)
            dtype = stored(training.dtype) or "float32"
            return decoder_on_rank(model, layout, pace, dtype, numerics=how, pull=pull)
        mixtures = [one for one, made in DECODERS.items() if made.experts]
        for is_given, option, fitting in (
            (layout.tp > 1, f"`tp` {layout.tp}", DECODERS),
            (layout.cp > 1, f"`cp` {layout.cp}", DECODERS),
            (layout.checkpointing != "none", f"`checkpointing` {layout.checkpointing}", DECODERS),
            (layout.ep > 1, f"`ep` {layout.ep}", mixtures),
            (layout.ep_imbalance != 1, f"`ep_imbalance` {layout.ep_imbalance:g}", mixtures),
            (layout.capacity_factor is not None, f"`capacity_factor` {layout.capacity_factor}", mixtures),
        ):
            if is_given:
                raise LayoutError(
                    f"{option} needs a decoder, and {name} is none; leave it out, or write `model` "
                    f"{', '.join(fitting)}"
                )
        flops = self._flops(model) if isinstance(model, Architecture) else None
        units = layout.strategy not in COPIES
        sized, _ = sized_workload(training, self.gpu)
        return workload_on_rank(sized(layout.micro_batch), units=units, model_flops=flops)

    def _flops(self, model: Architecture) -> float | None:
        """Return a sample's FLOPs, forward and backward; None if convolutions have a type of their own."""
        apart = self.precision == "float32" and "tfloat32" in self.gpu.flops_per_s
        return None if apart and any(block.convolves for block in model.blocks) else 3 * model.flops


def _check_micro_batches(layout: Layout, batch: int) -> None:
    """Raise ValueError for a batch whose micro-batches are not those of the user's own actions."""
    computing = (one for table in layout.tables for one in singles(table) if one.kind in COMPUTES)
    passed, count = len({one.micro_batch for one in computing}), layout.micro_batches(batch)
    if passed != count:
        raise LayoutError(
            f"{layout.schedule} passes {passed} micro-batches, but a batch of {batch} has {count}; "
            f"write `batch` {passed * layout.micro_batch}"
        )


def parallel_training(
    training: Training, gpu: Device, libraries: Libraries, layout: Layout
) -> ParallelTraining:
    """Return the training on all ranks of the libraries; a measured throughput is under the same layout."""
    if training.ddp.accumulation > 1:
        raise LayoutError(
            "`accumulation` needs plain ddp; write `batch` for all samples and `micro_batch` for one pass"
        )
    own = ParallelTraining(training, gpu, libraries, sized_workload(training, gpu)[1])
    if training.throughput is None:
        return own
    from ringside.validation.pace import parallel_pace

    samples_per_s, ranks = training.throughput
    there = replace(own, libraries=_of_ranks(libraries, ranks))
    paced = replace(there, factor=parallel_pace(there.job(layout), there.libraries, samples_per_s))
    _check_possible(paced, layout, samples_per_s)
    return replace(own, factor=paced.factor)


def _check_possible(training: ParallelTraining, layout: Layout, samples_per_s: float) -> None:
    """Raise ValueError for a throughput above the GPUs' peak."""
    if training.precision is None:
        return
    step = simulate_parallel(training.job(layout), training.libraries)
    _, share = training.utilization(step)
    if share is not None and share > 1:
        raise LayoutError(beyond_peak((samples_per_s, step.ranks), share, training.gpu, training.precision))


def _of_ranks(libraries: Libraries, ranks: int) -> Libraries:
    """Return the library on a number of ranks of the same machines, filled one after another."""
    if ranks == libraries.ranks:
        return libraries
    name, _ = split(libraries.cluster)
    machine = libraries.machine
    return Libraries(
        libraries.name, f"{name}:{ceil(ranks / machine)}", libraries.values, ranks, libraries.network,
        libraries.calibration, libraries.placement,
    )  # fmt: skip


def notes(libraries: Libraries, mesh: Mesh) -> list[str]:
    """Return the sources of the times of a mesh's groups."""
    sentences: list[str] = []
    for name in ("tensor", *DATA, *(FOLDS if mesh.expert > 1 else ())):
        group = mesh.together(0, name)
        library = libraries.of(group) if len(group) > 1 else None
        if library and library.has_tuner:
            sentences += [f"{libraries.entry.title} of {name} groups {library.basis}", *library.notes]
    return list(dict.fromkeys(sentences))
