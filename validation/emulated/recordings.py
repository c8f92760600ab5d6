"""Recorded scripts on an emulated network: predicted, then really run with operators that sleep.

Operators take `SLOWDOWN` times as long as on an H100, so that links of 50 Mb/s stand for some of 100 Gb/s.
The network's parameters come from ping-pong alone. The script runs unmodified, with its streams, waits and
host; its collectives and messages have its bytes, over Gloo.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ringside.real.collective.links import cluster, measured_graph
from ringside.real.launch.forks import Forks
from ringside.real.record.job import ScriptJob, record_job
from ringside.real.record.rehearsal import scripts
from ringside.real.record.rehearsal.job import RehearsalJob
from ringside.real.record.rehearsal.measure import MeasuredScript, rehearse
from ringside.sim.program.libraries import Libraries
from ringside.sim.recorded.job import Operator, RecordedJob
from ringside.sim.recorded.prices import OperatorPrices
from ringside.sim.recorded.program import Price
from ringside.sim.recorded.step import RecordedStep, RecordedTraining
from ringside.sim.workload.devices import device
from ringside.topologies import Topology, star
from ringside.validation.emulated.plan import MBIT
from ringside.validation.emulated.training import Check

RANKS = 4
BANDWIDTH = 50 * MBIT
GPU = "h100"
SLOWDOWN = 2000.0

SHORTEST_S = 10e-6
"""Operators take no less, so that they sleep long beside what their host does for them."""

ITERATIONS = 5

MEDIAN, WORST = 0.04, 0.08
"""The limits of the absolute relative errors of step times."""

CALM = 0.04
RERUNS = 2
"""Steps that spread more than `CALM` run again, at most twice; the run with the smallest spread counts."""

SCRIPTS = Path(scripts.__file__).parent


@dataclass(frozen=True, slots=True)
class ScriptCase:
    """A script of `SCRIPTS` with its arguments."""

    name: str
    script: str
    arguments: tuple[str, ...] = ()

    @property
    def path(self) -> str:
        """The script's file."""
        return str(SCRIPTS / self.script)


CASES = (
    ScriptCase("ddp", "replicated.py", ("--bucket-mb", "1")),
    ScriptCase("ddp accumulating", "replicated.py", ("--micro-batches", "2")),
    ScriptCase("fsdp1", "fully_sharded.py"),
    ScriptCase("fsdp2", "sharded.py"),
    ScriptCase("hsdp", "sharded.py", ("--replicas", "2")),
    ScriptCase("tensor", "tensor.py"),
    ScriptCase("tensor, sequence parallel", "tensor.py", ("--sequence",)),
    ScriptCase("1f1b", "pipeline.py"),
    ScriptCase("experts", "experts.py"),
    ScriptCase("ring", "ring.py"),
)
"""The validated cases."""

SHORT = tuple(case for case in CASES if case.name in ("ddp", "1f1b"))


@dataclass(frozen=True, slots=True)
class ComparedScript:
    """A recorded step's prediction and the script's real steps."""

    predicted: RecordedStep
    measured: MeasuredScript

    @property
    def error(self) -> float:
        """The predicted step over the median measured one, minus one."""
        return self.predicted.step_s / self.measured.step_s - 1

    @property
    def exposed(self) -> float:
        """The share of the predicted step in which the busiest rank's communication is exposed."""
        return max(stage.exposed_s for stage in self.predicted.stages) / self.predicted.step_s


def judge(cases: Sequence[ScriptCase], on_judged: Callable[[ScriptCase, ComparedScript], None]) -> None:
    """Record, predict and really run each case, all on one network.

    Raise `ValueError` if this machine cannot emulate a network, and as `record_job` and `rehearse` do.
    """
    with Forks() as forks, cluster(star(RANKS, bandwidth=BANDWIDTH), forks) as built:
        graph, _ = measured_graph(built, RANKS)
        for case in cases:
            recorded = record(case)
            job = rehearsal(case, recorded)
            measured = rehearse(job, built, tuple(range(RANKS)))
            for _ in range(RERUNS):
                if measured.spread > CALM:
                    again = rehearse(job, built, tuple(range(RANKS)))
                    measured = min(measured, again, key=lambda one: one.spread)
            on_judged(case, ComparedScript(predict(recorded, graph), measured))


def record(case: ScriptCase) -> RecordedJob:
    """Return the job that a case's script is, a rank on each node."""
    return record_job(
        ScriptJob(
            script=case.path, is_module=False, arguments=case.arguments, ranks=RANKS, per_node=1, steps=6,
            timeout_s=600.0, with_source=False,
        )
    )  # fmt: skip


def prices() -> Price:
    """Return the seconds of operators: `SLOWDOWN` times those on a GPU."""
    seconds = OperatorPrices(device(GPU)).seconds

    def slowed(operator: Operator) -> float:
        own = seconds(operator)
        return SLOWDOWN * max(own, SHORTEST_S) if own else 0.0

    return slowed


def predict(job: RecordedJob, graph: Topology) -> RecordedStep:
    """Return the step on a network measured by ping-pong, as ``train --model`` answers it."""
    return RecordedTraining(job, Libraries.on("gloo", graph, job.ranks), prices()).step()


def rehearsal(case: ScriptCase, job: RecordedJob) -> RehearsalJob:
    """Return the real run of a recorded script, at the prices of its prediction."""
    actions = dict.fromkeys(action for one in job.recorded for action in one.actions)
    seconds = prices()
    return RehearsalJob(
        script=case.path, arguments=case.arguments, iterations=ITERATIONS,
        prices=tuple((one, seconds(one)) for one in actions if isinstance(one, Operator)),
    )  # fmt: skip


def row_of(name: str, one: ComparedScript) -> dict[str, Any]:
    """Return a comparison in plain values."""
    return {
        "script": name,
        "ranks": one.predicted.ranks,
        "steps": len(one.measured.steps),
        "measured_s": one.measured.step_s,
        "spread": one.measured.spread,
        "predicted_s": one.predicted.step_s,
        "error": one.error,
        "exposed_share": one.exposed,
        "waiting_share": one.predicted.bubble_share,
    }


def checks(judged: Sequence[ComparedScript]) -> tuple[Check, ...]:
    """Return the figures that have a tolerance."""
    errors = np.abs([one.error for one in judged])
    return (
        Check("median error of step times", float(np.median(errors)), MEDIAN),
        Check("worst error of step times", float(errors.max()), WORST),
    )
