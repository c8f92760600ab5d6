"""From a collective on a topology to a time: the library says how it is carried out, an engine how long."""

from dataclasses import dataclass, replace

from sim.algorithms import algorithms_for, caveat, schedule
from sim.calibration import Calibration, CalibrationError
from sim.collective import KINDS, Collective
from sim.engine.bounds import closed_bounds, latency_bound, traffic_bound
from sim.engine.effort import consider, has_more_than
from sim.engine.events import simulate
from sim.engine.laws import check_band, check_time
from sim.engine.timeline import Timeline
from sim.libraries import gloo, ideal
from sim.parameters import Parameters, preset_of
from sim.schedule import Schedule
from topologies import Topology, ranks
from topologies.graph import name_of

LIBRARIES = ("ideal", "gloo")
ENGINES = ("auto", "simpy", "model")

MAX_TRANSFERS = 2_000_000
"""As many transfers ``auto`` simulates, some half a minute's work; above it takes a closed form."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """How long one collective takes, and how it is carried out to take so long.

    Nine of ten rows that the calibration was fitted to lay between ``time_lo_s`` and ``time_hi_s``;
    both equal ``time_s`` where nothing was calibrated. ``caveat`` is what to know before it is believed.
    """

    collective: Collective
    algorithm: str
    protocol: str
    engine: str
    time_s: float
    time_lo_s: float
    time_hi_s: float
    timeline: Timeline | None = None
    caveat: str = ""

    def __post_init__(self) -> None:
        what = f"{self.algorithm} {self.collective.kind} of {self.collective.nbytes} B"
        check_band(what, self.time_lo_s, self.time_s, self.time_hi_s)

    @property
    def algbw(self) -> float:
        """Algorithm bandwidth in bytes/s, as nccl-tests defines it."""
        return self.collective.nbytes / self.time_s if self.time_s else 0.0

    @property
    def busbw(self) -> float:
        """Bus bandwidth in bytes/s, as nccl-tests defines it."""
        return self.algbw * KINDS[self.collective.kind].busbw_factor(self.collective.ranks)


def predict(
    collective: Collective,
    graph: Topology,
    *,
    library: str = "ideal",
    algorithm: str = "auto",
    engine: str = "auto",
    calibration: Calibration | None = None,
    traced: bool = False,
) -> Prediction:
    """How long ``collective`` takes on ``graph``.

    ``algorithm`` ``auto`` is the library's own choice; the ideal library's is the quickest.
    """
    if engine not in ENGINES:
        raise ValueError(f"{engine!r} is no known engine; write one of {', '.join(ENGINES)}")
    if collective.ranks > len(ranks(graph)):
        raise ValueError(
            f"{collective.ranks} ranks, but {name_of(graph)} has {len(ranks(graph))}; "
            f"write fewer ranks or a larger cluster"
        )
    if library == "ideal" and algorithm == "auto":
        names = algorithms_for(collective.kind)
        if calibration:
            names = [name for name in names if calibration.fit_for(library, name, "auto")] or names
        return _quickest(collective, graph, names, engine, calibration, traced)
    plan = schedules(library, collective, algorithm)
    return _predict(plan, graph, library, algorithm, engine, calibration, traced)


def schedules(library: str, collective: Collective, algorithm: str) -> Schedule:
    """The schedule by which a library carries out a collective with a named algorithm."""
    match library:
        case "ideal":
            return schedule(algorithm, collective)
        case "gloo" if collective.kind in gloo.BUILDS and algorithm in ("auto", "ring"):
            return gloo.BUILDS[collective.kind](collective)
        case "gloo":
            raise ValueError(
                f"no model of {algorithm} {collective.kind} in gloo; it has {', '.join(gloo.BUILDS)} "
                f"with --algorithm auto"
            )
    raise ValueError(f"{library!r} is no known library; write one of {', '.join(LIBRARIES)}")


def preset(library: str, collective: Collective, graph: Topology) -> Parameters:
    """What the topology says of itself, and the launch that the library's own rules imply."""
    found = preset_of(graph)
    if library != "gloo":
        return found
    return replace(found, launch=gloo.startup_s(collective, graph, found.alpha))


def _quickest(
    collective: Collective,
    graph: Topology,
    names: list[str],
    engine: str,
    calibration: Calibration | None,
    traced: bool,
) -> Prediction:
    """The quickest of several algorithms; one whose traffic alone takes longer is not simulated."""
    best: Prediction | None = None
    for name in sorted(names, key=lambda name: name not in ("halving_doubling", "ring")):
        plan = schedule(name, collective)
        if best and calibration is None and not _is_closed(plan, graph):
            consider(plan, graph)
            if traffic_bound(plan, graph) >= best.time_s:
                continue
        found = _predict(plan, graph, "ideal", name, engine, calibration, traced)
        if best is None or found.time_s < best.time_s:
            best = found
    assert best is not None
    return best


def _predict(
    plan: Schedule,
    graph: Topology,
    library: str,
    algorithm: str,
    engine: str,
    calibration: Calibration | None,
    traced: bool,
) -> Prediction:
    parameters, band = preset(library, plan.collective, graph), (1.0, 1.0)
    if calibration:
        fit = calibration.fit_for(library, algorithm, "auto")
        if fit is None:
            fitted = ", ".join(sorted({f"{fit.library}/{fit.algorithm}" for fit in calibration.fits}))
            raise CalibrationError(
                f"the calibration of {calibration.cluster} has no fit for {library}/{algorithm}, only for "
                f"{fitted}; write one of these, or --calibration none"
            )
        parameters, band = fit.parameters, fit.band
        graph = parameters.on(graph)
    seconds, taken, timeline = evaluate(plan, graph, parameters, engine, traced=traced)
    return Prediction(
        plan.collective,
        plan.algorithm,
        "auto",
        taken,
        seconds,
        seconds * band[0],
        seconds * band[1],
        timeline,
        caveat(algorithm, plan.collective) if library == "ideal" else "",
    )


def evaluate(
    plan: Schedule, graph: Topology, parameters: Parameters, engine: str, *, traced: bool = False
) -> tuple[float, str, Timeline | None]:
    """A schedule's time on a graph that has the parameters already, the engine taken, and its timeline.

    Raise `sim.engine.laws.LawError` where the answer would break a bound.
    """
    closed = None
    if ideal.uniform(graph) and not traced:
        closed = ideal.closed_form(plan.algorithm, plan.collective, parameters)
    if engine == "auto":
        engine = "model" if _is_closed(plan, graph) and not traced else "simpy"
    timeline = None
    if engine == "simpy":
        consider(plan, graph)
    bounds = closed_bounds(plan, parameters) if engine == "model" else {
        "traffic": traffic_bound(plan, graph), "latency": latency_bound(plan, graph)
    }  # fmt: skip
    if engine == "simpy":
        run = simulate(plan, graph, parameters.gamma, traced=traced)
        seconds, timeline = run.time_s, run.timeline
    elif closed is None:
        raise ValueError(
            f"{plan.algorithm} {plan.collective.kind} of {plan.collective.nbytes} B on "
            f"{name_of(graph)} has no closed form; write --engine simpy"
        )
    else:
        seconds = closed
    what = f"{plan.algorithm} {plan.collective.kind} of {plan.collective.nbytes} B"
    check_time(what, seconds, bounds)
    return seconds + parameters.launch, engine, timeline


def _is_closed(plan: Schedule, graph: Topology) -> bool:
    """Whether ``auto`` takes the closed form: there is one, and there are too many transfers to simulate."""
    if not ideal.has_closed_form(plan.algorithm, plan.collective) or not ideal.uniform(graph):
        return False
    return has_more_than(MAX_TRANSFERS, plan)
