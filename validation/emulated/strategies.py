"""Real steps of FSDP, pipelines and tensor parallelism on an emulated network, against their programs.

The network's parameters come from ping-pong alone, the host's own work from steps that move nothing; layers
sleep, so compute is known.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ringside.real.collective.links import cluster, measured_network
from ringside.real.launch.forks import Forks
from ringside.real.training.job import ExpertLayers, Sleeping, TrainingJob
from ringside.real.training.record import measure_training
from ringside.topologies import star
from ringside.validation.emulated.plan import MBIT
from ringside.validation.emulated.training import Check
from ringside.validation.training.compare import ComparedTraining, compare_training

RANKS = 4
BANDWIDTH = 100 * MBIT
ITERATIONS = 5

MEDIAN, WORST = 0.03, 0.06
"""The limits of the absolute relative errors of step times."""

CALM = 0.04
RERUNS = 2
"""Steps that spread more than `CALM` run again, at most twice; the run with the smallest spread counts."""

WEIGHTS = Sleeping(layers=4, hidden=512, inner=512, rows=8, forward_s=0.03, backward_s=0.06)
"""Large parameters, small activations."""

ACTIVATIONS = Sleeping(layers=8, hidden=512, inner=16, rows=256, forward_s=0.02, backward_s=0.04)
"""Small parameters, large activations."""


@dataclass(frozen=True, slots=True)
class StrategyCase:
    """A job with a name."""

    name: str
    job: TrainingJob


_FSDP = TrainingJob(model=WEIGHTS, shard=RANKS, iterations=ITERATIONS)
_PIPELINE = TrainingJob(model=ACTIVATIONS, pipeline=RANKS, micro_batches=8, iterations=ITERATIONS)
_TENSOR = TrainingJob(
    model=replace(ACTIVATIONS, layers=4, rows=512, inner=4, forward_s=0.03, backward_s=0.06),
    tensor=RANKS,
    iterations=ITERATIONS,
)

_CONTEXT = TrainingJob(
    model=Sleeping(layers=3, hidden=16, inner=256, rows=1024, forward_s=0.1, backward_s=0.2),
    context=RANKS,
    iterations=ITERATIONS,
)

_REDUNDANT = TrainingJob(model=WEIGHTS, strategy="zero_redundancy", replicate=RANKS, iterations=ITERATIONS)
_EXPERTS = TrainingJob(model=ExpertLayers(), replicate=RANKS, expert=RANKS, iterations=ITERATIONS)

CASES = (
    StrategyCase("fsdp", _FSDP),
    StrategyCase("fsdp kept after forward", replace(_FSDP, reshard=False)),
    StrategyCase("fsdp accumulating", replace(_FSDP, micro_batches=2, no_sync=True)),
    StrategyCase("fsdp reducing each micro-batch", replace(_FSDP, micro_batches=2)),
    StrategyCase("fsdp in bfloat16", replace(_FSDP, param_dtype="bfloat16")),
    StrategyCase("gpipe", replace(_PIPELINE, schedule="gpipe")),
    StrategyCase("1f1b", replace(_PIPELINE, schedule="1f1b")),
    StrategyCase("interleaved 1f1b", replace(_PIPELINE, schedule="interleaved1f1b", virtual=2)),
    StrategyCase("looped bfs", replace(_PIPELINE, schedule="looped_bfs", virtual=2)),
    StrategyCase(
        "interleaved zero bubble", replace(_PIPELINE, schedule="interleaved_zero_bubble", virtual=2)
    ),
    StrategyCase("zb-h1", replace(_PIPELINE, schedule="zb-h1")),
    StrategyCase("zbv", replace(_PIPELINE, schedule="zbv", virtual=2)),
    StrategyCase("dualpipev", replace(_PIPELINE, schedule="dualpipev", virtual=2)),
    StrategyCase("tensor", _TENSOR),
    StrategyCase("tensor, sequence parallel", replace(_TENSOR, sequence_parallel=True)),
    StrategyCase("fsdp with tensor", replace(_FSDP, shard=2, tensor=2)),
    StrategyCase(
        "fsdp with tensor, sequence parallel", replace(_FSDP, shard=2, tensor=2, sequence_parallel=True)
    ),
    StrategyCase("context, ring", replace(_CONTEXT, context_method="ring")),
    StrategyCase("context, zigzag", replace(_CONTEXT, context_method="zigzag")),
    StrategyCase("context, all-gather", replace(_CONTEXT, context_method="all-gather")),
    StrategyCase("context, ulysses", replace(_CONTEXT, context_method="ulysses")),
    StrategyCase("zero redundancy", _REDUNDANT),
    StrategyCase("zero redundancy accumulating", replace(_REDUNDANT, micro_batches=2, no_sync=True)),
    StrategyCase("experts", _EXPERTS),
    StrategyCase("experts, uneven", replace(_EXPERTS, model=ExpertLayers(skew=0.25))),
    StrategyCase("experts in pairs", replace(_EXPERTS, expert=2)),
)
"""The validated cases."""

SHORT = tuple(case for case in CASES if case.name in ("fsdp", "1f1b", "zbv", "tensor"))


def judge(cases: Sequence[StrategyCase], on_judged: Callable[[StrategyCase, ComparedTraining], None]) -> None:
    """Predict and really run each case, all on one network.

    Raise `ValueError` if this machine cannot emulate a network, `ringside.real.launch.follow.MeasureError` if
    a measurement fails.
    """
    with Forks() as forks, cluster(star(RANKS, bandwidth=BANDWIDTH), forks) as built:
        wires = measured_network(built, RANKS)
        for case in cases:
            measured = measure_training(case.job, cluster=built, wires=wires)
            for _ in range(RERUNS):
                if measured.spread > CALM:
                    again = measure_training(case.job, cluster=built, wires=wires)
                    measured = min(measured, again, key=lambda record: record.spread)
            on_judged(case, compare_training(measured))


def checks(judged: Sequence[ComparedTraining]) -> tuple[Check, ...]:
    """Return the figures that have a tolerance; order and bytes must agree."""
    errors = np.abs([one.error for one in judged if one.error is not None])
    return (
        Check("steps with another order", float(np.mean([not one.same_order for one in judged])), 0.0),
        Check("steps with other bytes", float(np.mean([not one.same_bytes for one in judged])), 0.0),
        Check("median error of step times", float(np.median(errors)), MEDIAN),
        Check("worst error of step times", float(errors.max()), WORST),
    )
