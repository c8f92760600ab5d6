"""What every library of collectives is asked, and what it answers: the one door."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from sim.collective import Collective
from sim.engine.laws import check_band
from sim.engine.timeline import Timeline
from sim.schedule import Schedule

ENGINES = ("auto", "simpy", "model")


@dataclass(frozen=True, slots=True)
class Candidate:
    """One way in which a library can carry out a collective.

    ``belief_us`` is the library's own idea of its time, in microseconds, where it has one: NCCL's tuner
    chooses by it. ``caveat`` is what to know before the choice is believed.
    """

    algorithm: str
    protocol: str = "auto"
    channels: int = 1
    belief_us: float | None = None
    caveat: str = ""

    @property
    def name(self) -> str:
        """The algorithm, with its protocol where there are several: ``tree/ll128``."""
        return self.algorithm if self.protocol == "auto" else f"{self.algorithm}/{self.protocol}"


@dataclass(frozen=True, slots=True)
class Estimate:
    """How long a candidate takes, in seconds, and by which engine.

    Between ``time_lo_s`` and ``time_hi_s`` lay nine of ten rows that a schedule's parameters were fitted to,
    and lie four of five by NCCL's measured model; both equal ``time_s`` where nothing was calibrated.
    ``algorithm`` is the schedule's own name, or the
    candidate's; ``channels`` are those that carry bytes.
    """

    time_s: float
    time_lo_s: float
    time_hi_s: float
    engine: str
    algorithm: str
    channels: int = 1
    timeline: Timeline | None = None
    caveat: str = ""

    def __post_init__(self) -> None:
        check_band(self.algorithm, self.time_lo_s, self.time_s, self.time_hi_s)


class Library(Protocol):
    """A library on a cluster, for a group of its ranks, with its settings and its calibration.

    Every time that leaves it is checked: `sim.engine.laws.LawError` is a defect of ours.
    """

    @property
    def name(self) -> str:
        """What the command line calls it."""
        ...

    @property
    def network(self) -> str:
        """How the links serve messages where schedules are played: one of `sim.network.find`'s."""
        ...

    @property
    def ranks(self) -> int:
        """How many ranks there are."""
        ...

    @property
    def nodes(self) -> int:
        """How many machines they sit on."""
        ...

    def candidates(self, collective: Collective) -> Sequence[Candidate]:
        """Every way that it weighs; of equals the earlier is taken."""
        ...

    def choose(self, collective: Collective) -> Candidate:
        """What it takes of its own accord, within its settings."""
        ...

    def schedule(self, collective: Collective, candidate: Candidate) -> Schedule:
        """Who sends what to whom; refuses by name what has no schedule."""
        ...

    def bound(self, collective: Collective, candidate: Candidate) -> float:
        """Seconds below which the candidate cannot be, by what its links must carry."""
        ...

    def time(
        self, collective: Collective, candidate: Candidate, engine: str = "auto", *, traced: bool = False
    ) -> Estimate:
        """How long the candidate takes alone, launch included."""
        ...


def check_ranks(library: Library, collective: Collective) -> None:
    """Refuse a collective of other ranks than the library's."""
    if collective.ranks != library.ranks:
        raise ValueError(
            f"a collective of {collective.ranks} ranks on {library.name} of {library.ranks} ranks; "
            "write as many ranks as the library is bound to"
        )


def check_engine(engine: str) -> None:
    """Refuse what is no engine."""
    if engine not in ENGINES:
        raise ValueError(f"{engine!r} is no known engine; write one of {', '.join(ENGINES)}")
