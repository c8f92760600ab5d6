"""How long a training step takes on a cluster."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
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
from ringside.sim.training.ddp.memory import Memory, memory
from ringside.sim.training.ddp.simulate import simulate_disturbed, simulate_step
from ringside.sim.training.ddp.step import TrainingStep, busy
from ringside.sim.training.job import ParallelJob
from ringside.sim.training.layout import Layout
from ringside.sim.training.memory import FITS, Room, find_optimizer, room_of
from ringside.sim.training.mesh import DIMENSIONS
from ringside.sim.training.simulate import simulate_parallel, simulate_parallel_disturbed
from ringside.sim.training.step import ParallelStep, StageTime
from ringside.topologies.catalogue import split
from ringside.topologies.placement import PACKED, placement_told
from ringside.topologies.units import format_duration
from ringside.validation.questions.laid_out import LaidOut, laid_out, notes
from ringside.validation.questions.model import is_timed
from ringside.validation.questions.outcome import Outcome, outcomes
from ringside.validation.questions.trained import Trained, trained
from ringside.validation.questions.training import batch_of
from ringside.validation.questions.training_on_cluster import TrainingOnCluster

OPTIONS = {
    "strategy": "--strategy", "tensor": "--tp", "context": "--cp", "pipeline": "--pp", "shard": "--shard",
    "virtual": "--virtual", "micro_batch": "--micro-batch", "checkpointing": "--checkpointing",
    "sequence_parallel": "--sequence-parallel", "no_sync": "--no-sync",
    "overlap_grad_reduce": "--overlap-grad-reduce", "overlap_param_gather": "--overlap-param-gather",
    "expert": "--ep",
}  # fmt: skip
"""The options by what they set in a `Layout`."""

REMARKABLE = 0.05
"""The share of a step from which on a note tells the time of buffers' broadcasts."""


@dataclass(frozen=True, kw_only=True)
class StepTime(Disturbances, TrainingOnCluster):
    """How long a training step takes: of DistributedDataParallel, or under another layout."""

    schema: ClassVar[str] = "train"

    @cached_property
    def simple(self) -> Self:
        """The question without fields of a layout that change nothing."""
        return self.simplified(lambda: batch_of(self, self.gpu))

    @property
    def slowdown(self) -> Mapping[int, float]:
        """The stragglers of a step of DistributedDataParallel; under a layout they disturb it."""
        return {} if self.simple.is_parallel else parse_stragglers(self.straggler)

    @property
    def disturbances(self) -> Disturbances:
        """What disturbs the step, besides its ``slowdown``."""
        values = {one.name: getattr(self, one.name) for one in options_of(Disturbances)}
        return Disturbances(**values if self.simple.is_parallel else values | {"straggler": ()})

    @cached_property
    def laid_out(self) -> LaidOut:
        """The training under its layout, at its pace."""
        return laid_out(self, self.gpu, self.libraries, self._layout)

    @cached_property
    def job(self) -> ParallelJob:
        """The same as a job, of which `ringside.sim.training.simulate` makes a step."""
        return self.laid_out.job(self._layout)

    @cached_property
    def _layout(self) -> Layout:
        return self.simple.layout()

    def trained(self, library: Library) -> Trained:
        """Return the training under DistributedDataParallel alone, at its pace, by a library of `bound`."""
        cluster = split(self.cluster)[0] if LIBRARIES[library.name].by_machines else self.cluster
        return trained(self, self.gpu, lambda ranks: self._bound(cluster, ranks, PACKED))

    def ask(self, *, on_step: Callable[[str], None] = lambda _: None) -> "DataParallelSteps | LaidOutStep":
        """Simulate the step, and the draws of a disturbed one; ``on_step`` is called after each."""
        question = self.simple
        if not question.is_parallel:
            return question.ask_each([self.cluster], [self.ddp.bucketing.bucket_cap_mb], on_step=on_step)
        step = simulate_parallel(question.job, question.libraries)
        on_step(f"simulated {step.ranks} ranks")
        return LaidOutStep(
            question=question, step=step, disturbed=question._disturbed_layout(step.step_s, on_step)
        )

    def ask_each(
        self,
        clusters: Sequence[str],
        caps: Sequence[float | None],
        *,
        on_step: Callable[[str], None] = lambda _: None,
    ) -> "DataParallelSteps":
        """Simulate a step of DistributedDataParallel on each cluster with each bucket cap."""
        libraries, ddp = [self.bound(one) for one in clusters], self.ddp
        work = self.trained(libraries[0])
        steps = outcomes(self, work, libraries, caps, self.global_batch, on_step)
        uncompressed_s = None
        if ddp.compresses:
            plain = replace(ddp, comm_hook="allreduce")
            group, costs = process_group(libraries[0]), work.costs_on(libraries[0])
            uncompressed_s = simulate_step(work.sized(None), group, plain, costs).step_s
        return DataParallelSteps(
            question=self,
            outcomes=steps,
            precision=work.precision,
            memory=memory(work.sized(None), ddp, find_optimizer(self.optimizer)),
            room=room_of(self.gpu, self.reserve),
            uncompressed_s=uncompressed_s,
            disturbed=self._disturbed_step(work, libraries[0], steps[0].step.step_s, on_step),
        )

    def _disturbed_step(
        self, work: Trained, library: Library, undisturbed_s: float, on_draw: Callable[[str], None]
    ) -> DisturbedTime | None:
        disturbances, ddp = self.disturbances, self.ddp
        if disturbances.disturbance is None:
            return None
        disturbances.disturbance.check_ranks(library.ranks)
        workload, costs = work.sized(None), work.costs_on(library)
        group = process_group(library_under(library, disturbances.disturbance))
        return draw_programs(
            disturbances, lambda draw: simulate_disturbed(workload, group, ddp, costs, draw), undisturbed_s,
            on_draw,
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
        work = question.trained(library)
        return simulate_step(work.sized(None), process_group(library), self.ddp, work.costs_on(library))


@dataclass(frozen=True, kw_only=True)
class DataParallelSteps:
    """The answer under DistributedDataParallel: a step, or several.

    ``precision`` is None where layers are timed. ``uncompressed_s`` is the first step before PowerSGD begins.
    """

    question: StepTime
    outcomes: Sequence[Outcome]
    precision: str | None
    memory: Memory
    room: Room
    uncompressed_s: float | None
    disturbed: DisturbedTime | None

    @property
    def inputs(self) -> dict[str, Any]:
        """The resolved inputs."""
        return self.question.understood(self.outcomes[0].library.name, self.precision)

    @property
    def verdict(self) -> str:
        """Whether a GPU holds the training, of `ringside.sim.training.memory`."""
        return self.room.verdict(self.memory.total)

    @property
    def notes(self) -> list[str]:
        """The sources of times, the placement of ranks, and what is remarkable, a sentence each."""
        question, first = self.question, self.outcomes[0]
        sentences = placement_told(question.ranks, question.placement, first.library.placed)
        sentences += [note for one in self.outcomes for note in one.library.notes]
        step = first.step
        broadcasts = busy(run for run in step.others if run.name.startswith("buffers"))
        if broadcasts > REMARKABLE * step.step_s:
            sentences.append(
                f"the broadcast of buffers before forward takes {format_duration(broadcasts, 4)} of the "
                f"step's {format_duration(step.step_s, 4)}; --no-broadcast-buffers leaves it out"
            )
        if is_timed(question.model) and not self.memory.activations:
            sentences.append(f"memory is without activations, of which {question.model} says nothing")
        if self.uncompressed_s is not None:
            sentences.append(
                f"in the first {question.ddp.powersgd.start:,} steps PowerSGD averages gradients whole: "
                f"{format_duration(self.uncompressed_s, 4)} a step"
            )
        return list(dict.fromkeys(sentences))

    @property
    def totals(self) -> dict[str, Any]:
        """A GPU's memory, whether the training fits, and the step's figures if there is one."""
        return {
            "memory_bytes": {
                **asdict(self.memory),
                "total": self.memory.total,
                **_room(self.room, self.memory.total),
            },
            "fits": self.verdict == FITS,
            "verdict": self.verdict,
            **(self.outcomes[0].totals if len(self.outcomes) == 1 else {}),
            **({"disturbed": self.disturbed.content()} if self.disturbed else {}),
        }

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The steps: seconds, samples, their buckets."""
        return [one.content for one in self.outcomes]


@dataclass(frozen=True, kw_only=True)
class LaidOutStep:
    """The answer under a layout."""

    question: StepTime
    step: ParallelStep
    disturbed: DisturbedTime | None = None

    @property
    def inputs(self) -> dict[str, Any]:
        """The resolved inputs."""
        training = self.question.laid_out
        return self.question.understood(training.libraries.name, training.precision)

    @property
    def notes(self) -> list[str]:
        """The placement of ranks and the sources of times, a sentence each."""
        libraries = self.question.libraries
        placed = placement_told(self.question.ranks, libraries.placement, libraries.placed)
        return [*placed, *notes(libraries, self.question.job.mesh), *self.step.timeline.assumes]

    @cached_property
    def room(self) -> Room:
        """The memory of a GPU."""
        return room_of(self.question.gpu, self.question.reserve)

    @property
    def verdict(self) -> str:
        """Whether a GPU holds the training, of `ringside.sim.training.memory`."""
        return self.room.verdict(self.step.peak_nbytes)

    @cached_property
    def would_fit(self) -> tuple[str, int] | None:
        """Options that would make it fit, and bytes of the peak then; None if it fits or none is known."""
        layout = self.question.job.layout
        fitting = (
            None if self.verdict == FITS else advice(layout, self.question.laid_out.job, self.room.usable)
        )
        return fitting and (_changes(layout, fitting[0]), fitting[1])

    @property
    def utilization(self) -> tuple[float | None, float | None]:
        """MFU and HFU, where FLOPs and the peak are known."""
        precision = self.question.laid_out.precision
        return (None, None) if precision is None else self.step.utilization(self.question.gpu.peak(precision))

    @property
    def totals(self) -> dict[str, Any]:
        """Figures of the whole step: seconds, samples, bytes."""
        step, mesh = self.step, self.question.job.mesh
        mfu, hfu = self.utilization
        worst = max(step.stages, key=lambda stage: stage.peak.nbytes)
        return {
            "mesh": {name: mesh.degree(name) for name in DIMENSIONS},
            "micro_batches": step.micro_batches,
            "ranks": step.ranks,
            "samples": step.samples,
            "tokens": step.tokens,
            "step_s": step.step_s,
            "throughput": step.throughput,
            "tokens_per_s": step.tokens_per_s,
            "mfu": mfu,
            "hfu": hfu,
            "gpu_hours_per_1e9_tokens": step.gpu_hours_per_1e9_tokens,
            "bubble_share": step.bubble_share,
            "exposed_s": step.exposed_s,
            "exposed_by_s": step.exposed_by_s,
            "memory_bytes": {**_peak(worst), **_room(self.room, worst.peak.nbytes), "rank": worst.rank},
            "fits": self.verdict == FITS,
            "verdict": self.verdict,
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


def _room(room: Room, nbytes: int) -> dict[str, int]:
    """Return a GPU's memory, its reserve and the rest."""
    return {"of_gpu": room.memory, "reserve": room.reserve, "margin": room.margin(nbytes)}


def _changes(before: Layout, after: Layout) -> str:
    """Return the options that turn one layout into another."""
    changed = [
        (option, getattr(after, name))
        for name, option in OPTIONS.items()
        if getattr(after, name) != getattr(before, name) and getattr(after, name) is not None
    ]
    words = {True: "{}", False: "without {}"}
    return " ".join(
        words[value].format(option) if isinstance(value, bool) else f"{option} {value}"
        for option, value in changed
    )
