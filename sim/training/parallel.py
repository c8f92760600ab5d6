"""A training on ranks of a cluster, under any layout: its jobs, and their steps."""

from dataclasses import dataclass, field, replace

from ringside.sim.libraries.find import LIBRARIES
from ringside.sim.libraries.rules import GLOO, NCCL
from ringside.sim.program.libraries import Libraries
from ringside.sim.training.ddp.job import Costs
from ringside.sim.training.ddp.scaling import DataParallelTraining
from ringside.sim.training.job import ParallelJob
from ringside.sim.training.layout import COPIES, Layout, LayoutError
from ringside.sim.training.memory import MemoryFit, find_optimizer, fit_of
from ringside.sim.training.mesh import DATA, FOLDS, Mesh
from ringside.sim.training.pipeline.actions import COMPUTES, singles
from ringside.sim.training.rank_model import RankModel, workload_on_rank
from ringside.sim.training.simulate import simulate_parallel
from ringside.sim.training.step import ParallelStep
from ringside.sim.training.tensor.decoder import DecoderOnGpu
from ringside.sim.workload.architecture import ArchitectureOnGpu
from ringside.sim.workload.decoder import DECODERS
from ringside.sim.workload.devices import STORED


@dataclass(frozen=True, slots=True)
class JudgedStep:
    """A simulated step, its utilization of the GPUs, how it fits, and the sources of its times.

    ``mfu`` and ``hfu`` are None where FLOPs or the peak are unknown.
    """

    step: ParallelStep
    mfu: float | None
    hfu: float | None
    fit: MemoryFit
    notes: list[str]


@dataclass(frozen=True, slots=True)
class ParallelTraining:
    """A training on the ranks of libraries, under any layout; layers take ``factor`` times their time."""

    training: DataParallelTraining
    libraries: Libraries
    factor: float = 1.0
    _costs: dict[Mesh, Costs] = field(init=False, repr=False, compare=False, default_factory=dict)
    _cut: dict[Layout, RankModel] = field(init=False, repr=False, compare=False, default_factory=dict)

    def job(self, layout: Layout, batch: int | None = None) -> ParallelJob:
        """Return the training under this layout, with ``batch`` samples per replica or its own."""
        training, precision = self.training, self.training.model.precision
        mesh = layout.mesh(self.libraries.ranks, self.libraries.machine)
        if layout.strategy not in COPIES and mesh.degree(*DATA) == 1:
            raise LayoutError(
                f"{layout.strategy} shards over data-parallel ranks, but {layout.degrees} leave one of "
                f"{mesh.ranks}; write smaller degrees, or `strategy` ddp"
            )
        batch = training.model.batch if batch is None else batch
        layout = replace(layout, micro_batch=layout.micro_batch or batch)
        model = self._model(layout, mesh)
        if layout.tables:
            _check_micro_batches(layout, batch)
        rules = GLOO if LIBRARIES[self.libraries.name].on_cpu else NCCL
        if rules is GLOO:
            self._check_cpu(layout)
        return ParallelJob(
            model=model, layout=layout, mesh=mesh, batch=batch, factor=self.factor,
            optimizer=find_optimizer(training.optimizer), ddp=training.ddp,
            precision=precision and STORED[precision], costs=self._costs_of(mesh),
            library=rules.name, workers=rules.workers,
        )  # fmt: skip

    def step(self, job: ParallelJob, reserve: int | None = None) -> JudgedStep:
        """Simulate a step; ``reserve`` bytes of a GPU stay free, by default those of `fit_of`."""
        step = simulate_parallel(job, self.libraries)
        fit = fit_of(step.peak_nbytes, self.training.gpu, reserve)
        return JudgedStep(step, *self.utilization(step), fit, [*self.notes(job.mesh), *step.timeline.assumes])

    def utilization(self, step: ParallelStep) -> tuple[float | None, float | None]:
        """Return MFU and HFU of a step, None if FLOPs or the peak are unknown."""
        precision = self.training.model.precision
        return (None, None) if precision is None else step.utilization(self.training.gpu.peak(precision))

    def notes(self, mesh: Mesh) -> list[str]:
        """Return the sources of the times of a mesh's groups."""
        sentences: list[str] = []
        title = LIBRARIES[self.libraries.name].title
        for name in ("tensor", *DATA, *(FOLDS if mesh.expert > 1 else ())):
            group = mesh.together(0, name)
            library = self.libraries.of(group) if len(group) > 1 else None
            if library and library.has_tuner:
                sentences += [f"{title} of {name} groups {library.basis}", *library.notes]
        return list(dict.fromkeys(sentences))

    def _check_cpu(self, layout: Layout) -> None:
        """Raise LayoutError for a layout that does not run on CPUs, which Gloo uses."""
        if layout.strategy == "fsdp1":
            raise LayoutError(
                "FSDP1 does not run on CPUs, which Gloo uses; write `strategy` fsdp, or `library` nccl"
            )
        if layout.strategy == "data_parallel":
            raise LayoutError("data_parallel runs on GPUs, but Gloo on CPUs; write `library` nccl")
        if self.training.ddp.compresses:
            raise LayoutError(
                "PowerSGD over Gloo is modelled only for plain data parallelism; leave `comm_hook` "
                "out, or write `library` nccl"
            )

    def _costs_of(self, mesh: Mesh) -> Costs:
        """Return the costs where data-parallel collectives run beside compute."""
        if mesh not in self._costs:
            group = mesh.together(0, *DATA)
            needed = len(group) > 1 and self.training.contention is None
            self._costs[mesh] = self.training.usual_costs(self.libraries.of(group) if needed else None)
        return self._costs[mesh]

    def _model(self, layout: Layout, mesh: Mesh) -> RankModel:
        """Return the model, built once for all layouts that differ only in their pipelines."""
        alike = replace(layout, pp=1, schedule="1f1b", virtual=1, tables=())
        if alike not in self._cut:
            self._cut[alike] = self._made(layout, mesh)
        return self._cut[alike]

    def _made(self, layout: Layout, mesh: Mesh) -> RankModel:
        model = self.training.model
        if isinstance(model, DecoderOnGpu):
            return model.on_rank(layout, self.libraries, mesh.together(0, "tensor"))
        workload = model.workload(layout.micro_batch)
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
                    f"{option} needs a decoder, and {workload.name} is none; leave it out, or write `model` "
                    f"{', '.join(fitting)}"
                )
        flops = model.model_flops if isinstance(model, ArchitectureOnGpu) else None
        return workload_on_rank(workload, units=layout.strategy not in COPIES, model_flops=flops)


def _check_micro_batches(layout: Layout, batch: int) -> None:
    """Raise LayoutError for a batch whose micro-batches are not those of the user's own actions."""
    computing = (one for table in layout.tables for one in singles(table) if one.kind in COMPUTES)
    passed, count = len({one.micro_batch for one in computing}), layout.micro_batches(batch)
    if passed != count:
        raise LayoutError(
            f"{layout.schedule} passes {passed} micro-batches, but a batch of {batch} has {count}; "
            f"write `batch` {passed * layout.micro_batch}"
        )
