"""A training on ranks of a cluster, under any layout: its jobs, and their simulated steps.

One rank per stage represents all of its ranks.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from ringside.sim.disturbance.disturbance import Draw
from ringside.sim.effort import consider_operations
from ringside.sim.libraries.find import LIBRARIES
from ringside.sim.libraries.library import check_time
from ringside.sim.libraries.rules import GLOO, NCCL
from ringside.sim.program.jobs import PlacedProgram, play
from ringside.sim.program.libraries import Libraries
from ringside.sim.program.simulate import Simulation
from ringside.sim.program.timeline import timeline
from ringside.sim.training.ddp.job import Costs
from ringside.sim.training.ddp.scaling import DataParallelTraining
from ringside.sim.training.job import ParallelJob, RankModel, seconds_of, workload_on_rank
from ringside.sim.training.layers import RankLayer
from ringside.sim.training.layout import Layout, LayoutError
from ringside.sim.training.layout_mesh import mesh_of
from ringside.sim.training.memory.communicators import communicators_nbytes
from ringside.sim.training.memory.optimizers import find_optimizer
from ringside.sim.training.memory.peak import Use, use
from ringside.sim.training.memory.room import MemoryFit, Room, fit_of, room_of
from ringside.sim.training.mesh import DATA, FOLDS, Mesh
from ringside.sim.training.pipeline.actions import COMPUTES, singles
from ringside.sim.training.program import Writing
from ringside.sim.training.step import ParallelStep, StageTime, stage_time
from ringside.sim.training.strategies import COPIES, MEGATRON
from ringside.sim.training.tensor.decoder import DecoderOnGpu
from ringside.sim.training.tensor.dispatch import DEEPEP
from ringside.sim.workload.architecture import ArchitectureOnGpu
from ringside.sim.workload.decoder import DECODERS
from ringside.sim.workload.devices import STORED


@dataclass(frozen=True, slots=True)
class Played:
    """A step that has been played, one rank per stage; `step` summarises it."""

    job: ParallelJob
    writing: Writing
    simulation: Simulation

    @property
    def step_s(self) -> float:
        """The end of the last operation."""
        return self.simulation.makespan_s

    @property
    def memory(self) -> tuple[Use, ...]:
        """The memory of each played rank."""
        simulation = self.simulation
        return tuple(
            use(
                self.writing.step(rank).held, simulation.operations[index], simulation.begin[index],
                simulation.end[index],
            )
            for index, rank in enumerate(simulation.played)
        )  # fmt: skip

    def step(self) -> ParallelStep:
        """Return the step, stage by stage.

        Raise `ringside.sim.libraries.library.LawError` if it breaks a bound.
        """
        job, simulation, step_s = self.job, self.simulation, self.step_s
        stages = []
        for index, (rank, memory) in enumerate(zip(simulation.played, self.memory, strict=True)):
            step = self.writing.step(rank)
            names = tuple(layer.name for stage in step.stages for layer in job.layers(stage))
            stages.append(stage_time(simulation, index, job.mesh, names, memory))
            _check(job, step.stages, stages[-1], step_s)
        model, samples, flops = job.model, job.samples, job.model.model_flops
        tokens = None if model.tokens is None else model.tokens * samples
        return ParallelStep(
            workload=model.name,
            sample=model.sample,
            ranks=job.mesh.ranks,
            samples=samples,
            tokens=tokens,
            step_s=step_s,
            throughput=samples / step_s,
            tokens_per_s=None if tokens is None else tokens / step_s,
            gpu_hours_per_1e9_tokens=tokens and job.mesh.ranks * step_s / 3600 * 1e9 / tokens,
            micro_batches=job.micro_batches,
            model_flops=flops and flops * samples,
            hardware_flops=flops and (flops + model.recomputed_flops) * samples,
            stages=tuple(stages),
            timeline=replace(timeline(simulation), memory={one.rank: one.memory.curve for one in stages}),
        )


def play_parallel(job: ParallelJob, libraries: Libraries) -> Played:
    """Play one optimizer step; rank r of the mesh is rank r of the cluster."""
    passed = sum(_operations(layer) for layer in job.model.layers)
    consider_operations(job.micro_batches * passed)
    writing = Writing(job)
    placed = PlacedProgram(writing.program(), tuple(range(job.mesh.ranks)), job.roles)
    (simulation,) = play([placed], libraries, job.costs.contention)
    return Played(job, writing, simulation)


def simulate_parallel(job: ParallelJob, libraries: Libraries) -> ParallelStep:
    """Simulate one optimizer step; rank r of the mesh is rank r of the cluster.

    Raise `ringside.sim.libraries.library.LawError` if the answer breaks a bound.
    """
    return play_parallel(job, libraries).step()


def simulate_parallel_disturbed(job: ParallelJob, libraries: Libraries, draw: Draw) -> Simulation:
    """Simulate one draw of a disturbed step: every rank has its own pace and is simulated."""
    program = Writing(job).program()
    passed = sum(_operations(layer) for layer in job.model.layers)
    consider_operations(job.micro_batches * passed * program.ranks)
    placed = PlacedProgram(draw.program(program), tuple(range(program.ranks)))
    (simulation,) = play([placed], libraries, job.costs.contention, draw.disturbance.late)
    return simulation


def _operations(layer: RankLayer) -> int:
    """Return roughly the number of operations of a micro-batch in a layer, each exchange with a wait."""
    return 2 * (len(layer.forward) + len(layer.recomputed) + len(layer.backward))


def _check(job: ParallelJob, stages: Iterable[int], stage: StageTime, step_s: float) -> None:
    """Raise LawError for a step shorter than the compute or the communication of one of its stages."""
    a_pass = sum(seconds_of(layer) for number in stages for layer in job.layers(number))
    bounds = {
        "compute": job.micro_batches * a_pass,
        "busiest communicator": max(stage.communication_by_s.values(), default=0.0),
    }
    check_time(f"a step of {job.model.name}", step_s, bounds)


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
        mesh = mesh_of(layout, self.libraries.ranks, self.libraries.machine)
        if layout.strategy not in (*COPIES, *MEGATRON) and mesh.degree(*DATA) == 1:
            raise LayoutError(
                f"{layout.strategy} shards over data-parallel ranks, but {layout.degrees} leave one of "
                f"{mesh.ranks}; write smaller degrees, or `strategy` ddp"
            )
        batch = training.model.batch if batch is None else batch
        layout = replace(layout, micro_batch=layout.micro_batch or batch)
        model = self._model(layout, mesh)
        if layout.tables:
            _check_micro_batches(layout, batch)
        if layout.dispatcher == DEEPEP and self.libraries.whole.comm is None:
            raise LayoutError(
                f"{DEEPEP} runs on NVIDIA's GPUs; write `library` nccl, or `dispatcher` alltoall"
            )
        rules = GLOO if LIBRARIES[self.libraries.name].on_cpu else NCCL
        if rules is GLOO:
            self._check_cpu(layout)
        return ParallelJob(
            model=model, layout=layout, mesh=mesh, batch=batch, factor=self.factor,
            optimizer=find_optimizer(training.optimizer, layout.strategy), ddp=training.ddp,
            precision=precision and STORED[precision], costs=self._costs_of(mesh),
            library=rules.name, workers=rules.workers,
        )  # fmt: skip

    def step(self, job: ParallelJob, reserve: int | None = None) -> JudgedStep:
        """Simulate a step; ``reserve`` bytes of a GPU stay free, by default those of `room_of`."""
        step = simulate_parallel(job, self.libraries)
        fit = fit_of(step.peak_nbytes, self.training.gpu, reserve, self._nccl(job), self.training.stack)
        notes = [*self.notes(job.mesh), *_by_kernels(job.layout), *step.timeline.assumes]
        return JudgedStep(step, *self.utilization(step), fit, notes)

    def room(self, job: ParallelJob, reserve: int | None = None) -> Room:
        """Return the room of a GPU beside the job's communicators."""
        nccl = sum(self._nccl(job).values())
        return room_of(self.training.gpu, reserve, nccl, self.training.stack)

    def _nccl(self, job: ParallelJob) -> Mapping[str, int]:
        return communicators_nbytes(job.mesh, job.layout, self.libraries)

    def utilization(self, step: ParallelStep) -> tuple[float | None, float | None]:
        """Return MFU and HFU of a step, None if FLOPs or the peak are unknown."""
        precision = self.training.model.precision
        return (None, None) if precision is None else step.utilization(self.training.gpu.peak(precision))

    def notes(self, mesh: Mesh) -> list[str]:
        """Return the sources of the times of a mesh's groups."""
        sentences: list[str] = []
        title = LIBRARIES[self.libraries.name].title
        folds = ("expert_tensor", *FOLDS) if mesh.expert_tensor != mesh.tensor else FOLDS
        for name in ("tensor", *DATA, *(folds if mesh.separates_experts else ())):
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
        """Return the costs where collectives of data- or else tensor-parallel ranks run beside compute."""
        if mesh not in self._costs:
            group = mesh.together(0, *DATA)
            if len(group) == 1:
                group = mesh.together(0, "tensor")
            needed = len(group) > 1 and self.training.contention is None
            self._costs[mesh] = self.training.usual_costs(self.libraries.of(group) if needed else None)
        return self._costs[mesh]

    def _model(self, layout: Layout, mesh: Mesh) -> RankModel:
        """Return the model, built once for all layouts that differ only in their pipelines."""
        alike = replace(
            layout, pp=1, schedule="1f1b", virtual=1, tables=(), pp_layout=None, microbatch_group=None
        )
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
            (layout.pp_layout is not None, f"`pp_layout` {layout.pp_layout}", DECODERS),
            (layout.checkpointing != "none", f"`checkpointing` {layout.checkpointing}", DECODERS),
            (layout.ep > 1, f"`ep` {layout.ep}", mixtures),
            (layout.etp is not None, f"`etp` {layout.etp}", mixtures),
            (layout.dispatcher != "alltoall", f"`dispatcher` {layout.dispatcher}", mixtures),
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


def _by_kernels(layout: Layout) -> list[str]:
    """Return a note where another library than NCCL exchanges the tokens of experts."""
    if layout.dispatcher != DEEPEP or layout.ep == 1:
        return []
    return ["tokens of expert groups by DeepEP's normal kernels, fitted to published times"]


def _check_micro_batches(layout: Layout, batch: int) -> None:
    """Raise LayoutError for a batch whose micro-batches are not those of the user's own actions."""
    computing = (one for table in layout.tables for one in singles(table) if one.kind in COMPUTES)
    passed, count = len({one.micro_batch for one in computing}), layout.micro_batches(batch)
    if passed != count:
        raise LayoutError(
            f"{layout.schedule} passes {passed} micro-batches, but a batch of {batch} has {count}; "
            f"write `batch` {passed * layout.micro_batch}"
        )
