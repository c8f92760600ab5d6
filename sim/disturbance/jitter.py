"""Random lengthening of work: a distribution, measured factors, interruptions."""

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

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
