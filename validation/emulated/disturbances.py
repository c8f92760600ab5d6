"""Disturbed steps of DistributedDataParallel on emulated networks: quantiles of draws and of real runs.

A network's parameters come from ping-pong alone, before anything disturbs it; a slow link is
emulated as such, and passed to the prediction as by ``--slow-link``. Layers sleep, so compute is known;
disturbances of it are known by their distribution, not by their draws.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from math import inf

import numpy as np

from ringside.real.collective.links import cluster, measured_network
from ringside.real.ddp.job import DdpJob, sleeping_layers
from ringside.real.ddp.measure import measure_ddp
from ringside.real.launch.forks import Forks
from ringside.sim.disturbance import Disturbance, Drawn, Lognormal, Outcome, SlowLink, study
from ringside.sim.libraries.rules import GLOO
from ringside.sim.program.groups import SimulatedGroup
from ringside.sim.training.ddp.buckets import Bucketing
from ringside.sim.training.ddp.job import Costs, DataParallel
from ringside.sim.training.ddp.simulate import simulate_disturbed, simulate_step
from ringside.sim.training.ddp.step import MeasuredNetwork
from ringside.topologies import Topology, star
from ringside.topologies.file import loads
from ringside.validation.emulated.plan import MBIT
from ringside.validation.emulated.training import Check

RANKS = 4
BANDWIDTH = 200 * MBIT
BUCKETS = Bucketing(1)
STEPS = 60
DRAWS = 400
SEED = 20

MEDIAN, P95 = 0.04, 0.10
"""The limits of the absolute relative errors of a case's median step and of its 95th percentile."""


@dataclass(frozen=True, slots=True)
class DisturbedCase:
    """A disturbance of steps, with a name."""

    name: str
    disturbance: Disturbance = field(default_factory=Disturbance)


CASES = (
    DisturbedCase("slow rank 1.2x", Disturbance(slow_ranks={1: 1.2})),
    DisturbedCase("slow rank 2x", Disturbance(slow_ranks={1: 2.0})),
    DisturbedCase("slow link 2x", Disturbance(slow_links=(SlowLink("gpu2", "switch", 2.0),))),
    DisturbedCase("jitter 0.1", Disturbance(jitter=Lognormal(0.1))),
    DisturbedCase("jitter 0.3", Disturbance(jitter=Lognormal(0.3))),
    DisturbedCase("jitter 0.3, slow rank 1.2x", Disturbance(jitter=Lognormal(0.3), slow_ranks={1: 1.2})),
)
"""The validated cases."""


@dataclass(frozen=True, slots=True)
class ComparedDraws:
    """Predicted draws against real steps; errors are predicted over measured, minus one."""

    drawn: Drawn
    measured_s: tuple[float, ...]

    def measured(self, share: float) -> float:
        """Return the quantile of the real steps."""
        return float(np.quantile(self.measured_s, share))

    def error(self, share: float) -> float:
        """Return the error of a quantile."""
        return self.drawn.quantile(share) / self.measured(share) - 1

    @property
    def quantiles(self) -> dict[str, float]:
        """The median and the 95th percentile, measured and predicted, with their errors."""
        return {
            f"{word}_{name}": value(share)
            for name, share in (("median", 0.5), ("p95", 0.95))
            for word, value in (
                ("measured", self.measured), ("predicted", self.drawn.quantile), ("error", self.error)
            )
        }  # fmt: skip


def predict(case: DisturbedCase, wires: MeasuredNetwork, draws: int = DRAWS) -> Drawn:
    """Predict the case's steps, from ping-pong on the undisturbed network."""
    calm = loads(wires.topology, "the measured topology")

    def group(graph: Topology) -> SimulatedGroup:
        return SimulatedGroup(
            graph, RANKS, library=wires.library, launch_s=wires.launch_s, workers=GLOO.workers
        )

    disturbed = group(case.disturbance.links(calm))
    work, ddp = sleeping_layers(), _ddp()
    costs = Costs(memory_bandwidth=inf)
    undisturbed_s = simulate_step(work, group(calm), ddp, costs).step_s
    return study(
        case.disturbance,
        lambda draw: Outcome(simulate_disturbed(work, disturbed, ddp, costs, draw).makespan_s, {}),
        undisturbed_s,
        draws=draws,
        seed=SEED,
    )


def judge(
    cases: Iterable[DisturbedCase],
    on_judged: Callable[[DisturbedCase, ComparedDraws], None],
    steps: int = STEPS,
) -> None:
    """Predict and really run each case; build a network for each case with its own links.

    Raise `ValueError` if this machine cannot emulate a network, `ringside.real.launch.follow.MeasureError` if
    a measurement fails.
    """
    with Forks() as forks:
        calm = star(RANKS, bandwidth=BANDWIDTH)
        with cluster(calm, forks) as built:
            wires = measured_network(built, RANKS)
        for case in cases:
            drawn = predict(case, wires)
            with cluster(case.disturbance.links(calm), forks) as built:
                measured = measure_ddp(
                    sleeping_layers(), _job(case.disturbance, steps), RANKS, network=built.network
                )
            on_judged(case, ComparedDraws(drawn, tuple(step.step_s for step in measured.steps)))


def checks(judged: Sequence[tuple[DisturbedCase, ComparedDraws]]) -> tuple[Check, ...]:
    """Return the two figures per case that have a tolerance."""
    return tuple(
        Check(f"{case.name}: {word}", abs(one.error(share)), most)
        for case, one in judged
        for word, share, most in (("median", 0.5, MEDIAN), ("p95", 0.95, P95))
    )


def _ddp() -> DataParallel:
    return DataParallel(bucketing=BUCKETS, gradient_as_bucket_view=True, comm_hook="allreduce")


def _job(disturbance: Disturbance, steps: int) -> DdpJob:
    jitter = disturbance.jitter
    return DdpJob(
        bucketing=BUCKETS, gradient_as_bucket_view=True, iterations=steps,
        slowdown=dict(disturbance.slow_ranks), sigma=jitter.sigma if isinstance(jitter, Lognormal) else 0.0,
        seed=SEED + 1,
    )  # fmt: skip
