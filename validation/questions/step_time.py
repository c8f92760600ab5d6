"""How long a training step takes on a cluster."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any, ClassVar, Self

from ringside.sim.disturbance.networks import libraries_under, library_under
from ringside.sim.libraries.find import LIBRARIES
from ringside.sim.libraries.library import Library
from ringside.sim.program.groups import process_group
from ringside.sim.questions.disturbances import Disturbances, parse_stragglers
from ringside.sim.questions.disturbed_time import DisturbedTime, draw_programs
from ringside.sim.questions.question import options_of
from ringside.sim.training.advice import advice
from ringside.sim.training.ddp.memory import Memory
from ringside.sim.training.ddp.scaling import DataParallelTraining, ScaledStep, ScaledTraining
from ringside.sim.training.ddp.simulate import simulate_disturbed
from ringside.sim.training.ddp.step import TrainingStep
from ringside.sim.training.job import ParallelJob
from ringside.sim.training.layout import Layout
from ringside.sim.training.memory import FITS, MemoryFit, fit_of
from ringside.sim.training.mesh import DIMENSIONS
from ringside.sim.training.simulate import simulate_parallel, simulate_parallel_disturbed
from ringside.sim.training.step import ParallelStep, StageTime
from ringside.topologies.catalogue import split
from ringside.topologies.placement import PACKED, placement_notes
from ringside.topologies.units import format_duration
from ringside.validation.questions.model import is_timed
from ringside.validation.questions.parallel_training import ParallelTraining, notes, parallel_training
from ringside.validation.questions.training import batch_of, computing, data_parallel_training
from ringside.validation.questions.training_on_cluster import TrainingOnCluster

REMARKABLE = 0.05
"""The share of a step above which a note mentions the broadcasts of buffers."""


@dataclass(frozen=True, kw_only=True)
class StepTime(Disturbances, TrainingOnCluster):
    """How long a training step takes: of DistributedDataParallel, or under another layout."""

    schema: ClassVar[str] = "train"

    @cached_property
    def simple(self) -> Self:
        """The question without layout fields that have no effect."""
        return self.simplified(lambda: batch_of(self, self.gpu))

    @property
    def slowdown(self) -> Mapping[int, float]:
        """The stragglers of a step of DistributedDataParallel; under a layout they disturb it."""
        if not self.straggler or self.simple.is_parallel:
            return {}
        return parse_stragglers(self.straggler)

    @property
    def disturbances(self) -> Disturbances:
        """The disturbances of the step, besides its ``slowdown``."""
        values = {one.name: getattr(self, one.name) for one in options_of(Disturbances)}
        return Disturbances(**values if self.simple.is_parallel else values | {"straggler": ()})

    @cached_property
    def training(self) -> ParallelTraining:
        """The training at its pace, under any layout."""
        return parallel_training(self, self.gpu, self.libraries, self._layout)

    @cached_property
    def job(self) -> ParallelJob:
        """The training under its layout, for `ringside.sim.training.simulate`."""
        return self.training.job(self._layout)

    @cached_property
    def _layout(self) -> Layout:
        return self.simple.layout()

    def data_parallel(self, library: Library) -> DataParallelTraining:
        """Return the training under DistributedDataParallel alone, at its pace, with a library of `bound`."""
        cluster = split(self.cluster)[0] if LIBRARIES[library.name].by_machines else self.cluster
        return data_parallel_training(self, self.gpu, lambda ranks: self._bound(cluster, ranks, PACKED))

    def ask(
        self, *, on_step: Callable[[str], None] = lambda _: None
    ) -> "DataParallelSteps | StepUnderLayout":
        """Simulate the step, and the draws of a disturbed one; ``on_step`` is called after each."""
        question = self.simple
        if question.is_parallel:
            return question._ask_layout(on_step)
        return question.ask_each([question.cluster], [question.bucket_cap_mb], on_step=on_step)

    def ask_each(
        self,
        clusters: Sequence[str],
        caps: Sequence[float | None],
        *,
        on_step: Callable[[str], None] = lambda _: None,
    ) -> "DataParallelSteps":
        """Simulate a step of DistributedDataParallel on each cluster with each bucket cap."""
        libraries = [self.bound(one) for one in clusters]
        scaled = self.data_parallel(libraries[0]).scaled(
            libraries, caps, self.global_batch, self.reserve, on_step
        )
        training = scaled.training
        return DataParallelSteps(
            question=self,
            steps=scaled.steps,
            precision=training.precision,
            where=self.where,
            computing=computing(self, self.gpu, training.precision),
            memory=scaled.memory,
            fit=scaled.fit,
            notes=self._notes(scaled),
            disturbed=self._disturbed_step(training, scaled.steps[0], on_step) if self.disturbed_by else None,
        )

    def _ask_layout(self, on_step: Callable[[str], None]) -> "StepUnderLayout":
        training, job, libraries = self.training, self.job, self.libraries
        step = simulate_parallel(job, libraries)
        on_step(f"simulated {step.ranks} ranks")
        mfu, hfu = training.utilization(step)
        placed = placement_notes(self.ranks, libraries.placement, libraries.placed)
        return StepUnderLayout(
            question=self,
            step=step,
            mesh={name: job.mesh.degree(name) for name in DIMENSIONS},
            where=self.where,
            computing=computing(self, self.gpu, training.precision),
            mfu=mfu,
            hfu=hfu,
            fit=fit_of(step.peak_nbytes, self.gpu, self.reserve),
            notes=[*placed, *notes(libraries, job.mesh), *step.timeline.assumes],
            disturbed=self._disturbed_layout(step.step_s, on_step) if self.disturbed_by else None,
        )

    def _notes(self, scaled: ScaledTraining) -> list[str]:
        """Return the sources of times, the placement of ranks, and remarks, a sentence each."""
        first = scaled.steps[0]
        sentences = placement_notes(self.ranks, self.placement, first.library.placed)
        sentences += [note for one in scaled.steps for note in one.library.notes]
        if first.broadcasts_s > REMARKABLE * first.step.step_s:
            sentences.append(
                "the broadcast of buffers before forward takes "
                f"{format_duration(first.broadcasts_s, 4)} of the step's "
                f"{format_duration(first.step.step_s, 4)}; --no-broadcast-buffers omits it"
            )
        if is_timed(self.model) and not scaled.memory.activations:
            sentences.append(f"memory excludes activations, which {self.model} does not state")
        if scaled.uncompressed_s is not None:
            sentences.append(
                f"in the first {self.ddp.powersgd.start:,} steps PowerSGD averages uncompressed "
                f"gradients: {format_duration(scaled.uncompressed_s, 4)} a step"
            )
        return list(dict.fromkeys(sentences))

    def _disturbed_step(
        self, training: DataParallelTraining, first: ScaledStep, on_draw: Callable[[str], None]
    ) -> DisturbedTime | None:
        disturbances, library = self.disturbances, first.library
        if disturbances.disturbance is None:
            return None
        disturbances.disturbance.check_ranks(library.ranks)
        workload, costs = training.workload(), training.costs_on(library)
        group = process_group(library_under(library, disturbances.disturbance))
        return draw_programs(
            disturbances, lambda draw: simulate_disturbed(workload, group, training.ddp, costs, draw),
            first.step.step_s, on_draw,
        )  # fmt: skip

    def _disturbed_layout(self, undisturbed_s: float, on_draw: Callable[[str], None]) -> DisturbedTime | None:
        disturbances = self.disturbances
        if disturbances.disturbance is None:
            return None
        disturbances.disturbance.check_ranks(self.libraries.ranks)
        libraries = libraries_under(self.libraries, disturbances.disturbance)
        return draw_programs(
            disturbances, lambda draw: simulate_parallel_disturbed(self.job, libraries, draw), undisturbed_s,
            on_draw,
        )  # fmt: skip

    def step(self) -> TrainingStep | ParallelStep:
        """Simulate the step alone, without its scaling efficiencies."""
        question = self.simple
        if question.is_parallel:
            return simulate_parallel(question.job, question.libraries)
        library = question.bound()
        return question.data_parallel(library).step(library)


def train(model: str, cluster: str, **options: Any) -> TrainingStep | ParallelStep:
    """Return an undisturbed step of ``model`` on a cluster; ``options`` are other fields of `StepTime`."""
    return StepTime(model=model, cluster=cluster, **options).step()


@dataclass(frozen=True, kw_only=True)
class DataParallelSteps:
    """The answer under DistributedDataParallel: a step, or several.

    ``precision`` is None for timed layers. ``where`` is the cluster with its changes, ``computing`` the
    source of compute times, ``fit`` the fit into a GPU's ``memory``.
    """

    question: StepTime
    steps: Sequence[ScaledStep]
    precision: str | None
    where: str
    computing: str
    memory: Memory
    fit: MemoryFit
    notes: list[str]
    disturbed: DisturbedTime | None

    @property
    def inputs(self) -> dict[str, Any]:
        """The resolved inputs."""
        return self.question.understood(self.steps[0].library.name, self.precision)

    @property
    def totals(self) -> dict[str, Any]:
        """A GPU's memory, whether the training fits, and the step's figures if there is one."""
        names = ("ranks", "samples", "step_s", "throughput") if len(self.steps) == 1 else ()
        return {
            "memory_bytes": {**asdict(self.memory), "total": self.fit.nbytes, **_margin(self.fit)},
            "fits": self.fit.verdict == FITS,
            "verdict": self.fit.verdict,
            **{name: self.steps[0].figures[name] for name in names},
            **({"disturbed": self.disturbed.content()} if self.disturbed else {}),
        }

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The steps: seconds, samples, their buckets."""
        return [dict(one.figures) for one in self.steps]


@dataclass(frozen=True, kw_only=True)
class StepUnderLayout:
    """The answer under a layout.

    ``mesh`` has the number of ranks along each dimension, ``computing`` is the source of compute times.
    ``mfu`` and ``hfu`` are None where FLOPs or the peak are unknown.
    """

    question: StepTime
    step: ParallelStep
    mesh: Mapping[str, int]
    where: str
    computing: str
    mfu: float | None
    hfu: float | None
    fit: MemoryFit
    notes: list[str]
    disturbed: DisturbedTime | None

    @property
    def inputs(self) -> dict[str, Any]:
        """The resolved inputs."""
        training = self.question.training
        return self.question.understood(training.libraries.name, training.precision)

    @cached_property
    def would_fit(self) -> tuple[str, int] | None:
        """Options that would make it fit, and the peak with them; None if it fits or none is known."""
        fit, layout = self.fit, self.question.job.layout
        if fit.verdict == FITS:
            return None
        lighter = advice(layout, self.question.training.job, fit.memory - fit.reserve)
        return lighter and (_changes(layout, lighter[0]), lighter[1])

    @property
    def totals(self) -> dict[str, Any]:
        """Figures of the whole step: seconds, samples, bytes."""
        step, fit = self.step, self.fit
        worst = max(step.stages, key=lambda stage: stage.peak.nbytes)
        return {
            "mesh": dict(self.mesh),
            "micro_batches": step.micro_batches,
            "ranks": step.ranks,
            "samples": step.samples,
            "tokens": step.tokens,
            "step_s": step.step_s,
            "throughput": step.throughput,
            "tokens_per_s": step.tokens_per_s,
            "mfu": self.mfu,
            "hfu": self.hfu,
            "gpu_hours_per_1e9_tokens": step.gpu_hours_per_1e9_tokens,
            "bubble_share": step.bubble_share,
            "exposed_s": step.exposed_s,
            "exposed_by_s": step.exposed_by_s,
            "memory_bytes": {**_peak(worst), **_margin(fit), "rank": worst.rank},
            "fits": fit.verdict == FITS,
            "verdict": fit.verdict,
            "would_fit": self.would_fit and {"options": self.would_fit[0], "total": self.would_fit[1]},
            **({"disturbed": self.disturbed.content()} if self.disturbed else {}),
        }

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The stages: seconds, bytes."""
        return [_row(place, stage) for place, stage in enumerate(self.step.stages)]


def _row(place: int, stage: StageTime) -> dict[str, Any]:
    return {
        "stage": place,
        "rank": stage.rank,
        "alike": stage.ranks,
        "layers": list(stage.layers),
        "compute_s": stage.compute_s,
        "contention_s": stage.contention_s,
        "copy_s": stage.copy_s,
        "exposed_s": stage.exposed_s,
        "exposed_by_s": dict(stage.exposed_by_s),
        "bubble_s": stage.bubble_s,
        "communication_s": stage.communication_s,
        "communication_by_s": dict(stage.communication_by_s),
        "memory_bytes": _peak(stage),
    }


def _peak(stage: StageTime) -> dict[str, Any]:
    peak = stage.peak
    return {"total": peak.nbytes, "pools": dict(peak.pools), "at_s": peak.moment_s, "during": peak.operation}


def _margin(fit: MemoryFit) -> dict[str, int]:
    """Return a GPU's memory, its reserve and the margin."""
    return {"of_gpu": fit.memory, "reserve": fit.reserve, "margin": fit.margin}


def _changes(before: Layout, after: Layout) -> str:
    """Return the options that turn one layout into another."""
    options = []
    for one in fields(Layout):
        value, flag = getattr(after, one.name), f"--{one.name.replace('_', '-')}"
        if value is None or value == getattr(before, one.name):
            continue
        options.append(
            f"{flag} {value}" if not isinstance(value, bool) else flag if value else f"without {flag}"
        )
    return " ".join(options)
