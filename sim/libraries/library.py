"""The library of collectives, whose answers keep laws: candidates, a choice, a schedule, a time.

No prediction may break a law. A violation is a defect of Ringside and never printed as an answer.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Self

from ringside.sim.collective import Collective
from ringside.sim.engine.timeline import Timeline
from ringside.sim.schedule import Schedule
from ringside.topologies import Topology
from ringside.topologies.names import one_of

if TYPE_CHECKING:
    from ringside.sim.libraries.nccl.communicator import Communicator

ROUNDING = 1e-9
"""Relative error allowed for sums of floats."""


class LawError(ArithmeticError):
    """A prediction that is physically impossible; the message shows the numbers."""


def check_time(what: str, time_s: float, bounds: dict[str, float]) -> None:
    """Raise LawError for an invalid time, or one below a bound; bounds are in seconds by name."""
    if not math.isfinite(time_s) or time_s < 0:
        raise LawError(f"{what}: predicted time {time_s!r} s is not a valid time")
    for name, bound in bounds.items():
        if time_s < bound * (1 - ROUNDING):
            raise LawError(f"{what}: predicted time {time_s!r} s is below the {name} bound of {bound!r} s")


def check_band(what: str, lo_s: float, time_s: float, hi_s: float) -> None:
    """Raise LawError for an invalid time or band, or a band that does not contain the time."""
    check_time(f"{what}, lower end", lo_s, {})
    check_time(what, time_s, {"lower": lo_s})
    check_time(f"{what}, upper end", hi_s, {"lower": time_s})


def check_monotone(what: str, sizes: Sequence[int], times: Sequence[float]) -> None:
    """Raise LawError for times that fall while the size grows."""
    by_size = sorted(zip(sizes, times, strict=True))
    for (small, previous), (large, time) in pairwise(by_size):
        if time < previous * (1 - ROUNDING):
            raise LawError(f"{what}: {large} B in {time!r} s, less than {small} B in {previous!r} s")


def check_step(
    what: str,
    step_s: float,
    compute_s: float,
    communication_s: float,
    overhead_s: float = 0.0,
    traffic_s: float = 0.0,
) -> None:
    """Raise LawError for a step shorter than its compute or communication, or longer than all its parts.

    Its communication is at least ``traffic_s``, which links need for its bytes.
    """
    check_time(f"communication of {what}", communication_s, {"traffic": traffic_s})
    check_time(what, step_s, {"compute": compute_s, "communication": communication_s})
    most = compute_s + communication_s + overhead_s
    if step_s > most * (1 + ROUNDING):
        raise LawError(
            f"{what}: predicted time {step_s!r} s is more than compute {compute_s!r} s + communication "
            f"{communication_s!r} s + overheads {overhead_s!r} s = {most!r} s"
        )


ENGINES = ("auto", "simpy", "fast", "model")


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way in which a library can carry out a collective.

    ``belief_us`` is the library's own estimate of its time, in microseconds, if any: NCCL's tuner
    chooses by it. ``rivals`` are pairs of algorithm and protocol that it may run instead. ``caveat`` is a
    warning about the choice.
    """

    algorithm: str
    protocol: str = "auto"
    channels: int = 1
    belief_us: float | None = None
    caveat: str = ""
    rivals: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        """The algorithm, with its protocol where there are several: ``tree/ll128``."""
        return self.algorithm if self.protocol == "auto" else f"{self.algorithm}/{self.protocol}"


@dataclass(frozen=True, slots=True)
class Estimate:
    """How long a candidate takes, in seconds, and by which engine.

    From ``time_lo_s`` to ``time_hi_s`` lie nine of ten fitted rows of a schedule's parameters, or four of
    five of NCCL's measured model; both equal ``time_s`` without calibration. ``algorithm`` is the schedule's
    own name, or the candidate's; ``channels`` are those that carry bytes. ``basis`` is the source of the
    time, in a sentence.
    """

    time_s: float
    time_lo_s: float
    time_hi_s: float
    engine: str
    algorithm: str
    channels: int = 1
    timeline: Timeline | None = None
    caveat: str = ""
    basis: str = ""


@dataclass(frozen=True, slots=True)
class Prediction:
    """How long one collective takes, and how it is carried out.

    From ``time_lo_s`` to ``time_hi_s`` lie nine of ten fitted rows of a schedule's parameters, or four of
    five of NCCL's measured model; both equal ``time_s`` without calibration. ``caveat`` is a warning about
    the answer, ``basis`` the source of the time in a sentence. ``network`` is how links serve messages in a
    simulation or a closed form. ``channels`` and ``belief_us``, the library's own estimate in microseconds,
    are NCCL's, ``choice`` the candidate's name. ``algbw`` and ``busbw`` are its bandwidths in bytes/s, as
    nccl-tests defines them.
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
    channels: int = 1
    belief_us: float | None = None
    network: str = "fifo"
    basis: str = ""
    choice: str = ""
    algbw: float = field(init=False)
    busbw: float = field(init=False)

    def __post_init__(self) -> None:
        what = f"{self.algorithm} {self.collective.kind} of {self.collective.nbytes} B"
        check_band(what, self.time_lo_s, self.time_s, self.time_hi_s)
        algbw = self.collective.nbytes / self.time_s if self.time_s else 0.0
        object.__setattr__(self, "algbw", algbw)
        object.__setattr__(self, "busbw", algbw * self.collective.busbw_factor)


class Library:
    """A library on a cluster, for a group of its ranks, with its settings and its calibration.

    Every returned time is checked: `ringside.sim.libraries.library.LawError` is a defect of Ringside.
    """

    name: str
    """Its name on the command line."""
    network: str
    """How links serve messages of schedules: one of `ringside.sim.network.message.NETWORKS`."""
    ranks: int
    nodes: int
    """The number of machines of the ranks."""
    placed: Sequence[int]
    """The numbers of consecutive ranks that share a machine: 4 and 4 on two machines."""
    version: str | None = None
    """The modelled release, if releases differ."""
    has_tuner = False
    """Whether it chooses by a tuner's times, which answers show beside the choice."""
    comm: "Communicator | None" = None
    """The communicator of the tuner; ``None`` for a single rank, or without a tuner."""
    plays_links = True
    """Whether its times are those of schedules on links; else they are measured or estimated as a whole."""
    is_on_fabric = False
    """Whether its times depend on the machines used: see `standing`."""
    channels = 0
    """Thread blocks that a collective occupies on a GPU."""
    calibration: Any = None
    """The `ringside.sim.calibration.Calibration` that answers in place of the library's own model, if any."""
    uncalibrated = ""
    """Why there is none, if one was looked for."""
    measurements = ""
    """The name of the measurements behind its times, if any."""
    extrapolates = False
    """Whether these measurements are only of other numbers of nodes."""
    notes: Sequence[str] = ()
    """Assumptions, in sentences."""

    @property
    def basis(self) -> str:
        """The source of its times: measurements, or an unusual network; else empty."""
        if self.measurements:
            name = self.measurements
            return f"extrapolated from {name}" if self.extrapolates else f"as measured ({name})"
        return f"on the {self.network} network" if self.network != "fifo" else ""

    def check_pick(self, kind: str) -> None:
        """Raise ValueError for a collective without a choice of candidates."""

    def candidates(self, collective: Collective) -> Sequence[Candidate]:
        """Return every candidate; of equal ones the first wins."""
        raise NotImplementedError

    def choose(self, collective: Collective) -> Candidate:
        """Return its own choice, within its settings."""
        raise NotImplementedError

    def schedule(self, collective: Collective, candidate: Candidate) -> Schedule:
        """Return the schedule; raise ValueError for a collective without one."""
        raise NotImplementedError

    def bound(self, collective: Collective, candidate: Candidate) -> float:
        """Return the candidate's lower bound by its links' bandwidth, seconds."""
        raise NotImplementedError

    def busy(self, collective: Collective, candidate: Candidate) -> Mapping[str, float]:
        """Return the busy seconds of links, or of the busiest of each kind, by name."""
        raise NotImplementedError

    def parts(self, collective: Collective) -> Mapping[str, float]:
        """Return the seconds that a collective occupies each kind of link."""
        raise NotImplementedError

    def standing(self, network: Topology, machines: Sequence[int]) -> Self:
        """Return the library on other machines of a fabric, by their numbers there."""
        raise NotImplementedError

    def doubt(self, collective: Collective, one: tuple[str, str], other: tuple[str, str]) -> float | None:
        """Return the relative error of two pairs' time ratio; ``None`` without measurements."""
        return None

    def barrier_s(self) -> float | None:
        """Return the seconds of its own barrier, or ``None`` without one."""
        return None

    def time(
        self, collective: Collective, candidate: Candidate, engine: str = "auto", *, traced: bool = False
    ) -> Estimate:
        """Return the candidate's time alone, including launch."""
        check_engine(engine)
        check_ranks(self, collective)
        estimate = self._time(collective, candidate, engine, traced=traced)
        check_band(estimate.algorithm, estimate.time_lo_s, estimate.time_s, estimate.time_hi_s)
        return estimate

    def _time(self, collective: Collective, candidate: Candidate, engine: str, *, traced: bool) -> Estimate:
        raise NotImplementedError


def check_ranks(library: Library, collective: Collective) -> None:
    """Raise ValueError for a collective whose number of ranks is not the library's."""
    if collective.ranks != library.ranks:
        raise ValueError(
            f"a collective of {collective.ranks} ranks on {library.name} of {library.ranks} ranks; "
            "write the number of ranks that the library is bound to"
        )


def check_engine(engine: str) -> None:
    """Raise ValueError for an unknown engine."""
    if engine not in ENGINES:
        raise ValueError(f"unknown engine {engine!r}; write {one_of(ENGINES, engine)}")


def answer(
    library: Library, collective: Collective, engine: str = "auto", *, traced: bool = False
) -> Prediction:
    """Return a library's own choice, within its settings, and its time."""
    check_engine(engine)
    return answer_by(library, collective, library.choose(collective), engine, traced=traced)


def answer_by(
    library: Library, collective: Collective, candidate: Candidate, engine: str, *, traced: bool = False
) -> Prediction:
    """Return the time of one candidate."""
    time = library.time(collective, candidate, engine, traced=traced)
    return Prediction(
        collective, time.algorithm, candidate.protocol, time.engine, time.time_s, time.time_lo_s,
        time.time_hi_s, time.timeline, time.caveat, time.channels, candidate.belief_us, library.network,
        time.basis, candidate.name,
    )  # fmt: skip


def check_growth(predictions: Sequence[Prediction]) -> None:
    """Raise LawError if times of one candidate fall while the size grows; for schedules, not for a tuner."""
    ways: dict[tuple[str, str, str], list[Prediction]] = {}
    for p in predictions:
        ways.setdefault((p.algorithm, p.protocol, p.engine), []).append(p)
    for way, answers in ways.items():
        check_monotone("/".join(way), [p.collective.nbytes for p in answers], [p.time_s for p in answers])
