"""Many draws of a disturbance, and their summary: the duration in quantiles, and who waits for whom."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ringside.sim.disturbance.disturbance import Disturbance, Draw

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
