"""Predicted DistributedDataParallel steps against real ones, and the plan that validates them.

The plan's networks are emulated, and their parameters come from ping-pong alone; the layers sleep,
so compute is known; everything else is predicted before it is measured. Gradients are views of their
buckets: copying them back would take the cores that carry the network.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from ringside.real.collective.links import cluster, measured_network
from ringside.real.ddp.job import DdpJob, sleeping_layers
from ringside.sim.training.ddp.buckets import Bucketing, PowerSGD
from ringside.sim.workload.workload import Layer, Tensor, Workload
from ringside.topologies import star
from ringside.validation.compare_ddp import ComparedSteps, compare_steps
from ringside.validation.emulated.plan import MBIT
from ringside.validation.questions.ddp_measurement import measure_record

RANKS = 4
ITERATIONS = 4

STEP_MEDIAN, STEP_WORST, FINISH_MEDIAN = 0.02, 0.05, 0.06
"""The limits of the absolute relative errors of step times and of buckets' finishes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepCase:
    """One cell: links of ``bandwidth`` bytes/s, a bucket cap in MiB, and the process group's workers.

    ``powersgd`` compresses `compressible_layers`; without it `sleeping_layers` are trained.
    """

    bandwidth: float
    cap_mb: float
    workers: int
    powersgd: PowerSGD | None = None

    @property
    def name(self) -> str:
        """The figures of the cell."""
        workers = f"{self.workers} worker{'s' if self.workers > 1 else ''}"
        hook = f", PowerSGD of rank {self.powersgd.rank}" if self.powersgd else ""
        return f"{self.bandwidth / MBIT:g} Mb/s, {self.cap_mb:g} MiB, {workers}{hook}"

    @property
    def inputs(self) -> dict[str, float]:
        """The figures of the cell by name."""
        inputs = {"bandwidth": self.bandwidth, "bucket_cap_mb": self.cap_mb, "workers": self.workers}
        return {**inputs, "powersgd_rank": self.powersgd.rank} if self.powersgd else inputs

    @property
    def workload(self) -> Workload:
        """The layers to train."""
        return compressible_layers() if self.powersgd else sleeping_layers()

    @property
    def job(self) -> DdpJob:
        """The job that trains them."""
        return DdpJob(
            bucketing=Bucketing(self.cap_mb), gradient_as_bucket_view=True, workers=self.workers,
            comm_hook="powersgd" if self.powersgd else "allreduce", powersgd=self.powersgd or PowerSGD(),
            iterations=ITERATIONS,
        )  # fmt: skip


def compressible_layers(layers: int = 2, forward_s: float = 10e-3, backward_s: float = 0.5) -> Workload:
    """Return layers whose gradients PowerSGD splits into many bytes of P, of Q and of the rest.

    Long and narrow matrices take little arithmetic per byte sent.
    """
    shapes = (("tall", 2**20, 2**16), ("wide", 2**20, 2**4), ("vector", 2**17, None))
    return Workload(
        name=f"{layers} compressible layers",
        parameters=tuple(
            Tensor(f"layer{i}.{name}", count, rows=rows)
            for i in range(layers)
            for name, count, rows in shapes
        ),
        layers=tuple(
            Layer(f"layer{i}", (3 * i + 2, 3 * i + 1, 3 * i), forward_s, backward_s)
            for i in reversed(range(layers))
        ),
    )


def trials(
    rates: Sequence[float] = (100 * MBIT, 200 * MBIT, 500 * MBIT),
    caps_mb: Sequence[float] = (1, 5, 25),
    workers: Sequence[int] = (2, 1),
) -> list[StepCase]:
    """Return every combination, and PowerSGD at each rate, with a bucket per layer and one for both."""
    return [
        StepCase(bandwidth=rate, cap_mb=cap, workers=count)
        for rate in rates
        for count in workers
        for cap in caps_mb
    ] + [
        StepCase(bandwidth=rate, cap_mb=cap, workers=2, powersgd=PowerSGD(rank=4, start=2))
        for rate in rates
        for cap in (8, 25)
    ]


def judge(plan: Iterable[StepCase], on_judged: Callable[[StepCase, ComparedSteps], None]) -> None:
    """Predict and measure each trial; build one network per bandwidth.

    Raise `ValueError` if this machine cannot emulate a network, `ringside.real.launch.follow.MeasureError` if
    a measurement fails.
    """
    by_rate: dict[float, list[StepCase]] = {}
    for trial in plan:
        by_rate.setdefault(trial.bandwidth, []).append(trial)
    for rate, some in by_rate.items():
        with cluster(star(RANKS, bandwidth=rate)) as built:
            wires = measured_network(built, RANKS)
            for trial in some:
                measured = measure_record(trial.workload, trial.job, RANKS, built, wires)
                on_judged(trial, compare_steps(measured))


@dataclass(frozen=True, slots=True)
class Check:
    """One figure of a whole validation with its limit."""

    what: str
    error: float
    most: float

    @property
    def passed(self) -> bool:
        """Whether it is within its tolerance."""
        return self.error <= self.most

    @property
    def sentence(self) -> str:
        """The error beside its limit."""
        verdict = "pass" if self.passed else "FAIL"
        return f"{verdict}  {self.what}: {self.error:.1%} (at most {100 * self.most:g}%)"


def checks(judged: Sequence[ComparedSteps]) -> tuple[Check, ...]:
    """Return the three figures that have a tolerance."""
    steps = np.abs([one.step_error for one in judged])
    finishes = np.abs([error for one in judged for error in one.finish_errors])
    return (
        Check("median error of step times", float(np.median(steps)), STEP_MEDIAN),
        Check("worst error of step times", float(steps.max()), STEP_WORST),
        Check("median error of buckets' finishes", float(np.median(finishes)), FINISH_MEDIAN),
    )
