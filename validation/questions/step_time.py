"""How long a training step takes on a cluster."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

from ringside.sim.calibration import Calibration
from ringside.sim.libraries.find import LIBRARIES, Options, default_library, find_library
from ringside.sim.libraries.library import Library
from ringside.sim.program.groups import process_group
from ringside.sim.program.libraries import Libraries
from ringside.sim.questions.anchor import Anchor
from ringside.sim.questions.buckets import ByBuckets
from ringside.sim.questions.calibrated import anchor_option, calibration_option, scaled
from ringside.sim.questions.disturbances import Disturbances, parse_stragglers
from ringside.sim.questions.fields import OnCluster, network_option
from ringside.sim.questions.layout import ByLayout
from ringside.sim.questions.question import option, options_of
from ringside.sim.training.ddp.job import DataParallel
from ringside.sim.training.ddp.simulate import simulate_step
from ringside.sim.training.ddp.step import TrainingStep
from ringside.sim.training.job import ParallelJob
from ringside.sim.training.simulate import simulate_parallel
from ringside.sim.training.step import ParallelStep, StageTime
from ringside.sim.workload.devices import Device, device, device_of
from ringside.topologies.catalogue import split
from ringside.topologies.placement import PACKED, placement_told
from ringside.topologies.units import parse_size
from ringside.validation.questions.laid_out import LaidOut, laid_out, notes
from ringside.validation.questions.outcome import Outcome, outcomes
from ringside.validation.questions.trained import Trained, trained
from ringside.validation.questions.training import Training, batch_of

FORMULA = "model FLOPs: three times forward's matrix products, attention as the whole square of scores"
"""As Narayanan et al., arXiv:2104.04473, equation 3, without what checkpointing recomputes."""


@dataclass(frozen=True, kw_only=True)
class TrainingOnCluster(ByBuckets, ByLayout, OnCluster, Training):
    """A training on a cluster, and a library for its collectives.

    ``library`` ``auto`` is the cluster's default. ``global_batch`` are the samples of a step that strong
    scaling and a search of layouts have in common. A GPU keeps ``reserve`` bytes free, by default those of
    `ringside.sim.training.memory`.
    """

    library: str = option(
        "Whose times; auto is nccl where it is known.", metavar="auto|ideal|gloo|nccl", default="auto"
    )
    network: str = network_option()
    calibration: str | Calibration | None = calibration_option()
    anchor: Anchor | None = anchor_option()
    global_batch: int | None = option(
        "Samples of a step, for strong scaling.", default=None, default_text="the least for all counts"
    )
    reserve: int | None = option(
        "Memory of a GPU that must stay free to fit.",
        metavar="SIZE", default=None, default_text="the GPU's own", parse=parse_size,
    )  # fmt: skip

    @property
    def ddp(self) -> DataParallel:
        """The arguments of DistributedDataParallel."""
        return replace(super().ddp, no_sync=self.no_sync)

    @cached_property
    def gpu(self) -> Device:
        """What each rank computes on, by default the cluster's."""
        return device(device_of(self.cluster, self.settings) if self.device is None else self.device)

    @property
    def where(self) -> str:
        """The cluster with what is changed on it."""
        return " ".join([self.cluster, *(f"{name}={value}" for name, value in self.settings.items())])

    @cached_property
    def libraries(self) -> Libraries:
        """The libraries of all groups of the ranks."""
        name = default_library(self.cluster) if self.library == "auto" else self.library
        ranks = self.bound().ranks if self.ranks is None else self.ranks
        return Libraries(
            name, self.cluster, dict(self.settings), ranks, self.network, self.read_calibration,
            self.placement,
        )  # fmt: skip

    @cached_property
    def read_calibration(self) -> Calibration | str | None:
        """The calibration, scaled by the anchor's rows where there is one."""
        return scaled(self.calibration, self.anchor, self.cluster, self.settings)

    def bound(self, cluster: str | None = None) -> Library:
        """Return the library of all ranks together, on this cluster or on another of such machines."""
        return self._bound(cluster or self.cluster, self.ranks, self.placement)

    def _bound(self, cluster: str, ranks: int | None, placement: str) -> Library:
        name, options = self.library, Options(network=self.network, placement=placement)
        return find_library(
            None if name == "auto" else name, cluster, self.settings, ranks=ranks, options=options,
            calibration=self.read_calibration,
        )  # fmt: skip

    def understood(self, library: str, precision: str | None) -> dict[str, Any]:
        """Return the inputs with what is used by default; a library of measured machines has no network."""
        inputs = self.inputs() | {"library": library, "device": self.gpu.name, "precision": precision}
        if LIBRARIES[library].by_machines:
            del inputs["network"]
        return inputs


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
        return laid_out(self, self.gpu, self.libraries, self.simple.layout())

    @cached_property
    def job(self) -> ParallelJob:
        """The same as a job, of which `ringside.sim.training.simulate` makes a step."""
        return self.laid_out.job(self.simple.layout())

    def trained(self, library: Library) -> Trained:
        """Return the training under DistributedDataParallel alone, at its pace, by a library of `bound`."""
        cluster = split(self.cluster)[0] if LIBRARIES[library.name].by_machines else self.cluster
        return trained(self, self.gpu, lambda ranks: self._bound(cluster, ranks, PACKED))

    def ask(self) -> "DataParallelStep | LaidOutStep":
        """Simulate the step without what disturbs it."""
        question = self.simple
        if question.is_parallel:
            return LaidOutStep(question=question, step=simulate_parallel(question.job, question.libraries))
        library = question.bound()
        work, cap_mb = question.trained(library), question.ddp.bucketing.bucket_cap_mb
        (outcome,) = outcomes(question, work, [library], [cap_mb], question.global_batch)
        return DataParallelStep(question=question, outcome=outcome, precision=work.precision)

    def step(self) -> TrainingStep | ParallelStep:
        """Simulate the step alone, without its scaling efficiencies."""
        question = self.simple
        if question.is_parallel:
            return simulate_parallel(question.job, question.libraries)
        library = question.bound()
        work = question.trained(library)
        return simulate_step(work.sized(None), process_group(library), self.ddp, work.costs_on(library))


@dataclass(frozen=True, kw_only=True)
class DataParallelStep:
    """The answer under DistributedDataParallel; ``precision`` is None where layers are timed."""

    question: StepTime
    outcome: Outcome
    precision: str | None

    @property
    def inputs(self) -> dict[str, Any]:
        """The question as understood."""
        return self.question.understood(self.outcome.library.name, self.precision)

    @property
    def notes(self) -> list[str]:
        """What to know before the step is believed, a sentence each."""
        question, library = self.question, self.outcome.library
        placed = placement_told(question.ranks, question.placement, library.placed)
        return list(dict.fromkeys([*placed, *library.notes]))

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The step: seconds, samples, its buckets."""
        return [self.outcome.content]


@dataclass(frozen=True, kw_only=True)
class LaidOutStep:
    """The answer under a layout."""

    question: StepTime
    step: ParallelStep

    @property
    def inputs(self) -> dict[str, Any]:
        """The question as understood."""
        what = self.question.laid_out
        return self.question.understood(what.libraries.name, what.precision)

    @property
    def notes(self) -> list[str]:
        """What to know before the step is believed, a sentence each."""
        libraries = self.question.libraries
        placed = placement_told(self.question.ranks, libraries.placement, libraries.placed)
        return [*placed, *notes(libraries, self.question.job.mesh), *self.step.timeline.assumes]

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
        "memory_bytes": peak_of(stage),
    }


def peak_of(stage: StageTime) -> dict[str, Any]:
    """Return the peak of a stage's memory in plain values."""
    peak = stage.peak
    return {"total": peak.nbytes, "pools": dict(peak.pools), "at_s": peak.moment_s, "during": peak.operation}
