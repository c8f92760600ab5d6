"""Figures measured at some sizes, interpolated between them in the logarithm of each size."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import log2
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

NEARNESS = 4
"""Power of the inverse distance that weights scattered figures.

Each of SimuMax's 395 shapes of B200, interpolated from the others, is 4.5 % off in the median with it, 4.7 %
with 3 and 4.8 % with 6; on sparse grids of H100 it is as near as a linear interpolation (5.6 and 4.7 %).
"""


@dataclass(frozen=True, slots=True)
class Grid:
    """Figures at all combinations of the sizes on each axis, interpolated linearly.

    Sizes ascend, and the last axis varies fastest. Beyond an axis its last figure holds.
    """

    axes: tuple[Sequence[int], ...]
    figures: Sequence[float]

    def at(self, *sizes: int) -> float:
        """Return the figure at these sizes, one for each axis."""
        corners = [(0, 1.0)]
        for axis, size in zip(self.axes, sizes, strict=True):
            low, share = _between(axis, size)
            corners = [(place * len(axis) + low, weight * (1 - share)) for place, weight in corners] + (
                [(place * len(axis) + low + 1, weight * share) for place, weight in corners] if share else []
            )
        return sum(self.figures[place] * weight for place, weight in corners)


def _between(axis: Sequence[int], size: int) -> tuple[int, float]:
    """Return the place of the next smaller size, and the share of the way to the next larger one."""
    low = bisect_right(axis, size) - 1
    if low < 0:
        return 0, 0.0
    if low == len(axis) - 1:
        return low, 0.0
    return low, log2(size / axis[low]) / log2(axis[low + 1] / axis[low])


@dataclass(frozen=True)
class Points:
    """Figures at scattered sizes; between them the mean, weighted by inverse distance (Shepard, 1968)."""

    sizes: Sequence[tuple[int, ...]]
    figures: Sequence[float]

    def at(self, *sizes: int) -> float:
        """Return the figure at these sizes."""
        places, figures = self._arrays
        distances = ((places - [log2(size) for size in sizes]) ** 2).sum(axis=1)
        nearest = distances.argmin()
        if distances[nearest] < 1e-12:
            return float(figures[nearest])
        weights = (distances[nearest] / distances) ** (NEARNESS / 2)
        return float(weights @ figures / weights.sum())

    @cached_property
    def _arrays(self) -> "tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]":
        import numpy as np

        return np.log2(np.array(self.sizes, float)), np.array(self.figures)
