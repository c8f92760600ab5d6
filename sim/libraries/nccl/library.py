"""NCCL as a library: its choice for one collective, and how long that takes.

    time = time of NCCL's tuner or of the engine + `LAUNCH_S`

The tuner's time is NCCL's estimate, by which it chooses; the engine's is the pipeline over the tuner's
latencies and the search's bandwidths, after the tuner's base latency. For a measured machine the measured
model's time replaces them, and the choice stays the tuner's.
"""

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import Self

from ringside.sim.calibration import Calibration
from ringside.sim.collective import Collective
from ringside.sim.engine.timeline import Timeline
from ringside.sim.libraries.experts.exchange import token_estimate
from ringside.sim.libraries.library import Candidate, Estimate, Library
from ringside.sim.libraries.nccl import belief
from ringside.sim.libraries.nccl.communicator import Communicator, SiteFacts
from ringside.sim.libraries.nccl.device.closed_form import closed_form, has_closed_form, on_fabric
from ringside.sim.libraries.nccl.device.p2p import KINDS as POINT_TO_POINT
from ringside.sim.libraries.nccl.device.p2p import point_to_point
from ringside.sim.libraries.nccl.device.p2p_schedule import p2p_schedule
from ringside.sim.libraries.nccl.device.plays import plays
from ringside.sim.libraries.nccl.device.schedules import carried_bytes, schedule
from ringside.sim.libraries.nccl.device.traffic import AT_A_NODE, traffic
from ringside.sim.libraries.nccl.graph.system import time_ratio
from ringside.sim.libraries.nccl.measured import MeasuredModel
from ringside.sim.libraries.nccl.message_times import FORMS, ONE_GPU, Launch, Task
from ringside.sim.libraries.nccl.names import ALGORITHMS, PROTOCOLS
from ringside.sim.libraries.nccl.releases import DEFAULT_VERSION
from ringside.sim.libraries.nccl.tuner import CostTable, check_function, cost_table, launch
from ringside.sim.libraries.scaling import raised, scaled, widened
from ringside.sim.libraries.scheduled import evaluate
from ringside.sim.parameters import Parameters
from ringside.sim.schedule import Schedule
from ringside.topologies import Topology
from ringside.topologies.fabrics.structure import Machines
from ringside.topologies.units import format_duration

Seconds = float

LAUNCH_S: Seconds = 2e-6
"""The host's time for a collective that runs back to back with others, in seconds.

ABCI 2.0's nccl-tests of 8 B on 8 and on 4 A100 take 17.0 and 11.9 us (github.com/aistabci/ abci2.0benchmark,
NCCL 2.8.4), where the tuner has 15.0 and 10.2. Other clusters lie between 2 us below the tuner and 20 us
above: a default for machines without calibration.
"""

CLOCKS = ("tuner", "pipeline")
"""Sources of ``auto``: NCCL's estimate; or the closed forms, within 5 % of the engine's."""

ALONE = Candidate("none", "none", 0, 0.0)
"""NCCL's time on one rank, on which it at most copies the buffer."""


@dataclass(frozen=True, slots=True)
class Calibrated:
    """A measured model in use, ``name``, its name in answers, and that of sends and receives.

    Either may be missing. ``calibration`` has both.
    """

    model: MeasuredModel | None
    name: str
    sends: "Calibrated | None" = None
    calibration: Calibration | None = None

    def covers(self, nodes: int) -> bool:
        """Return whether this number of nodes was measured."""
        return self.model is not None and nodes in self.model.nodes

    def basis(self, nodes: int) -> str:
        """Return the source of the times of this number of nodes."""
        return f"as measured ({self.name})" if self.covers(nodes) else f"extrapolated from {self.name}"

    def of(self, kind: str) -> "Calibrated | None":
        """Return the one for this kind of collective."""
        one = self.sends if kind in POINT_TO_POINT else self
        return one if one and one.model else None

    @property
    def facts(self) -> SiteFacts:
        """The facts of the machine between nodes."""
        return self.model.facts if self.model else SiteFacts()


class Nccl(Library):
    """NCCL on a communicator, within its pins; ``None`` stands for a single rank.

    With the ``pipeline`` clock only pairs with a closed form are candidates, mainly rings and trees: times of
    two models cannot be ranked together. The choice is the tuner's by either clock. ``calibrated`` replaces
    the clock for every pair with a measured form, and then only these are candidates; ``uncalibrated`` is the
    reason for its absence. ``before`` is the measured machine if the rates differ from its own; its times are
    scaled by the tuner's ratio. ``launch`` is how the host starts it, which only the measured model uses.
    ``network`` is how the engine serves messages.
    """

    name = "nccl"
    has_tuner = True
    plays_links = False
    basis = ""

    def __init__(
        self,
        comm: Communicator | None,
        *,
        clock: str = "tuner",
        calibrated: Calibrated | None = None,
        uncalibrated: str = "",
        launch: Launch = ONE_GPU,
        network: str = "fifo",
        before: Communicator | None = None,
    ) -> None:
        if clock not in CLOCKS:
            raise ValueError(f"unknown times {clock!r}; write {' or '.join(CLOCKS)}")
        self.comm = calibrated.facts.on(comm) if calibrated and comm else comm
        self.clock = clock
        self.calibrated = calibrated
        self.calibration = calibrated.calibration if calibrated else None
        self.uncalibrated = uncalibrated
        self.launch = launch
        self.network = network
        self.ranks = comm.ranks if comm else 1
        self.nodes = comm.nodes if comm else 1
        self.placed = (comm.gpus if comm else 1,) * self.nodes
        self.version = comm.settings.version if comm else DEFAULT_VERSION
        self.channels = self.comm.channels if self.comm else 0
        self.measurements = calibrated.name if calibrated else ""
        self.basis = calibrated.basis(self.nodes) if calibrated else "as its tuner estimates"
        self.extrapolates = calibrated is not None and not calibrated.covers(self.nodes)
        self.notes = tuple(filter(None, (uncalibrated, *(self.comm.notes if self.comm else ()))))
        self.is_on_fabric = comm is not None and comm.network is not None
        is_changed = before is not None and before is not comm
        self._before = Nccl(before, calibrated=calibrated, launch=launch) if is_changed else None

    def standing(self, network: Topology, machines: Sequence[int]) -> Self:
        """Return the same on other machines of a fabric, by their numbers there."""
        moved = copy(self)
        if self.comm and isinstance(network.graph.get("structure"), Machines):
            moved.comm = replace(self.comm, network=network, machines=tuple(machines))
        return moved

    def _basis(self, engine: str, kind: str) -> str:
        """Describe the source of an estimate's time, and assumptions."""
        if engine == "measured" and self.calibrated and (known := self.calibrated.of(kind)):
            note = f"time_s {known.basis(self.nodes)}; four of five lie from time_lo_s to time_hi_s"
        else:
            clock = "the closed form's" if self.clock == "pipeline" else "the tuner's"
            whose = "the engine's" if engine in ("simpy", "fast") else clock
            note = f"time_s is {whose} time plus {LAUNCH_S * 1e6:g} us for the launch; it is not calibrated"
            if self.uncalibrated and engine == "model":
                note += "; on machines that were measured four of five lie from time_lo_s to time_hi_s"
        return "; ".join((note, *self.notes))

    def check_pick(self, kind: str) -> None:
        """Raise ValueError for sends and receives, which bypass the tuner."""
        check_function(kind)

    def candidates(self, collective: Collective) -> Sequence[Candidate]:
        """Return every pair that the tuner considers, in its order; one candidate for sends and receives."""
        if self.comm is None or collective.kind in POINT_TO_POINT:
            return [self.choose(collective)]
        table = _table(self.comm, collective)
        times = table.times_us(collective.nbytes)
        candidates = [
            Candidate(
                algorithm,
                protocol,
                launch(self.comm, algorithm, protocol, collective.nbytes)[0],
                float(times[row, column]),
            )
            for row, algorithm in enumerate(ALGORITHMS)
            for column, protocol in enumerate(PROTOCOLS)
            if table.bandwidth[row, column]
            and (self.clock == "tuner" or has_closed_form(self.comm, collective.kind, algorithm))
        ]
        return [one for one in candidates if self.is_measured(collective, one)] or candidates

    def choose(self, collective: Collective) -> Candidate:
        """Return the tuner's choice."""
        if self.comm is None:
            return ALONE
        if collective.kind in POINT_TO_POINT:
            sent = point_to_point(self.comm, collective.kind, collective.nbytes, collective)
            return Candidate("p2p", "simple", sent.channels, sent.time_us)
        choice = _table(self.comm, collective).choose(collective.nbytes)
        rivals = tuple(pair for pair in choice.rivals if (collective.kind, pair) in FORMS)
        return Candidate(choice.algorithm, choice.protocol, choice.channels, choice.time_us, rivals=rivals)

    def schedule(self, collective: Collective, candidate: Candidate) -> Schedule:
        """Return all channels of an algorithm, or all sends and receives."""
        if self.comm is None:
            raise ValueError("1 rank has no peers, so there is no schedule; write 2 ranks or more")
        if collective.kind in POINT_TO_POINT:
            return p2p_schedule(self.comm, collective)
        return schedule(self.comm, collective, candidate.algorithm, candidate.protocol)

    def bound(self, collective: Collective, candidate: Candidate) -> Seconds:
        """Return the time of the candidate's busiest link for its bytes, plus the clock's launch."""
        busy = self.busy(collective, candidate)
        return self._launch_s(collective, candidate) + max(busy.values(), default=0.0)

    def busy(self, collective: Collective, candidate: Candidate) -> Mapping[str, Seconds]:
        """Return the seconds for which the busiest link of each kind carries the bytes, by name."""
        if self.comm is None:
            return {}
        return traffic(self.comm, collective, candidate.algorithm, candidate.protocol)

    def parts(self, collective: Collective) -> Mapping[str, Seconds]:
        """Return the seconds that each kind of link carries a collective, by nccl-tests' bus bandwidth.

        That counts a ring's traffic: capacity that a tree or a switch saves is not given to another
        collective.
        """
        algorithm = "p2p" if self.choose(collective).algorithm == "p2p" else "ring"
        return self.busy(collective, Candidate(algorithm, "simple"))

    def doubt(self, collective: Collective, one: tuple[str, str], other: tuple[str, str]) -> float | None:
        """Return the relative uncertainty of two pairs' measured ratio; ``None`` if one has none."""
        pairs = one, other
        known = self.calibrated and self.calibrated.of(collective.kind)
        if not (known and self.comm and all((collective.kind, pair) in FORMS for pair in pairs)):
            return None
        if self._before:
            doubt = self._before.doubt(collective, one, other)
            first, second = (self.change(collective, Candidate(*pair)) for pair in pairs)
            return widened(1 + (doubt or 0.0), first / second) - 1 if first and second else None
        tasks = (Task(self.comm, collective.kind, collective.nbytes, pair, self.launch) for pair in pairs)
        return known.model.doubt(*tasks) if known.model else None

    def is_measured(self, collective: Collective, candidate: Candidate) -> bool:
        """Return whether the measured model covers this candidate."""
        pair = candidate.algorithm, candidate.protocol
        if self.calibrated is None or self.calibrated.of(collective.kind) is None:
            return False
        known = (collective.kind, pair) in FORMS and collective.splits is None
        return known and self.change(collective, candidate) is not None

    def change(self, collective: Collective, candidate: Candidate) -> float | None:
        """Return the ratio of the candidate's time to that on the measured machine, by the tuner."""
        if not (self._before and self._before.comm and self.comm):
            return 1.0
        bare = replace(candidate, belief_us=None)  # of this machine only
        times = [
            _after_launch(_believed_us(comm, collective, bare)) for comm in (self.comm, self._before.comm)
        ]
        return time_ratio(self.comm.system, self._before.comm.system, *times)

    def _time(self, collective: Collective, candidate: Candidate, engine: str, *, traced: bool) -> Estimate:
        """Return the time as measured, by the clock without measurements or for ``model``, or by the engine.

        The engine's timeline is the slowest channel's. Tokens of experts have their own library's time.
        """
        if collective.tokens:
            return token_estimate(self, collective.tokens)
        if traced and engine != "simpy":
            raise ValueError("NCCL's model has no timeline; add --engine simpy")
        if self.network != "fifo" and engine != "simpy":
            raise ValueError(
                f"NCCL's tuned and measured times do not model the {self.network} network; "
                "simulate with --engine simpy, or remove --network"
            )
        pair = candidate.algorithm, candidate.protocol
        known = self.calibrated.of(collective.kind) if engine == "auto" and self.calibrated else None
        if known and known.model and self.comm and self.is_measured(collective, candidate):
            estimate = self._measured(known.model, self.comm, collective, candidate)
            return self._at_least_traffic(collective, candidate, estimate)
        channels, timeline, played = candidate.channels, None, engine in ("simpy", "fast")
        if self.comm is None:
            seconds = LAUNCH_S
        elif played:
            seconds, engine, timeline = simulated(
                self.comm, collective, *pair, engine, traced=traced, network=self.network
            )
            seconds += overhead_s(self.comm, *pair)
            if candidate.algorithm != "p2p":
                channels = len(carried_bytes(self.comm, collective, *pair))
        elif self.clock == "pipeline":
            seconds = closed_form(self.comm, collective, *pair) + overhead_s(self.comm, *pair)
        else:
            seconds = _after_launch(_believed_us(self.comm, collective, candidate))
        taken = "model" if engine == "auto" else engine
        beside = f"{candidate.algorithm} {collective.kind} is not calibrated" if self.calibrated else ""
        low = high = seconds
        if self.uncalibrated and self.comm and engine == "auto":
            low, high = belief.ends(seconds, collective.nbytes, self.nodes)
        estimate = Estimate(seconds, low, high, taken, candidate.algorithm, channels, timeline, caveat=beside)
        return self._at_least_traffic(
            collective, candidate, estimate, played=played or self.clock == "pipeline"
        )

    def _measured(
        self, model: MeasuredModel, comm: Communicator, collective: Collective, candidate: Candidate
    ) -> Estimate:
        """Return the measured model's time and 80 % interval, wide enough for the times of the rivals."""
        if self._before and self._before.comm and (ratio := self.change(collective, candidate)):
            was = self._before._measured(model, self._before.comm, collective, candidate)
            ends = scaled(was.time_s, was.time_lo_s, was.time_hi_s, ratio)
        else:
            pairs = (candidate.algorithm, candidate.protocol), *candidate.rivals
            tasks = [Task(comm, collective.kind, collective.nbytes, pair, self.launch) for pair in pairs]
            answer = model.predict(tasks)
            low, high = min(answer.lo_s[0], *answer.time_s), max(answer.hi_s[0], *answer.time_s)
            ends = float(answer.time_s[0]), float(low), float(high)
        return Estimate(*ends, "measured", candidate.algorithm, candidate.channels)

    def _at_least_traffic(
        self, collective: Collective, candidate: Candidate, estimate: Estimate, *, played: bool = False
    ) -> Estimate:
        """Return the time of the machines on their fabric, raised to the links' time for its own traffic.

        On a measured machine the links' time cuts the band off below. With changed rates or a fabric, farther
        from the measurements, both ends rise and the band stays as wide.
        """
        estimate = replace(estimate, basis=self._basis(estimate.engine, collective.kind))
        if self.comm is None:
            return estimate
        busy, launch_s = self.busy(collective, candidate), self._launch_s(collective, candidate)
        inside = launch_s + max(busy.get(kind, 0.0) for kind in AT_A_NODE)
        alone = estimate
        if estimate.time_lo_s < inside:
            alone = raised(estimate, inside, cut=self._before is None)
        joined = final = alone
        if self.comm.network is not None and self.comm.nodes > 1:
            joined = final = on_fabric(self.comm, collective, candidate, alone, played=played)
        least = launch_s + max(busy.values())
        if joined.time_lo_s < least:
            final = raised(joined, least)
        if final.time_s > joined.time_s or alone.time_s > estimate.time_s:
            kind = max(busy, key=lambda one: busy[one])
            note = f"time raised to that of its traffic, {format_duration(busy[kind], 4)} on {kind}"
            final = replace(final, caveat="; ".join(filter(None, (final.caveat, note))))
        return final

    def _launch_s(self, collective: Collective, candidate: Candidate) -> Seconds:
        """Return the launch time that the clock adds; measured times include it."""
        return 0.0 if self.is_measured(collective, candidate) else LAUNCH_S


def simulated(
    comm: Communicator,
    collective: Collective,
    algorithm: str,
    protocol: str,
    engine: str = "simpy",
    *,
    traced: bool = False,
    network: str = "fifo",
) -> tuple[Seconds, str, Timeline | None]:
    """Return the seconds, the engine and the timeline of the channel that takes longest.

    The engine is ``fast`` only if that played all channels. The seconds are from the first byte sent to the
    last received, without the tuner's base latency and the launch.
    """
    nothing_else = Parameters(alpha=0.0, beta=0.0)  # besides the links' own figures
    runs = [
        evaluate(
            one.schedule, one.graph, nothing_else, engine, traced=traced, routes=one.routes, network=network
        )
        for one in plays(comm, collective, algorithm, protocol)
    ]
    taken = {run[1] for run in runs}
    seconds, _, timeline = max(runs, key=lambda run: run[0])
    return seconds, taken.pop() if len(taken) == 1 else "simpy", timeline


def overhead_s(comm: Communicator, algorithm: str, protocol: str) -> Seconds:
    """Return the seconds before the first byte moves: the launch, and the tuner's base latency.

    Sends and receives, which the tuner does not handle, have a ring's.
    """
    algorithm = "ring" if algorithm == "p2p" else algorithm
    return _after_launch(comm.constants.base_us[algorithm][list(PROTOCOLS).index(protocol)])


def _after_launch(microseconds: float) -> Seconds:
    return microseconds * 1e-6 + LAUNCH_S


def _table(comm: Communicator, collective: Collective) -> CostTable:
    return cost_table(comm, collective.kind, collective.dtype or "float32", collective.redop)


def _believed_us(comm: Communicator, collective: Collective, candidate: Candidate) -> float:
    """Return the candidate's estimate, or the tuner's for a pair from elsewhere."""
    if candidate.belief_us is not None:
        return candidate.belief_us
    if candidate.algorithm == "p2p":
        return point_to_point(comm, collective.kind, collective.nbytes, collective).time_us
    times = _table(comm, collective).times_us(collective.nbytes)
    place = list(ALGORITHMS).index(candidate.algorithm), list(PROTOCOLS).index(candidate.protocol)
    return float(times[place])
