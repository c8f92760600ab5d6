"""MPI as a library: Open MPI's algorithms by name, its choice among them, and their times."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

from ringside.sim.algorithms import schedule
from ringside.sim.calibration import AUTO, Calibration, CalibrationError, shipped
from ringside.sim.collective import Collective
from ringside.sim.libraries.find import Options
from ringside.sim.libraries.library import Candidate, Estimate
from ringside.sim.libraries.mpi.decisions import decide
from ringside.sim.libraries.mpi.form import PROTOCOLS, MpiTask, NodePort, time_us, work_of
from ringside.sim.libraries.mpi.measured import MpiModel, changes, expected
from ringside.sim.libraries.mpi.rounds import ROUNDS
from ringside.sim.libraries.mpi.traffic import SCHEDULES, TYPES, WITHOUT, busiest_s
from ringside.sim.libraries.scaling import raised, widened
from ringside.sim.libraries.scheduled import Scheduled, changed_settings
from ringside.sim.parameters import Parameters
from ringside.sim.schedule import Schedule
from ringside.topologies import Routes, Topology, load
from ringside.topologies.file import original, with_settings
from ringside.topologies.graph import name_of
from ringside.topologies.names import one_of
from ringside.topologies.placement import NUMBERED, ranks_text
from ringside.topologies.units import format_duration

log = logging.getLogger(__name__)


class Mpi(Scheduled):
    """Open MPI on the first ``count`` ranks of a topology; ``measured`` is its model and description.

    ``before`` is the measured machine if the figures differ from its own (`ringside.sim.libraries.scaling`).
    """

    name = "mpi"
    plays_links = False

    def __init__(
        self,
        graph: Topology,
        count: int | None = None,
        *,
        algorithm: str = "auto",
        protocol: str = "auto",
        measured: tuple[MpiModel, str] | None = None,
        network: str = "fifo",
        placement: str = NUMBERED,
        before: "Mpi | None" = None,
    ) -> None:
        super().__init__(graph, count, algorithm=algorithm, network=network, placement=placement)
        self.measurements = measured[1] if measured else ""
        if protocol not in PROTOCOLS:
            raise ValueError(f"unknown MPI protocol {protocol!r}; write {one_of(PROTOCOLS, protocol)}")
        self.protocol = protocol
        self.measured = measured
        self.extrapolates = measured is not None and len(self.placed) not in measured[0].nodes
        if min(self.placed) < max(self.placed):
            raise ValueError(
                f"{ranks_text(self.placed)}; MPI needs equally many on every node; write --ranks so, or "
                "--library ideal"
            )
        self.port = port_of(self.graph, self.routes, self.placed)
        self._is_changed = before is not None
        self._measured_port = before.port if before else self.port
        self._busiest: dict[tuple[Collective, str], float] = {}

    def on(self, graph: Topology, candidate: Candidate) -> Self:
        """Return the library pinned to an algorithm, on links with other figures."""
        changed = super().on(graph, candidate)
        changed._busiest = {}
        return changed

    def candidates(self, collective: Collective) -> Sequence[Candidate]:
        """Return Open MPI's algorithms for a collective, or the requested: ``ring,linear``, ``^ring``."""
        check_supported(collective)
        names = list(ROUNDS[collective.kind])
        if self.algorithm == "auto":
            return [Candidate(name, self.protocol) for name in names]
        requested = self.algorithm.removeprefix("^").split(",")
        every = {name for rounds in ROUNDS.values() for name in rounds}
        unknown = next((name for name in requested if name not in every), None)
        if self.algorithm.startswith("^"):
            allowed = [name for name in names if name not in requested]
        else:
            allowed = [name for name in dict.fromkeys(requested) if name in names]
        if unknown is not None or not allowed:
            known = one_of(names, unknown or requested[0])
            raise ValueError(f"mpi has no {unknown or self.algorithm} for {collective.kind}; write {known}")
        return [Candidate(name, self.protocol) for name in allowed]

    def choose(self, collective: Collective) -> Candidate:
        """Return the choice of Open MPI's fixed rules, or the fastest of the requested algorithms."""
        first, *others = candidates = self.candidates(collective)
        ruled = Candidate(decide(collective), self.protocol)
        if not others or ruled in candidates:
            return ruled if others else first
        return min(candidates, key=lambda one: self.time(collective, one).time_s)

    def schedule(self, collective: Collective, candidate: Candidate) -> Schedule:
        """Return the algorithm's schedule, which is proved; raise ValueError if it has none."""
        return schedule_of(collective, candidate.algorithm)

    def bound(self, collective: Collective, candidate: Candidate) -> float:
        """Return the seconds that the busiest cable between nodes needs for the algorithm's own messages.

        If these are too many to count, return the least time of a node's cards with any algorithm.
        """
        key = collective, candidate.algorithm
        if key not in self._busiest:
            counted = busiest_s(collective, candidate.algorithm, self.graph, self.routes)
            self._busiest[key] = max(counted, self._crossing(collective))
        return self._busiest[key]

    def _crossing(self, collective: Collective) -> float:
        """Return the seconds that the cards of a node need for the bytes that must cross them."""
        port, nodes = self.port, -(-collective.ranks // self.port.per_node)
        if nodes == 1:
            return 0.0
        if collective.kind in ("all_reduce", "broadcast", "reduce", "sendrecv"):
            crossing = 1.0
        else:
            crossing = 1 - port.per_node / collective.ranks
        senders = port.per_node if collective.kind == "all_to_all" else 1
        return collective.nbytes * crossing * senders / port.node_rate * 1e-9

    def _time(self, collective: Collective, candidate: Candidate, engine: str, *, traced: bool) -> Estimate:
        """Return the time as measured or by closed form; ``simpy`` and ``fast`` play the schedule."""
        check_supported(collective)
        if engine in ("simpy", "fast") or traced:
            if engine not in ("simpy", "fast"):
                raise ValueError("MPI's closed form has no timeline; add --engine simpy")
            estimate = super()._time(collective, candidate, engine, traced=traced)
            return replace(
                estimate, basis="time_s is the engine's, with MPI's overhead; it is not calibrated"
            )
        if self.network != "fifo":
            raise ValueError(
                f"MPI's closed form does not model the {self.network} network; simulate with --engine simpy, "
                "or remove --network"
            )
        task = MpiTask(collective, candidate.algorithm, self.port)
        if self.measured and engine == "auto":
            before = replace(task, port=self._measured_port)
            times = self.measured[0].scaled_seconds([task], [before], candidate.protocol)
            middle, low, high = (float(ends[0]) for ends in times)
            basis = f"time_s {self.basis}; four of five lie from time_lo_s to time_hi_s"
            estimate = Estimate(middle, low, high, "measured", task.algorithm, basis=basis)
            return self._at_least_traffic(collective, candidate, estimate)
        values = self.measured[0].values if self.measured else expected()
        seconds = float(time_us(work_of([task]), values, candidate.protocol)[0]) * 1e-6
        basis = "time_s is by closed form with typical figures; it is not calibrated"
        estimate = Estimate(seconds, seconds, seconds, "model", task.algorithm, basis=basis)
        return self._at_least_traffic(collective, candidate, estimate)

    def _at_least_traffic(self, collective: Collective, candidate: Candidate, estimate: Estimate) -> Estimate:
        """Return the time, raised to that of its traffic; a measured machine's band is cut off below."""
        least = self.bound(collective, candidate)
        if estimate.time_lo_s >= least:
            return estimate
        above = raised(estimate, least, cut=not self._is_changed)
        if above.time_s == estimate.time_s:
            return above
        return replace(
            above, caveat=f"time raised to that of its traffic, {format_duration(least, 4)} on a cable"
        )

    def doubt(self, collective: Collective, one: tuple[str, str], other: tuple[str, str]) -> float | None:
        """Return the relative uncertainty of two algorithms' ratio; ``None`` without measurements."""
        if not self.measured:
            return None
        tasks = [MpiTask(collective, pair[0], self.port) for pair in (one, other)]
        before = [replace(task, port=self._measured_port) for task in tasks]
        first, second = changes(tasks, before)
        return widened(1 + self.measured[0].doubt(*before), float(first / second)) - 1

    def _figures(
        self, collective: Collective, candidate: Candidate
    ) -> tuple[Parameters, Topology, tuple[float, float]]:
        """Return the engines' figures: a message's overhead and latency, and the rate of additions."""
        values = self.measured[0].values if self.measured else expected()
        figures = replace(
            self._preset,
            alpha=self._preset.alpha + values["overhead_us"] * 1e-6,
            beta=self._preset.beta / values["link"],
            gamma=1e-9 / values["warm_GBps"],
            launch=values["call_us"] * 1e-6,
        )
        return figures, self._with(figures), (1.0, 1.0)

    def _caveat(self, collective: Collective, candidate: Candidate) -> str:
        return "simulated over the links with MPI's overhead, without its protocols, caches and copies"


def schedule_of(collective: Collective, algorithm: str) -> Schedule:
    """Return the schedule of one of Open MPI's algorithms; raise ValueError if it has none."""
    check_supported(collective)
    way = collective.kind, algorithm
    if way in WITHOUT:
        raise ValueError(
            f"mpi's {algorithm} {collective.kind} has a closed form only; remove --engine, --trace "
            "and --links, or write another --algorithm"
        )
    return schedule(SCHEDULES.get(way, algorithm), collective)


def check_supported(collective: Collective) -> None:
    """Raise ValueError for a collective that torch.distributed does not support over MPI."""
    if collective.dtype is not None and collective.dtype not in TYPES:
        raise ValueError(
            f"torch's MPI backend has no {collective.dtype}; write --dtype with one of {', '.join(TYPES)}"
        )
    if collective.splits is not None:
        raise ValueError("mpi cannot time an uneven all_to_all; remove --splits, or write --library ideal")
    if collective.redop in ("avg", "mulsum"):
        raise ValueError(
            f"torch's MPI backend has no {collective.redop}; write --redop with sum, prod, min, max"
        )


def port_of(graph: Topology, routes: Routes, placed: Sequence[int]) -> NodePort:
    """Return the attachment of ranks, ``placed`` per node.

    That is the narrowest link between two nodes, and its latency.
    """
    nodes, each = len(placed), placed[0]
    away = each if nodes > 1 else 1
    if sum(placed) == 1:
        return NodePort(1.0, 1.0, 0.0)
    links = [graph.edges[hop] for hop in routes.route(0, away)]
    latency = sum(link["latency"] for link in links) * 1e6
    rate = min(link["bandwidth"] for link in links) * 1e-9
    if nodes == 1 or each == 1:
        return NodePort(rate, rate, latency)
    cards = {routes.route(rank, rank + each) for rank in range(each)}
    narrow = {min(hops, key=lambda hop: graph.edges[hop]["bandwidth"]) for hops in cards}
    return NodePort(rate, rate * len(narrow), latency, each)


algorithms = tuple(dict.fromkeys(name for names in ROUNDS.values() for name in names))


def build(collective: Collective, algorithm: str) -> Schedule | None:
    """Return an algorithm's schedule, independent of machines; ``None`` if it has only a closed form."""
    return None if (collective.kind, algorithm) in WITHOUT else schedule_of(collective, algorithm)


def bind(
    cluster: "str | Topology",
    values: Mapping[str, Any],
    ranks: int | None,
    options: Options,
    calibration: "Calibration | str | None",
) -> Mpi:
    """Return MPI with the figures measured on its machine, or with typical ones."""
    graph = load(cluster, values, ranks=ranks) if isinstance(cluster, str) else cluster
    if calibration == AUTO:
        of_machine = None if original(graph) is None else shipped(name_of(graph))
        calibration = of_machine if of_machine and of_machine.mpi else None
    if isinstance(calibration, str):
        raise ValueError(f"calibration {calibration!r}; read it first, or write {AUTO}")
    if calibration and calibration.mpi is None:
        raise CalibrationError(
            f"the calibration of {calibration.cluster} is not of MPI; write --calibration none, or the "
            "library that it was fitted to"
        )
    measured, before = None, graph
    if calibration and calibration.mpi:
        called = calibration.mpi.described
        before = with_settings(graph, calibration.settings_on(cluster))
        if before is not graph:
            called += f", scaled by the model's ratio for {changed_settings(graph, before)}"
        measured = calibration.mpi.model, called
    log.info("calibration: %s", measured[1] if measured else "none")

    def on(graph: Topology, before: "Mpi | None" = None) -> Mpi:
        return Mpi(
            graph, ranks, algorithm=options.algorithm, protocol=options.protocol, measured=measured,
            network=options.network, placement=options.placement, before=before,
        )  # fmt: skip

    return on(graph, None if before is graph else on(before))
