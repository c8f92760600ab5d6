"""How long a training step takes on a cluster."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

from ringside.sim.disturbance.study import libraries_under, library_under
from ringside.sim.goodput.cost import Cost
from ringside.sim.libraries.find import LIBRARIES
from ringside.sim.libraries.library import Library
from ringside.sim.program.groups import process_group
from ringside.sim.questions.answer import Answer
from ringside.sim.questions.disturbances import Disturbances, parse_stragglers
from ringside.sim.questions.disturbed_time import DisturbedTime, draw_programs
from ringside.sim.questions.question import options_of
from ringside.sim.recorded.step import RecordedStep
from ringside.sim.training.ddp.scaling import DataParallelTraining, Memory, ScaledStep, ScaledTraining
from ringside.sim.training.ddp.simulate import simulate_disturbed
from ringside.sim.training.ddp.step import TrainingStep
from ringside.sim.training.job import ParallelJob
from ringside.sim.training.layout import Layout, LayoutError
from ringside.sim.training.memory.room import FITS, MemoryFit
from ringside.sim.training.mesh import DIMENSIONS
from ringside.sim.training.parallel import (
    ParallelTraining,
    simulate_parallel,
    simulate_parallel_disturbed,
)
from ringside.sim.training.step import ParallelStep
from ringside.topologies.catalogue import split
from ringside.topologies.placement import PACKED, placement_notes
from ringside.topologies.units import format_duration
from ringside.validation.questions.memory import allocated, kept_bytes, lighter, margin_of, savings
from ringside.validation.questions.models import is_timed
from ringside.validation.questions.priced import cost_figure, costing, headline_of
from ringside.validation.questions.recorded import RecordedOrLaunched, StepOfRecording, peak_of, stage_row
from ringside.validation.questions.training import within_s

REMARKABLE = 0.05
"""The share of a step above which a note mentions the broadcasts of buffers."""


@dataclass(frozen=True, kw_only=True)
class StepTime(Disturbances, RecordedOrLaunched):
    """How long a training step takes: of DistributedDataParallel, under another layout, or as recorded."""

    schema: ClassVar[str] = "train"

    @cached_property
    def simple(self) -> Self:
        """The question without layout fields that have no effect."""
        return self.simplified(lambda: self.model_on_gpu.batch)

    @property
    def is_staged(self) -> bool:
        """Whether a step is played by stages or roles, not as one of DistributedDataParallel."""
        return self.recorded is not None or self.simple.is_parallel

    @property
    def slowdown(self) -> Mapping[int, float]:
        """The stragglers of a step of DistributedDataParallel; under a layout they disturb it."""
        if not self.straggler or self.is_staged:
            return {}
        return parse_stragglers(self.straggler)

    @property
    def disturbances(self) -> Disturbances:
        """The disturbances of the step, besides its ``slowdown``."""
        values = {one.name: getattr(self, one.name) for one in options_of(Disturbances)}
        return Disturbances(**values if self.is_staged else values | {"straggler": ()})

    @cached_property
    def training(self) -> ParallelTraining:
        """The training at its pace, under any layout; a measured throughput is under this one."""
        own = self.parallel()
        if self.throughput is None:
            return own
        from ringside.validation.pace import parallel_pace

        return replace(own, factor=parallel_pace(own, self._layout, *self.throughput))

    @cached_property
    def job(self) -> ParallelJob:
        """The training under its layout, for `ringside.sim.training.parallel`."""
        return self.training.job(self._layout)

    @cached_property
    def _layout(self) -> Layout:
        return self.simple.layout()

    def data_parallel(self, library: Library) -> DataParallelTraining:
        """Return the training under DistributedDataParallel alone, at its pace, with a library of `bound`."""
        own = self.on(self.gpu, self.model_on_gpu)
        if self.throughput is None:
            return own
        from ringside.validation.pace import data_parallel_pace

        cluster = split(self.cluster)[0] if LIBRARIES[library.name].by_machines else self.cluster
        samples_per_s, ranks = self.throughput
        return replace(own, pace=data_parallel_pace(own, self._bound(cluster, ranks, PACKED), samples_per_s))

    def ask(
        self, *, on_step: Callable[[str], None] = lambda _: None
    ) -> "DataParallelSteps | StepUnderLayout | StepOfRecording":
        """Simulate the step, and the draws of a disturbed one; ``on_step`` is called after each."""
        if self.recorded is not None:
            return self.ask_recorded(self.disturbances, on_step)
        if self.simple.is_parallel:
            return self.simple._ask_layout(on_step)
        return self.ask_each([self.cluster], [self.bucket_cap_mb], on_step=on_step)

    def ask_each(
        self,
        clusters: Sequence[str],
        caps: Sequence[float | None],
        *,
        on_step: Callable[[str], None] = lambda _: None,
    ) -> "DataParallelSteps":
        """Simulate a step of DistributedDataParallel on each cluster with each bucket cap."""
        question = self.simple
        question.wanted_samples(question.model)  # which refuses tokens that cannot be counted
        libraries = [question.bound(one) for one in clusters]
        scaled = question.data_parallel(libraries[0]).scaled(
            libraries, caps, question.global_batch, question.reserve, on_step
        )
        steps, library = [one.step for one in scaled.steps], scaled.steps[0].library
        costs = [question.cost_of(one.step_s, one.samples, one.ranks) for one in steps]
        disturbed = question._disturbed_step(scaled, on_step) if self.disturbed_by else None
        notes = question._notes(scaled)
        doubt = ", not calibrated by any measurement" * (library.has_tuner and not library.measurements)
        grounds = f"{question.computing}; collectives of {library.name} {library.basis}{doubt}".rstrip()
        return DataParallelSteps(
            question=question,
            headline=question._headline(steps[0], scaled.fit, disturbed) + costing(question, costs),
            rests_on=[grounds, *filter(None, ["; ".join(notes)])],
            steps=scaled.steps,
            costs=costs,
            where=question.where,
            computing=question.computing,
            memory=scaled.memory,
            fit=scaled.fit,
            notes=notes,
            disturbed=disturbed,
        )

    def _headline(
        self,
        step: TrainingStep | ParallelStep,
        fit: MemoryFit,
        disturbed: DisturbedTime | None,
        mfu: float | None = None,
    ) -> str:
        what = f"{self.strategy} of {step.workload}"
        return headline_of(step, what, self.where, band=self.band, mfu=mfu, fit=fit, disturbed=disturbed)

    def _ask_layout(self, on_step: Callable[[str], None]) -> "StepUnderLayout":
        if self.global_batch is not None:
            raise LayoutError("`global_batch` applies to plain DistributedDataParallel alone; leave it out")
        self.wanted_samples(self.model)
        judged, libraries = self.training.step(self.job, self.reserve), self.libraries
        step = judged.step
        on_step(f"simulated {step.ranks} ranks")
        notes = [
            *self.remarks,
            *placement_notes(self.ranks, libraries.placement, libraries.placed),
            *judged.notes,
        ]
        disturbed = self._disturbed_layout(step.step_s, on_step) if self.disturbed_by else None
        cost = self.cost_of(step.step_s, step.samples, step.ranks)
        doubts = [note for note in notes if note not in step.timeline.assumes]
        return StepUnderLayout(
            question=self,
            headline=self._headline(step, judged.fit, disturbed, judged.mfu) + costing(self, [cost]),
            rests_on=[self.computing, *filter(None, ["; ".join(doubts)])],
            step=step,
            cost=cost,
            mesh={name: getattr(self.job.mesh, name) for name in DIMENSIONS},
            where=self.where,
            computing=self.computing,
            mfu=judged.mfu,
            hfu=judged.hfu,
            fit=judged.fit,
            notes=notes,
            disturbed=disturbed,
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

    def _disturbed_step(self, scaled: ScaledTraining, on_draw: Callable[[str], None]) -> DisturbedTime | None:
        training, first, disturbances = scaled.training, scaled.steps[0], self.disturbances
        library = first.library
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

    def step(self) -> TrainingStep | ParallelStep | RecordedStep:
        """Simulate the step alone, without its scaling efficiencies."""
        if self.recorded is not None:
            return self.recorded_training.step()
        question = self.simple
        if question.is_parallel:
            return simulate_parallel(question.job, question.libraries)
        library = question.bound()
        return question.data_parallel(library).step(library)

    def fit(self, step: TrainingStep | RecordedStep) -> MemoryFit | None:
        """Return how such a step's memory fits into a GPU; None where the GPU is unknown."""
        if isinstance(step, RecordedStep):
            return self.recorded_fit(step)
        library = self.bound()
        return self.data_parallel(library).fit([library], self.reserve)


def train(model: str, cluster: str, **options: Any) -> TrainingStep | ParallelStep | RecordedStep:
    """Return an undisturbed step of ``model`` on a cluster; ``options`` are other fields of `StepTime`."""
    return StepTime(model=model, cluster=cluster, **options).step()


@dataclass(frozen=True, kw_only=True)
class DataParallelSteps(Answer):
    """The answer under DistributedDataParallel: a step, or several.

    ``costs`` are what the training costs with each step, None where no amount to train on is given. ``where``
    is the cluster with its changes, ``computing`` the source of compute times, ``fit`` the fit into a GPU's
    ``memory``.
    """

    question: StepTime
    headline: str
    rests_on: Sequence[str]
    steps: Sequence[ScaledStep]
    costs: Sequence[Cost | None]
    where: str
    computing: str
    memory: Memory
    fit: MemoryFit
    notes: list[str]
    disturbed: DisturbedTime | None

    @property
    def inputs(self) -> dict[str, Any]:
        """The resolved inputs."""
        return self.question.understood(self.steps[0].library.name)

    @property
    def totals(self) -> dict[str, Any]:
        """A GPU's memory, whether the training fits, and the step's figures if there is one."""
        names = ("ranks", "samples", "step_s", "throughput") if len(self.steps) == 1 else ()
        within = within_s(self.question, self.steps[0].step.step_s) if names else {}
        return {
            "memory_bytes": {
                **asdict(self.memory),
                "total": self.fit.nbytes,
                **margin_of(self.fit),
                "allocated": [
                    {"stage": 0, "rank": 0, "ranks": self.steps[0].step.ranks, "bytes": self.fit.nbytes}
                ],
                "last_rank": self.fit.nbytes,
            },
            "fits": self.fit.verdict == FITS,
            "verdict": self.fit.verdict,
            "chance": self.fit.chance,
            **{name: self.steps[0].figures[name] for name in names},
            **within,
            **(cost_figure(self.costs[0]) if names else {}),
            **({"disturbed": self.disturbed.content()} if self.disturbed else {}),
        }

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The steps: seconds, samples, their buckets."""
        return [
            dict(one.figures) | cost_figure(cost) for one, cost in zip(self.steps, self.costs, strict=True)
        ]


@dataclass(frozen=True, kw_only=True)
class StepUnderLayout(Answer):
    """The answer under a layout.

    ``mesh`` has the number of ranks along each dimension, ``computing`` is the source of compute times.
    ``mfu`` and ``hfu`` are None where FLOPs or the peak are unknown.
    """

    question: StepTime
    headline: str
    rests_on: Sequence[str]
    step: ParallelStep
    cost: Cost | None
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
        return self.question.understood(self.question.libraries.name)

    @cached_property
    def would_fit(self) -> tuple[str, int] | None:
        """Options that would make it fit, and the peak with them; None if it fits or none is known."""
        return lighter(self.question.training, self.question.job.layout, self.fit)

    @cached_property
    def kept(self) -> list[list[dict[str, Any]]]:
        """What a micro-batch keeps in the layers of each stage's ranks, by term."""
        return [kept_bytes(self.question.job, place) for place in range(len(self.step.stages))]

    @cached_property
    def savings(self) -> list[dict[str, Any]]:
        """Single changes of the layout by the bytes that they save, with their step and throughput."""
        return savings(self.question.training, self.question.job.layout, self.step)

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
            **within_s(self.question, step.step_s),
            "throughput": step.throughput,
            "tokens_per_s": step.tokens_per_s,
            "mfu": self.mfu,
            "hfu": self.hfu,
            "gpu_hours_per_1e9_tokens": step.gpu_hours_per_1e9_tokens,
            **cost_figure(self.cost),
            "bubble_share": step.bubble_share,
            "exposed_s": step.exposed_s,
            "exposed_by_s": step.exposed_by_s,
            "memory_bytes": {
                **peak_of(worst),
                **margin_of(fit),
                "rank": worst.rank,
                "allocated": allocated(step.stages),
                "last_rank": step.stages[-1].peak.nbytes,
            },
            "fits": fit.verdict == FITS,
            "verdict": fit.verdict,
            "chance": fit.chance,
            "would_fit": self.would_fit and {"options": self.would_fit[0], "total": self.would_fit[1]},
            **({"disturbed": self.disturbed.content()} if self.disturbed else {}),
        }

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The stages: seconds, bytes."""
        return [stage_row(place, stage) for place, stage in enumerate(self.step.stages)]
