"""Many draws of a disturbance, on one network or library, and their summary: quantiles, and who waits."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from ringside.sim.calibration import Calibration
from ringside.sim.clock import Clock
from ringside.sim.collective import Collective
from ringside.sim.disturbance.disturbance import Disturbance, Draw
from ringside.sim.libraries.library import Candidate, Library
from ringside.sim.libraries.rules import GLOO
from ringside.sim.libraries.scheduled import Scheduled
from ringside.sim.network.find import make_network
from ringside.sim.program import Call, Group, Operation, Program
from ringside.sim.program.libraries import Libraries
from ringside.sim.program.simulate import Simulation, run_all
from ringside.sim.program.timeline import waits
from ringside.sim.program.transfers import Transfers

MAX_DRAWS = 100_000

Waits = Mapping[tuple[int, int], float]
"""Seconds that the first rank waited for the second."""


class Outcome(NamedTuple):
    """The result of one draw: its duration, in seconds, and who waited for whom."""

    seconds: float
    waits: Waits


@dataclass(frozen=True, slots=True)
class Drawn:
    """All draws of a seed beside the ``undisturbed_s``; ``waits`` are means per draw."""

    undisturbed_s: float
    times_s: tuple[float, ...]
    seed: int
    waits: Waits = field(default_factory=dict)

    @property
    def mean_s(self) -> float:
        """The mean duration."""
        return float(np.mean(self.times_s))

    @property
    def median_s(self) -> float:
        """The median duration."""
        return self.quantile(0.5)

    @property
    def typical(self) -> int:
        """The number of the draw closest to the median."""
        return int(np.argmin(np.abs(np.asarray(self.times_s) - self.median_s)))

    @property
    def blamed(self) -> dict[int, float]:
        """Mean seconds that all other ranks together waited for each rank, longest first."""
        blame: dict[int, float] = {}
        for (_, culprit), seconds in self.waits.items():
            blame[culprit] = blame.get(culprit, 0.0) + seconds
        return dict(sorted(blame.items(), key=lambda one: (-one[1], one[0])))

    def quantile(self, share: float) -> float:
        """Return the duration that this share of the draws does not exceed."""
        return float(np.quantile(self.times_s, share))


def study(
    disturbance: Disturbance,
    once: Callable[[Draw], Outcome],
    undisturbed_s: float,
    *,
    draws: int,
    seed: int = 0,
    on_draw: Callable[[], None] = lambda: None,
) -> Drawn:
    """Play the draws of a seed, or a single draw if nothing is random; ``once`` plays one draw."""
    if not 1 <= draws <= MAX_DRAWS:
        raise ValueError(f"{draws} draws; write 1 to {MAX_DRAWS:,}")
    if seed < 0:
        raise ValueError(f"seed {seed}; write 0 or more")
    count = draws if disturbance.is_random else 1
    times, waits = [], dict[tuple[int, int], float]()
    for number in range(count):
        outcome = once(Draw(disturbance, seed, number))
        times.append(outcome.seconds)
        for pair, seconds in outcome.waits.items():
            waits[pair] = waits.get(pair, 0.0) + seconds / count
        on_draw()
    return Drawn(undisturbed_s, tuple(times), seed, waits)


NO_LINKS = "{}: {} times a collective as a whole, not link by link; write --library ideal or gloo"


def libraries_under(libraries: Libraries, disturbance: Disturbance) -> Libraries:
    """Return the libraries on the cluster with its slow links; the textbook selects algorithms for these."""
    if not disturbance.slow_links:
        return libraries
    if not libraries.whole.plays_links:
        raise ValueError(NO_LINKS.format("--slow-link", libraries.name))
    if isinstance(libraries.calibration, Calibration):
        raise ValueError("a calibration has no slow links; write --calibration none")
    return replace(libraries, _graph=disturbance.links(libraries.graph), _known={}, _shapes={})


def library_under(library: Library, disturbance: Disturbance) -> Library:
    """Return the library on the cluster with its slow links."""
    if not disturbance.slow_links:
        return library
    if not (isinstance(library, Scheduled) and library.plays_links):
        raise ValueError(NO_LINKS.format("--slow-link", library.name))
    graph = disturbance.links(library.graph)
    return library.on(graph, Candidate(library.algorithm))


def collective_once(
    library: Library, collective: Collective, candidate: Candidate, engine: str, draw: Draw
) -> Outcome:
    """Play one draw of a disturbed collective by a fixed candidate.

    Time counts from the first rank's arrival to the last one's departure.
    """
    if not (isinstance(library, Scheduled) and library.plays_links):
        raise ValueError(NO_LINKS.format("a collective is disturbed through its links", library.name))
    if draw.disturbance.noise:
        raise ValueError(
            "--os-noise interrupts compute, which a collective does not have; leave it out, or use "
            "ringside train or program"
        )
    there = library.on(draw.network(library.graph), candidate)
    if not draw.disturbance.late:
        return Outcome(there.time(collective, candidate, engine).time_s, {})
    if engine not in ("auto", "simpy"):
        raise ValueError(
            f"--engine {engine} starts all ranks at once; write --engine simpy, or leave --late out"
        )
    simulation = _one_by_one(there, collective, draw)
    return Outcome(simulation.makespan_s, waits(simulation))


def _one_by_one(library: Scheduled, collective: Collective, draw: Draw) -> Simulation:
    """Play a collective whose ranks arrive at different times, transfer by transfer."""
    hosts = tuple(range(library.ranks))
    group = Group("all ranks", hosts, GLOO.name, 1)
    kind = collective.kind
    call = Operation(Call(group, kind, collective), holds=True, name=kind, category=kind)
    env = Clock()
    transport = Transfers(
        env, make_network(library.network, env, library.graph, library.routes), library.graph, hosts,
        lambda _: library, alone=False, announced=library.announces,
    )  # fmt: skip
    program = Program(kind, library.ranks, lambda _: (call,))
    simulation = Simulation(env, program, transport, late=draw.disturbance.late)
    run_all(env, [simulation])
    return simulation
