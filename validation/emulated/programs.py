"""Whole programs on emulated networks: predicted from ping-pong alone, then really run.

The links' parameters are those of `ringside.real.collective.links`; compute sleeps, so it is known.
Everything else comes from the simulation.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ringside.real.collective.links import cluster, measured_graph
from ringside.real.launch.forks import Forks
from ringside.real.program.job import ProgramJob
from ringside.real.program.measure import MeasuredProgram, measure_program
from ringside.sim.program.jobs import PlacedProgram, simulate
from ringside.sim.program.libraries import Libraries
from ringside.sim.program.operations import Program
from ringside.sim.program.record.script import program_of
from ringside.sim.program.timeline import ProgramTimeline
from ringside.topologies import Topology

MEDIAN, WORST = 0.04, 0.08
"""The limits of the absolute relative errors of makespans."""

CALM = 0.05
RERUNS = 2
"""A program that spreads more than `CALM` is run again, at most twice; the smallest spread counts."""


@dataclass(frozen=True, slots=True)
class ProgramCase:
    """A script on some ranks of a network."""

    script: Path
    ranks: int


@dataclass(frozen=True, slots=True)
class ComparedProgram:
    """A program's prediction and measurement."""

    name: str
    ranks: int
    predicted: ProgramTimeline
    measured: MeasuredProgram

    @property
    def error(self) -> float:
        """The predicted makespan over the measured one, minus one."""
        return self.predicted.makespan_s / self.measured.makespan_s - 1

    @property
    def rank_errors(self) -> tuple[float, ...]:
        """Each rank's predicted end over its measured one, minus one."""
        ends = enumerate(self.measured.ends_s)
        return tuple(self.predicted.times[rank].end_s / end - 1 for rank, end in ends)


def predict(program: Program, graph: Topology) -> ProgramTimeline:
    """Simulate the program over Gloo on a network measured by ping-pong."""
    (timeline,) = simulate(
        [PlacedProgram(program, tuple(range(program.ranks)))], Libraries.on("gloo", graph, program.ranks)
    )
    return timeline


def judge(
    graph: Topology,
    cases: Iterable[ProgramCase],
    on_compared: Callable[[ComparedProgram], None],
    iterations: int = 5,
) -> None:
    """Predict and really run each program on one network.

    Raise `ValueError` if this machine cannot emulate a network, `ringside.real.launch.follow.MeasureError` if
    a run fails.
    """
    known: dict[int, Topology] = {}
    with Forks() as forks, cluster(graph, forks) as network:
        for case in cases:
            if case.ranks not in known:
                known[case.ranks], _ = measured_graph(network, case.ranks)
            program = program_of(case.script, case.ranks, "gloo")
            predicted = predict(program, known[case.ranks])
            job = ProgramJob(script=str(case.script.resolve()), iterations=iterations)
            measured = measure_program(job, case.ranks, cluster=network)
            for _ in range(RERUNS):
                if measured.spread > CALM:
                    again = measure_program(job, case.ranks, cluster=network)
                    measured = min(measured, again, key=lambda one: one.spread)
            on_compared(ComparedProgram(case.script.stem, case.ranks, predicted, measured))


def errors(compared: Sequence[ComparedProgram]) -> tuple[float, float]:
    """Return the median and the worst absolute relative error of makespans."""
    sizes = np.abs([one.error for one in compared])
    return float(np.median(sizes)), float(sizes.max())
