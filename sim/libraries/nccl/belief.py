"""An 80 % interval around NCCL's own estimate on machines without measurements.

The factors are the 10 % and 90 % quantiles of measured over estimated time, each measured machine counting
alike. ``python -m ringside.validation.nccl.belief`` prints them from the published rows.
"""

from math import exp, hypot, log, log2

from ringside.sim.libraries.gaussian import EIGHTY
from ringside.sim.libraries.nccl.measured import PER_DOUBLING

SIZES = (64 * 1024, 4 * 1024**2, 128 * 1024**2 - 1)
"""The largest sizes of all classes but the last."""

MOST_NODES = 128
"""The largest number of nodes among the rows."""

ONE_NODE = ((0.75, 2.85), (0.83, 2.57), (0.95, 1.83), (0.85, 1.71))
"""The quantiles on one node, by class of size."""

SEVERAL_NODES = ((0.80, 2.78), (1.09, 4.99), (0.95, 2.44), (0.85, 1.31))
"""The same on several nodes."""


def size_class(nbytes: int) -> int:
    """Return the number of a size's class."""
    return sum(nbytes > most for most in SIZES)


def ends(time_s: float, nbytes: int, nodes: int) -> tuple[float, float]:
    """Return the ends of the interval around an estimated time; more nodes than any row's widen it."""
    low, high = (SEVERAL_NODES if nodes > 1 else ONE_NODE)[size_class(nbytes)]
    beyond = EIGHTY * PER_DOUBLING * max(log2(nodes / MOST_NODES), 0.0) ** 0.5
    return time_s / exp(hypot(log(1 / min(low, 1.0)), beyond)), time_s * exp(hypot(log(high), beyond))
