"""A job's disturbance, and one draw of it: the engines' inputs."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from ringside.sim.program.operations import Compute, Operation, Program
from ringside.topologies import Topology, ranks
from ringside.topologies.graph import Hop, name_of
from ringside.topologies.units import MAX_DURATION

MAX_SIGMA = 3.0
"""Maximum sigma of a lognormal jitter; one piece in twenty then takes at least 140 times its median."""


class Jitter(Protocol):
    """Independent factors of pieces of work; their median is 1."""

    @property
    def name(self) -> str:
        """Its name in outputs."""
        ...

    def factors(self, rng: np.random.Generator, count: int) -> NDArray[np.float64]:
        """Draw ``count`` factors."""
        ...


@dataclass(frozen=True, slots=True)
class Lognormal:
    """Factors whose logarithm is normally distributed about 0, with the standard deviation ``sigma``."""

    sigma: float

    def __post_init__(self) -> None:
        if not 0 < self.sigma <= MAX_SIGMA:
            raise ValueError(
                f"a lognormal jitter of sigma {self.sigma:g}; write more than 0, {MAX_SIGMA:g} at the most, "
                "for example lognormal:0.1"
            )

    @property
    def name(self) -> str:
        """Its name in outputs."""
        return f"lognormal:{self.sigma:g}"

    def factors(self, rng: np.random.Generator, count: int) -> NDArray[np.float64]:
        """Draw ``count`` factors."""
        return rng.lognormal(0.0, self.sigma, count)


@dataclass(frozen=True, slots=True)
class Empirical:
    """Measured factors, all equally likely; ``name`` says where they were measured."""

    measured: tuple[float, ...]
    name: str

    def __post_init__(self) -> None:
        if len(self.measured) < 2 or not all(0 < one < math.inf for one in self.measured):
            raise ValueError(f"{self.name}: a measured jitter needs two factors or more, each above 0")

    def factors(self, rng: np.random.Generator, count: int) -> NDArray[np.float64]:
        """Draw ``count`` factors, with replacement."""
        return rng.choice(np.asarray(self.measured), count)


@dataclass(frozen=True, slots=True)
class OsNoise:
    """OS noise: it interrupts a rank's core every ``period_s`` seconds, for ``duration_s``.

    The phase is random for each rank and each piece of work.
    """

    period_s: float
    duration_s: float

    def __post_init__(self) -> None:
        if not 0 < self.duration_s < self.period_s < math.inf:
            raise ValueError(
                f"noise of {self.duration_s:g} s every {self.period_s:g} s; write a period and a part "
                "of it, for example 1ms=25us"
            )

    def longer(self, rng: np.random.Generator, seconds: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the durations of interrupted pieces of work.

        Between two interruptions ``period_s - duration_s`` of work are done, and the first is uniform in that
        interval: on average work takes period / (period - duration) times as long.
        """
        quiet = self.period_s - self.duration_s
        return seconds + self.duration_s * np.floor(seconds / quiet + rng.random(len(seconds)))


MAX_FACTOR = 1_000_000
"""Maximum factor; anything slower counts as a hang."""

_LINKS = 2**40
"""The links' stream of random numbers, beyond those of ranks."""


@dataclass(frozen=True, slots=True)
class SlowLink:
    """A link that carries ``factor`` times fewer bytes per second, one way or both."""

    a: str
    b: str
    factor: float
    both: bool = True

    def __post_init__(self) -> None:
        _check_factor(f"link {self.a}-{self.b}", self.factor)

    @property
    def hops(self) -> tuple[Hop, ...]:
        """Its directions."""
        return ((self.a, self.b), (self.b, self.a)) if self.both else ((self.a, self.b),)


@dataclass(frozen=True, slots=True, kw_only=True)
class Disturbance:
    """Slow ranks and links, by their factors, jitter, noise, and late ranks, in seconds."""

    slow_ranks: Mapping[int, float] = field(default_factory=dict)
    slow_links: tuple[SlowLink, ...] = ()
    jitter: Jitter | None = None
    noise: OsNoise | None = None
    late: Mapping[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for rank, factor in self.slow_ranks.items():
            _check_factor(f"rank {rank}", factor)
        for rank, seconds in self.late.items():
            if not (math.isfinite(seconds) and 0 <= seconds <= MAX_DURATION):
                raise ValueError(f"rank {rank} is {seconds} s late; write 0 to {MAX_DURATION:g} s")
        hops = [hop for link in self.slow_links for hop in link.hops]
        twice = next((hop for hop in hops if hops.count(hop) > 1), None)
        if twice:
            raise ValueError(f"link {twice[0]}-{twice[1]} is slow twice; name it once")

    @property
    def is_random(self) -> bool:
        """Whether draws differ from each other."""
        return bool(self.jitter or self.noise)

    def check_ranks(self, count: int) -> None:
        """Refuse ranks that do not exist."""
        for word, named in (("slow", self.slow_ranks), ("late", self.late)):
            unknown = [rank for rank in named if not 0 <= rank < count]
            if unknown:
                raise ValueError(f"rank {unknown[0]} is {word}; allowed: ranks 0 to {count - 1}")

    def links(self, graph: Topology) -> Topology:
        """Return the topology with its slow links."""
        if not self.slow_links:
            return graph
        slowed = graph.copy()
        for link in self.slow_links:
            for hop in link.hops:
                if hop not in slowed.edges:
                    own = [edge for edge in graph.edges if hop[0] in edge] or list(graph.edges)
                    some = ", ".join(f"{a}-{b}" for a, b in own[:3])
                    raise ValueError(
                        f"{name_of(graph)} has no link {hop[0]}-{hop[1]}; write another, such as {some}"
                    )
                slowed.edges[hop]["bandwidth"] /= link.factor
        return slowed


@dataclass(frozen=True, slots=True)
class Draw:
    """One draw of a disturbance: number ``number`` of a seed's draws, always the same."""

    disturbance: Disturbance
    seed: int
    number: int

    def program(self, program: Program) -> Program:
        """Return the program with this draw's compute times; ranks are drawn independently."""
        self.disturbance.check_ranks(program.ranks)
        made: dict[int, Sequence[Operation]] = {}

        def operations(rank: int) -> Sequence[Operation]:
            if rank not in made:
                made[rank] = self._operations(rank, program.operations(rank))
            return made[rank]

        return Program(program.name, program.ranks, operations)

    def seconds(self, rank: int, nominal: Sequence[float]) -> list[float]:
        """Return this draw's durations of a rank's work, in the order in which it does them."""
        durations = np.asarray(nominal, dtype=np.float64) * self.disturbance.slow_ranks.get(rank, 1.0)
        rng = np.random.default_rng([self.seed, self.number, rank])
        if self.disturbance.jitter:
            durations = durations * self.disturbance.jitter.factors(rng, len(durations))
        if self.disturbance.noise:
            durations = self.disturbance.noise.longer(rng, durations)
        return [float(one) for one in durations]

    def network(self, graph: Topology) -> Topology:
        """Return the topology for one collective: slow links, slow ranks' own links, and jitter on each.

        A collective has no compute, so a slow rank is slow at sending and receiving.
        """
        self.disturbance.check_ranks(len(ranks(graph)))
        disturbed = self.disturbance.links(graph).copy()
        places = ranks(disturbed)
        for rank, factor in self.disturbance.slow_ranks.items():
            own = places[rank]
            for hop in chain(disturbed.in_edges(own), disturbed.out_edges(own)):
                disturbed.edges[hop]["bandwidth"] /= factor
        if self.disturbance.jitter:
            rng = np.random.default_rng([self.seed, self.number, _LINKS])
            factors = self.disturbance.jitter.factors(rng, disturbed.number_of_edges())
            for (_, _, link), factor in zip(disturbed.edges(data=True), factors.tolist(), strict=True):
                link["bandwidth"] /= factor
                link["latency"] *= factor
        return disturbed

    def _operations(self, rank: int, operations: Sequence[Operation]) -> list[Operation]:
        changed = list(operations)
        works = [
            (place, operation.action.seconds)
            for place, operation in enumerate(changed)
            if isinstance(operation.action, Compute) and operation.lane is not None
        ]
        seconds = self.seconds(rank, [nominal for _, nominal in works])
        for (place, _), own in zip(works, seconds, strict=True):
            changed[place] = Operation(Compute(own), *changed[place][1:])
        return changed


def _check_factor(what: str, factor: float) -> None:
    if not 1 / MAX_FACTOR <= factor <= MAX_FACTOR:
        raise ValueError(
            f"{what} is {factor:g} times slower; write {1 / MAX_FACTOR:.6f} to {MAX_FACTOR:,}, "
            "for example 1.5"
        )
