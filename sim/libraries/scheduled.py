"""Libraries that are schedules on a network; this module decides between simulation and closed form."""

import logging
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, Self

from ringside.sim import jit
from ringside.sim.calibration import AUTO, Calibration, CalibrationError, Fit
from ringside.sim.collective import KINDS, Collective
from ringside.sim.effort import consider, has_more_than
from ringside.sim.engine import fast, maxplus, model
from ringside.sim.engine.bounds import ScheduleBounds, busy, closed_bounds, lower_bounds
from ringside.sim.engine.events import simulate
from ringside.sim.engine.timeline import Timeline
from ringside.sim.engine.wiring import wire
from ringside.sim.libraries.find import Options
from ringside.sim.libraries.library import Candidate, Estimate, Library, check_time
from ringside.sim.libraries.scaling import wider
from ringside.sim.network.message import check_network
from ringside.sim.parameters import Parameters, preset_of
from ringside.sim.schedule import Schedule
from ringside.sim.streams import TransferStreams
from ringside.topologies import Routes, Topology, load, ranks
from ringside.topologies.file import recipe_of, with_settings
from ringside.topologies.graph import name_of
from ringside.topologies.placement import NUMBERED, machines_of, spread_over, stretches
from ringside.topologies.units import format_size

log = logging.getLogger(__name__)

MAX_TRANSFERS = 10_000
"""Maximum transfers that ``auto`` simulates despite a closed form, less than a second's work."""


SIMPY_TRANSFERS = 10_000
"""Maximum transfers that ``auto`` leaves to SimPy: half a second, the fast engine's start-up time."""

COMPILED_TRANSFERS = 100_000
"""The same if the fast engine must first be compiled, once per machine, which takes longer."""


MAX_CHUNKS = 1_000_000
"""Maximum chunks that are inspected for whether their schedule is a ring's recurrence."""


def takes_closed_form(plan: Schedule, graph: Topology, network: str = "fifo") -> bool:
    """Return whether ``auto`` uses the closed form: it exists, and transfers are too many."""
    return has_closed_form(plan, graph, network) and has_more_than(MAX_TRANSFERS, plan, graph)


def has_closed_form(plan: Schedule, graph: Topology, network: str = "fifo") -> bool:
    """Return whether the schedule has a closed form on this network.

    Direct messages to a rank, added there, arrive one after another by the closed form, but all
    at the same time on the ``fair`` network; so do a binomial tree's messages from one rank to several.
    """
    adds = plan.algorithm == "direct" and KINDS[plan.collective.kind].reduces
    if network == "fair" and (adds or plan.algorithm == "binomial"):
        return False
    return model.has_closed_form(plan.algorithm, plan.collective) and model.uniform(graph)


def is_recurrence(plan: Schedule, graph: Topology, routes: Routes, network: str = "fifo") -> bool:
    """Return whether the fast engine plays the schedule by recurrence, on any machine."""
    streams = plan.steps
    if network != "fifo" or not isinstance(streams, TransferStreams) or not streams.is_ring:
        return False
    return maxplus.ring_of(plan, wire(plan, graph, routes)) is not None


def _faster(plan: Schedule, graph: Topology, network: str, *, traced: bool) -> str:
    """Return the engine that simulates a schedule in less time, its start included."""
    if network != "fifo" or traced or not has_more_than(SIMPY_TRANSFERS, plan, graph):
        return "simpy"
    if has_more_than(COMPILED_TRANSFERS, plan, graph):
        able = jit.available() or isinstance(plan.steps, TransferStreams)
    else:
        able = fast.is_compiled(plan)
    return "fast" if able else "simpy"


def _consider(plan: Schedule, graph: Topology, engine: str) -> None:
    """Raise ValueError for too much work; the fast engine has its own check."""
    few = len(plan.chunks) <= MAX_CHUNKS
    if engine != "fast" or not isinstance(plan.steps, TransferStreams) or not few:
        consider(plan, graph, engine)


def evaluate(
    plan: Schedule,
    graph: Topology,
    parameters: Parameters,
    engine: str = "auto",
    *,
    traced: bool = False,
    routes: Routes | None = None,
    bounds: ScheduleBounds | None = None,
    network: str = "fifo",
) -> tuple[float, str, Timeline | None]:
    """Return a schedule's time on a graph that has the parameters, the engine used, and its timeline.

    ``simpy`` and ``fast`` simulate; ``model`` takes the closed form, and raises ValueError if there is none;
    ``auto`` simulates a small schedule or one without closed form, by the faster engine; ``quick``, for fits,
    simulates only without a closed form, and does not compute bounds of schedules. ``routes`` are the graph's
    and ``bounds`` the schedule's on it, if the caller has them. Raise LawError if the answer breaks a bound.
    """
    quick = engine == "quick"
    if engine in ("auto", "quick"):
        decides = has_closed_form if quick else takes_closed_form
        by_form = not traced and decides(plan, graph, network)
        engine = "model" if by_form else _faster(plan, graph, network, traced=traced)
        if not quick:
            why = "a closed form, and much to simulate" if by_form else "the faster one to simulate it"
            kind, size = plan.collective.kind, format_size(plan.collective.nbytes)
            log.info("engine %s for %s %s of %s: %s", engine, plan.algorithm, kind, size, why)
    if engine == "fast" and traced:
        raise ValueError("the fast engine keeps no timeline; write --engine simpy")
    if engine == "fast" and network != "fifo":
        raise ValueError(f"the fast engine does not simulate the {network} network; write --engine simpy")
    what = f"{plan.algorithm} {plan.collective.kind} of {plan.collective.nbytes} B"
    timeline = None
    if engine != "model":
        _consider(plan, graph, engine)
        routes = routes or Routes(graph)
        bounds = bounds or (ScheduleBounds(0.0, 0.0) if quick else lower_bounds(plan, graph, routes))
        if engine == "fast":
            run = fast.simulate(plan, graph, parameters.gamma, routes)
        else:
            run = simulate(plan, graph, parameters.gamma, traced=traced, routes=routes, network=network)
        seconds, timeline, engine = run.time_s, run.timeline, run.engine
    else:
        closed = None
        if has_closed_form(plan, graph, network) and not traced:
            closed = model.closed_form(plan.algorithm, plan.collective, parameters)
        if closed is None:
            raise ValueError(f"{what} on {name_of(graph)} has no closed form; write --engine simpy")
        seconds, bounds = closed, closed_bounds(plan, parameters)
    check_time(what, seconds, bounds._asdict())
    return seconds + parameters.launch, engine, timeline


class Scheduled(Library):
    """A library whose candidates are schedules, on the first ``count`` ranks of a topology, all by default.

    Other ranks are those of `ringside.topologies.placement.place`'s topology. ``algorithm`` other than
    ``auto`` pins the choice; ``placement`` is one of `ringside.topologies.placement`'s. ``network`` is one of
    `ringside.sim.network.message.NETWORKS`; calibrations are of ``fifo``. ``fitted_on`` is the calibrated
    topology if ``graph`` has other figures (`ringside.sim.libraries.scaling`); ``change`` names these.
    """

    announces = False
    """Whether a sender holds data back until the receiver has announced room for them."""
    workers = 1
    """The number of collectives of a training that run at once, on one network."""

    def __init__(
        self,
        graph: Topology,
        count: int | None = None,
        *,
        algorithm: str = "auto",
        calibration: Calibration | None = None,
        network: str = "fifo",
        placement: str = NUMBERED,
        fitted_on: "Topology | None" = None,
        change: str = "",
    ) -> None:
        check_network(network)
        if calibration and network != "fifo":
            raise ValueError(
                f"calibrations are fitted on the fifo network, not on {network}; "
                "write --calibration none, or leave --network out"
            )
        most = len(ranks(graph))
        self.ranks = most if count is None else count
        if self.ranks < 1:
            raise ValueError(f"{self.ranks} ranks; write 1 rank or more")
        if self.ranks > most:
            raise ValueError(
                f"{self.ranks} ranks, but {name_of(graph)} has {most}; write fewer ranks or a larger cluster"
            )
        self.graph = graph = spread_over(graph, self.ranks, placement)
        machines = machines_of(graph, self.ranks)
        self.placed, self.nodes = stretches(machines), len(set(machines))
        self.algorithm = algorithm
        self.calibration = calibration
        self.network = network
        self.routes = Routes(graph)
        self._preset = self._fitted_on = preset_of(graph, self.routes)
        if fitted_on:
            count = min(self.ranks, len(ranks(fitted_on)))
            self._fitted_on = preset_of(spread_over(fitted_on, count, placement))
        self._change = change
        self._scaled: dict[Parameters, Topology] = {}
        self._bounds: dict[tuple[Collective, str], ScheduleBounds] = {}
        self._known: dict[tuple[Collective, str, str], Estimate] = {}

    def busy(self, collective: Collective, candidate: Candidate) -> Mapping[str, float]:
        """Return the seconds for which each link carries the candidate's bytes."""
        links = busy(self.schedule(collective, candidate), self.graph, self.routes)
        return {f"{a}->{b}": seconds for (a, b), seconds in links.items()}

    def pinned(self, algorithm: str) -> Self:
        """Return the same library pinned to an algorithm."""
        library = copy(self)
        library.algorithm, library._bounds, library._known = algorithm, {}, {}
        return library

    def on(self, graph: Topology, candidate: Candidate) -> Self:
        """Return the library pinned to an algorithm, on links with other figures and the same routes."""
        if self.calibration:
            raise ValueError(
                "a calibration has one figure for all links and cannot describe a disturbed one; write "
                "--calibration none"
            )
        library = copy(self)
        library.graph, library.algorithm, library._preset = (
            graph,
            candidate.algorithm,
            preset_of(graph, self.routes),
        )
        library._bounds, library._known = {}, {}
        return library

    def launch_s(self, collective: Collective) -> float:
        """Return the seconds before the first message can leave, by the library's own rules."""
        return 0.0

    def fit_name(self, candidate: Candidate) -> str:
        """Return the calibration's name of the candidate's algorithm."""
        return candidate.algorithm

    def bound(self, collective: Collective, candidate: Candidate) -> float:
        """Return the seconds of the busiest link for its bytes, or of the longest chain of hops for none."""
        plan = self.schedule(collective, candidate)
        parameters, graph, _ = self._figures(collective, candidate)
        if takes_closed_form(plan, graph, self.network):
            return max(closed_bounds(plan, parameters))
        return max(self._lower_bounds(plan, graph, candidate))

    def _lower_bounds(self, plan: Schedule, graph: Topology, candidate: Candidate) -> ScheduleBounds:
        key = plan.collective, candidate.algorithm
        if key not in self._bounds:
            _consider(plan, graph, _faster(plan, graph, self.network, traced=False))
            self._bounds[key] = lower_bounds(plan, graph, self.routes)
        return self._bounds[key]

    def _time(self, collective: Collective, candidate: Candidate, engine: str, *, traced: bool) -> Estimate:
        """Return the candidate's time by preset or calibration; each is computed once."""
        key = collective, candidate.algorithm, engine
        if traced or key not in self._known:
            estimate = self._computed(collective, candidate, engine, traced=traced)
            if traced:
                return estimate
            self._known[key] = self._known[*key[:2], estimate.engine] = estimate
        estimate = self._known[key]
        caveat = "; ".join(filter(None, (candidate.caveat, estimate.caveat)))
        return replace(estimate, caveat=caveat) if caveat != estimate.caveat else estimate

    def _computed(
        self, collective: Collective, candidate: Candidate, engine: str, *, traced: bool
    ) -> Estimate:
        plan = self.schedule(collective, candidate)
        parameters, graph, (low, high) = self._figures(collective, candidate)
        bounds = self._bounds.get((collective, candidate.algorithm))
        seconds, taken, timeline = evaluate(
            plan, graph, parameters, engine, traced=traced, routes=self.routes, bounds=bounds,
            network=self.network,
        )  # fmt: skip
        caveat = self._caveat(collective, candidate)
        if self.calibration and self._change:
            as_fitted = self._fit(self.calibration, self.fit_name(candidate)).parameters
            before, _, _ = evaluate(
                plan, self._with(as_fitted), as_fitted, engine, routes=self.routes, network=self.network
            )
            low, high = wider((low, high), seconds / before if before else 1.0)
            scaled = f"calibrated, and scaled by the model's ratio for {self._change}"
            caveat = "; ".join(filter(None, (scaled, caveat)))
        return Estimate(
            seconds, seconds * low, seconds * high, taken, self.word(candidate, plan), timeline=timeline,
            caveat=caveat,
        )  # fmt: skip

    def word(self, candidate: Candidate, plan: Schedule) -> str:
        """Return the algorithm's name in answers."""
        return plan.algorithm

    def _caveat(self, collective: Collective, candidate: Candidate) -> str:
        return ""

    def _figures(
        self, collective: Collective, candidate: Candidate
    ) -> tuple[Parameters, Topology, tuple[float, float]]:
        """Return the network's parameters, the topology that has them, and the band around a time."""
        if self.calibration is None:
            return replace(self._preset, launch=self.launch_s(collective)), self.graph, (1.0, 1.0)
        fit = self._fit(self.calibration, self.fit_name(candidate))
        parameters = fit.parameters.carried_over(self._fitted_on, self._preset)
        return parameters, self._with(parameters), fit.band

    def _with(self, parameters: Parameters) -> Topology:
        """Return the topology that has these parameters."""
        if parameters not in self._scaled:
            self._scaled[parameters] = parameters.on(self.graph, self.routes)
        return self._scaled[parameters]

    def _fit(self, calibration: Calibration, algorithm: str) -> Fit:
        fit = calibration.fit_for(self.name, algorithm, "auto")
        if fit is None:
            fits = {f"{fit.library}/{fit.algorithm}" for fit in calibration.fits}
            fitted = ", ".join(sorted(fits | ({"nccl"} if calibration.nccl else set())))
            raise CalibrationError(
                f"the calibration of {calibration.cluster} has no fit for {self.name}/{algorithm}, only for "
                f"{fitted}; write one of these, or --calibration none"
            )
        return fit


def bind(
    make: type[Scheduled],
    cluster: "str | Topology",
    values: Mapping[str, Any],
    ranks: int | None,
    options: Options,
    calibration: "Calibration | str | None",
) -> Scheduled:
    """Bind a library to a cluster, with the fits of a calibration; no calibration is shipped."""
    calibration = None if calibration == AUTO else calibration
    if isinstance(calibration, str):
        raise ValueError(f"calibration {calibration!r}; read it first, or write {AUTO}")
    graph = load(cluster, values, ranks=ranks) if isinstance(cluster, str) else cluster
    fitted_on = with_settings(graph, calibration.settings_on(cluster)) if calibration else graph
    change = changed_settings(graph, fitted_on) if fitted_on is not graph else ""
    return make(
        graph, ranks, algorithm=options.algorithm, calibration=calibration, network=options.network,
        placement=options.placement, fitted_on=fitted_on, change=change,
    )  # fmt: skip


def changed_settings(graph: Topology, before: Topology) -> str:
    """Return the settings that differ from those ``before``, as text."""
    now, was = recipe_of(graph), recipe_of(before)
    changes = [f"{key} {value}" for key, value in now.items() if was.get(key) != value]
    return ", ".join([*changes, *(f"its own {key}" for key in was if key not in now)])


class Given(Scheduled):
    """The schedule that ``build`` makes of a collective, named after its file, and its ``caveat``."""

    name = "file"

    def __init__(
        self,
        graph: Topology,
        count: int,
        way: str,
        build: Callable[[Collective], Schedule],
        network: str,
        caveat: Callable[[Collective], str],
    ) -> None:
        super().__init__(graph, count, network=network)
        self._way = Candidate(way)
        self._build = build
        self._caveat_of = caveat

    def candidates(self, collective: Collective) -> Sequence[Candidate]:
        """Return the only candidate."""
        return [self._way]

    def choose(self, collective: Collective) -> Candidate:
        """Return the only candidate."""
        return self._way

    def schedule(self, collective: Collective, candidate: Candidate) -> Schedule:
        """Return the file's schedule."""
        return self._build(collective)

    def _caveat(self, collective: Collective, candidate: Candidate) -> str:
        return self._caveat_of(collective)
