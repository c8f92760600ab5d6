"""Predicted DistributedDataParallel steps beside real ones on an emulated network.

The network's parameters come from ping-pong alone (`validation.links`); the layers sleep, so compute is
known; everything else is predicted before it is measured. Gradients are views of their buckets:
to copy them back would take the cores that carry the network.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from real.ddp import Measured, measure_ddp
from real.ddp_job import DdpJob
from real.emulated import cluster
from sim.libraries.gloo import RENDEZVOUS
from sim.training.buckets import Bucketing
from sim.training.ddp import simulate_step
from sim.training.job import DataParallel
from sim.training.process_group import SimulatedGroup
from sim.training.step import Step
from sim.workload import Layer, Tensor, Workload
from topologies import star
from validation.links import as_measured, measure_latency, measure_link
from validation.scenes import MBIT

RANKS = 4
ITERATIONS = 4
_PING_PONGS = 3  # what else a machine does makes a link seem slower, never faster


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One cell: links of ``bandwidth`` bytes/s, a bucket cap in MiB, and the process group's workers."""

    bandwidth: float
    cap_mb: float
    workers: int


@dataclass(frozen=True, slots=True)
class Judged:
    """A trial's prediction and its measurement; errors are predicted over measured, less one."""

    trial: Trial
    predicted: Step
    measured: Measured

    @property
    def step_error(self) -> float:
        """Of the step time, against the median of the measured ones."""
        return self.predicted.step_s / float(np.median(self._step_times)) - 1

    @property
    def finish_errors(self) -> list[float]:
        """Of each bucket's finish, against the median of the measured ones."""
        finishes = [[bucket.finish_s for bucket in step.buckets] for step in self.measured.steps]
        predicted = [bucket.finish_s for bucket in self.predicted.buckets]
        return [
            one / other - 1
            for one, other in zip(predicted, np.median(finishes, axis=0).tolist(), strict=True)
        ]

    @property
    def spread(self) -> float:
        """Half the way from the quickest measured step to the slowest, over the median."""
        times = self._step_times
        return (max(times) - min(times)) / (2 * float(np.median(times)))

    @property
    def _step_times(self) -> list[float]:
        return [step.step_s for step in self.measured.steps]


def sleeping_layers(layers: int = 16, forward_s: float = 4e-3, backward_s: float = 25e-3) -> Workload:
    """Equal layers of 0.5 MiB of parameters each."""
    return Workload(
        name=f"{layers} sleeping layers",
        parameters=tuple(Tensor(f"layer{i}.weight", 2**17) for i in range(layers)),
        layers=tuple(Layer(f"layer{i}", (i,), forward_s, backward_s) for i in reversed(range(layers))),
    )


def trials(
    rates: Sequence[float] = (100 * MBIT, 200 * MBIT, 500 * MBIT),
    caps_mb: Sequence[float] = (1, 5, 25),
    workers: Sequence[int] = (2, 1),
) -> list[Trial]:
    """Every combination."""
    return [
        Trial(bandwidth=rate, cap_mb=cap, workers=count)
        for rate in rates
        for count in workers
        for cap in caps_mb
    ]


def judge(plan: Iterable[Trial], on_judged: Callable[[Judged], None]) -> None:
    """Predict and measure each trial; one network is built for each bandwidth.

    Raise `ValueError` if this machine cannot emulate a network, `real.watch.MeasureError` if a
    measurement fails.
    """
    by_rate: dict[float, list[Trial]] = {}
    for trial in plan:
        by_rate.setdefault(trial.bandwidth, []).append(trial)
    workload, hosts = sleeping_layers(), tuple(range(RANKS))
    for rate, some in by_rate.items():
        with cluster(star(RANKS, bandwidth=rate)) as built:
            link = max((measure_link(built) for _ in range(_PING_PONGS)), key=lambda link: link.efficiency)
            latency = measure_latency(built, hosts)
            graph = as_measured(built.graph, hosts, link, latency)
            for trial in some:
                group = SimulatedGroup(
                    graph, RANKS, library="gloo", launch_s=RENDEZVOUS * latency, workers=trial.workers
                )
                bucketing = Bucketing(trial.cap_mb)
                predicted = simulate_step(
                    workload, group, DataParallel(bucketing=bucketing, gradient_as_bucket_view=True)
                )
                job = DdpJob(
                    bucketing=bucketing,
                    gradient_as_bucket_view=True,
                    workers=trial.workers,
                    iterations=ITERATIONS,
                )
                on_judged(Judged(trial, predicted, measure_ddp(workload, job, RANKS, network=built.network)))


def table(judged: Sequence[Judged]) -> str:
    """The cells as text in columns, and what they come to."""
    lines = [
        "#  Mb/s  workers  cap/MiB  buckets  measured/ms  spread  predicted/ms   step  finish: median  worst"
    ]
    for one in judged:
        finishes = np.abs(one.finish_errors)
        lines.append(
            f"{one.trial.bandwidth / MBIT:7.0f}{one.trial.workers:9}{one.trial.cap_mb:9g}"
            f"{len(one.predicted.buckets):9}{one.measured.median.step_s * 1e3:13.1f}{one.spread:8.1%}"
            f"{one.predicted.step_s * 1e3:14.1f}{one.step_error:+7.1%}"
            f"{np.median(finishes):16.1%}{finishes.max():7.1%}"
        )
    steps = np.abs([one.step_error for one in judged])
    finishes = np.abs([error for one in judged for error in one.finish_errors])
    lines.append(
        f"# step times: median error {np.median(steps):.1%}, worst {steps.max():.1%}; "
        f"bucket finishes: median {np.median(finishes):.1%}, worst {finishes.max():.1%}"
    )
    return "\n".join(lines) + "\n"
