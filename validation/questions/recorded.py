"""The training step that a script was recorded doing, on any cluster: ``model`` is its file."""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from ringside.sim.compute.grids import read_rates
from ringside.sim.disturbance.study import libraries_under
from ringside.sim.effort import uncollected
from ringside.sim.goodput.cost import Cost
from ringside.sim.libraries.find import LIBRARIES
from ringside.sim.questions.answer import AnswerOnDemand
from ringside.sim.questions.disturbances import Disturbances
from ringside.sim.questions.disturbed_time import DisturbedTime, draw_programs
from ringside.sim.questions.question import QuestionError, options_of
from ringside.sim.recorded.file import is_job_file, read_job
from ringside.sim.recorded.job import GroupCall, RecordedJob
from ringside.sim.recorded.prices import OperatorPrices
from ringside.sim.recorded.ranks import on_ranks
from ringside.sim.recorded.step import RecordedStep, RecordedTraining, posted
from ringside.sim.training.ddp.job import expected_maximum
from ringside.sim.training.ddp.scaling import OPERATOR_S, SPREAD, contention
from ringside.sim.training.memory.room import FITS, MemoryFit, fit_of
from ringside.sim.training.step import StageTime
from ringside.sim.workload.devices import Device
from ringside.topologies.placement import placement_notes
from ringside.topologies.units import format_duration
from ringside.validation.questions.launched import LaunchedTraining
from ringside.validation.questions.priced import cost_figure, costing, headline_of

APPLIES = {
    "model", "cluster", "settings", "ranks", "placement", "library", "network", "calibration", "anchor",
    "device", "compute_efficiency", "attention_efficiency", "power_cap", "products", "measured", "spread",
    "contention", "host_ms", "reserve", "tokens", "samples", "price",
    *(one.name for one in fields(Disturbances)),
}  # fmt: skip
"""Options of a recorded step; all else is as its script has it."""


@dataclass(frozen=True, kw_only=True)
class RecordedOrLaunched(LaunchedTraining):
    """A training on a cluster; with a recorded job as its ``model`` the script decides all else."""

    def __post_init__(self) -> None:
        if not (isinstance(self.model, str) and is_job_file(self.model)):
            super().__post_init__()
            return
        seq = self.seq
        object.__setattr__(self, "seq", None)  # which would become part of a model's name
        super().__post_init__()
        others = [one.name for one in options_of(self) if one.name not in APPLIES]
        named = ["seq"] * (seq is not None) + self.changed(*others)
        if named:
            raise QuestionError(
                f"`{named[0]}` is not an option of {self.model}, a recorded step that is as its script was; "
                "leave it out, or change the script and record it again"
            )
        assert self.recorded is not None
        object.__setattr__(self, "ranks", self.recorded.ranks)

    @cached_property
    def recorded(self) -> RecordedJob | None:
        """The recorded job, on the ranks that are asked for; None if the model is none."""
        if not (isinstance(self.model, str) and is_job_file(self.model)):
            return None
        job = read_job(self.model)
        return job if self.ranks is None else on_ranks(job, self.ranks)

    @cached_property
    def own_gpu(self) -> Device | None:
        """The GPU of each rank; None where the cluster's is unknown, and none is named."""
        try:
            return self.gpu
        except ValueError:
            if self.device is not None or self.power_cap is not None:
                raise
            return None

    @cached_property
    def recorded_training(self) -> RecordedTraining:
        """The recorded job on the cluster, at its pace."""
        assert self.recorded is not None
        gpu = self.own_gpu
        if gpu is None:
            return RecordedTraining(self.recorded, self.libraries)
        prices = OperatorPrices(
            gpu, self.compute_efficiency, self.attention_efficiency,
            None if self.products is None else read_rates(Path(self.products)),
        )  # fmt: skip
        spread = SPREAD if self.spread is None else self.spread
        own = RecordedTraining(
            self.recorded, self.libraries, prices.seconds,
            factor=1 + spread * expected_maximum(self.recorded.ranks),
            contention=self._contention(self.recorded, gpu), launch_s=self._launch_s,
        )  # fmt: skip
        if self.throughput is None:
            return own
        from ringside.validation.pace import recorded_pace

        return replace(own, factor=own.factor * recorded_pace(own, *self.throughput))

    @property
    def _launch_s(self) -> float:
        """The seconds that a host takes to launch an operator."""
        assert self.recorded is not None
        return OPERATOR_S if self.host_ms is None else self.host_ms * 1e-3 / max(posted(self.recorded), 1)

    def _contention(self, job: RecordedJob, gpu: Device) -> float:
        """Return the share of compute that a collective of the largest group takes."""
        if self.contention is not None:
            return self.contention
        groups = {group.name: group for group in job.groups}
        called = {
            (action.group, groups[action.group].of(one.rank) or ())
            for one in job.recorded
            for action in one.actions
            if isinstance(action, GroupCall)
        }
        _, largest = max(called, key=lambda group: (len(group[1]), group), default=("", ()))
        return contention(self.libraries.of(largest), gpu) if len(largest) > 1 else 0.0

    @property
    def recorded_computing(self) -> str:
        """The source of operators' times."""
        gpu = self.own_gpu
        if gpu is None:
            return f"communication alone: {self.cluster}'s GPUs are unknown; add for example --device h100"
        share = self.compute_efficiency
        paced = "" if share is None else f", products at {share:.0%} of its peak"
        text = f"recorded operators by kernels on {gpu.name}, launched one by one{paced}"
        if self.throughput:
            rate, ranks = self.throughput
            text += f", at the pace of {rate:g} samples/s measured on {ranks} ranks"
        return text

    def ask_recorded(
        self, disturbances: Disturbances, on_step: Callable[[str], None] = lambda _: None
    ) -> "StepOfRecording":
        """Simulate the recorded step, and the draws of a disturbed one."""
        job, libraries = self.recorded, self.libraries
        assert job is not None
        self.cost_of(1.0, job.samples, job.ranks)  # which refuses amounts that cannot be counted
        with uncollected():
            training = self.recorded_training
            step = training.step()
        on_step(f"simulated {step.ranks} ranks")
        disturbed = None
        if disturbances.disturbance is not None:
            disturbances.disturbance.check_ranks(job.ranks)
            there = replace(training, libraries=libraries_under(libraries, disturbances.disturbance))
            disturbed = draw_programs(disturbances, there.disturbed, step.step_s, on_step)
        return StepOfRecording(
            question=self, step=step, where=self.where, computing=self.recorded_computing,
            fit=self.recorded_fit(step),
            notes=[*_limited(training, step), *self._recorded_notes(job), *step.timeline.assumes],
            disturbed=disturbed, cost=self.cost_of(step.step_s, job.samples, step.ranks),
        )  # fmt: skip

    def recorded_fit(self, step: RecordedStep) -> MemoryFit | None:
        """Return how the recorded job fits into a GPU; None where the GPU is unknown."""
        gpu, nccl = self.own_gpu, self.recorded_training.groups_nbytes()
        return None if gpu is None else fit_of(step.peak_nbytes, gpu, self.reserve, nccl, None)

    def _recorded_notes(self, job: RecordedJob) -> list[str]:
        libraries = self.libraries
        notes = placement_notes(job.ranks, libraries.placement, libraries.placed)
        if min(job.per_node, job.ranks) != libraries.machine:
            notes.append(
                f"recorded with {job.per_node} ranks on a node; {self.cluster} has {libraries.machine}"
            )
        unsteady = [f"rank {one.rank}: {one.unsteady}" for one in job.recorded if one.unsteady]
        title = LIBRARIES[libraries.name].title
        whole = libraries.of(tuple(range(job.ranks))) if job.ranks > 1 else None
        if whole is not None and whole.has_tuner:
            notes += [f"{title} of all ranks {whole.basis}", *whole.notes]
        return list(dict.fromkeys([*self.recorded_training.notes, *notes, *job.notes, *unsteady]))


MOST = 0.2
"""Share of a step that a fast host takes to launch it, from which others may limit it: an operator took 27 to
52 us on virtual machines with an H100 and an H200 (``benchmarks/results/one_gpu.jsonl``)."""


def _limited(training: RecordedTraining, step: RecordedStep) -> list[str]:
    """Return who limits the step, where that is the host."""
    launching_s = training.launching_s
    if launching_s < MOST * step.step_s:
        return []
    return [
        f"may be limited by the host: launching all operators takes {format_duration(launching_s, 3)}, up to "
        "five times as long on a slow host, which --host-ms says; larger batches, torch.compile or fused "
        "optimizers launch fewer"
    ]


@dataclass(frozen=True, kw_only=True)
class StepOfRecording(AnswerOnDemand):
    """The answer for a recorded job.

    ``fit`` is None where the GPU is unknown, ``cost`` where no amount to train on is given.
    """

    question: RecordedOrLaunched
    step: RecordedStep
    cost: Cost | None
    where: str
    computing: str
    fit: MemoryFit | None
    notes: list[str]
    disturbed: DisturbedTime | None

    @property
    def headline(self) -> str:
        """The step's time, and what the training costs."""
        what = f"{self.step.workload} as recorded"
        sentence = headline_of(self.step, what, self.where, band=None, fit=self.fit, disturbed=self.disturbed)
        return sentence + costing(self.question, [self.cost])

    @property
    def grounds(self) -> str:
        """The source of compute times."""
        return self.computing

    @property
    def doubts(self) -> list[str]:
        """The source of collectives, who limits the step, and what was assumed of the job."""
        return [note for note in self.notes if note not in self.step.timeline.assumes]

    @property
    def inputs(self) -> dict[str, Any]:
        """The resolved inputs that apply."""
        question, gpu = self.question, self.question.own_gpu
        own = {name: value for name, value in question.inputs().items() if name in APPLIES}
        inputs = own | {"library": question.libraries.name, "device": gpu and gpu.name}
        if LIBRARIES[question.libraries.name].by_machines:
            del inputs["network"]
        return inputs

    @property
    def totals(self) -> dict[str, Any]:
        """Figures of the whole step: seconds, samples, bytes."""
        step, fit = self.step, self.fit
        worst = max(step.stages, key=lambda stage: stage.peak.nbytes)
        margin = {} if fit is None else {
            "of_gpu": fit.memory, "reserve": fit.reserve, "margin": fit.margin,
            "beside": {**fit.beside, "communicators": dict(fit.nccl)},
        }  # fmt: skip
        return {
            "command": list(self.question.recorded.command) if self.question.recorded else [],
            "ranks": step.ranks,
            "samples": step.samples,
            "step_s": step.step_s,
            "throughput": step.throughput,
            **cost_figure(self.cost),
            "waiting_share": step.bubble_share,
            "exposed_s": step.exposed_s,
            "exposed_by_s": dict(step.exposed_by_s),
            "memory_bytes": {**peak_of(worst), **margin, "rank": worst.rank},
            "fits": fit and fit.verdict == FITS,
            "verdict": fit and fit.verdict,
            "chance": fit and fit.chance,
            **({"disturbed": self.disturbed.content()} if self.disturbed else {}),
        }

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The roles: seconds, bytes."""
        return [_row(stage) for stage in self.step.stages]


def peak_of(stage: StageTime) -> dict[str, Any]:
    """Return a peak in plain values."""
    peak = stage.peak
    return {
        "total": peak.nbytes,
        "pools": dict(peak.by_pool),
        "at_s": peak.moment_s,
        "during": peak.operation,
    }


def _row(stage: StageTime) -> dict[str, Any]:
    return {
        "rank": stage.rank,
        "alike": stage.ranks,
        "compute_s": stage.compute_s,
        "contention_s": stage.contention_s,
        "exposed_s": stage.exposed_s,
        "exposed_by_s": dict(stage.exposed_by_s),
        "waiting_s": stage.bubble_s,
        "communication_s": stage.communication_s,
        "communication_by_s": dict(stage.communication_by_s),
        "memory_bytes": peak_of(stage),
    }


def stage_row(place: int, stage: StageTime) -> dict[str, Any]:
    """Return a stage in plain values: seconds, bytes."""
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
