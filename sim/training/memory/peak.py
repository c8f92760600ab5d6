"""A rank's memory over a step, and its peak."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ringside.sim.program import Operation


@dataclass(frozen=True, slots=True)
class Peak:
    """A rank's peak: bytes by pool and in total, its begin (s), and the operation that begins then.

    Without allocations it is the constant part.
    """

    by_pool: Mapping[str, int]
    nbytes: int
    moment_s: float
    operation: str


Curve = tuple[tuple[float, int], ...]
"""Moments (s) in order, and the bytes allocated from each on."""


@dataclass(frozen=True, slots=True)
class Use:
    """A rank's memory over a step."""

    peak: Peak
    curve: Curve


def use(
    held: Mapping[str, int],
    operations: Sequence[Operation],
    begins: Sequence[float] | None = None,
    ends: Sequence[float] | None = None,
) -> Use:
    """Return the memory of a rank that holds ``held`` bytes throughout and runs these operations.

    Without times operations run one after another, as listed: a step before it is simulated.
    """
    changes = (
        (
            *((2.0 * place + (nbytes < 0), 0) if begins is None or ends is None
              else (begins[place], 2 * place) if nbytes > 0 else (ends[place], 2 * place + 1)),
            pool, nbytes, operation.name,
        )
        for place, operation in enumerate(operations)
        for pool, nbytes in operation.memory
    )  # fmt: skip
    now, total, most = dict(held), sum(held.values()), sum(held.values())
    peak = Peak(dict(held), total, 0.0, "")
    curve = [(0.0, total)]
    for moment, _, pool, nbytes, name in sorted(changes):
        now[pool] = now.get(pool, 0) + nbytes
        total += nbytes
        if curve[-1][0] == moment:
            curve.pop()
        curve.append((moment, total))
        if total > most:
            most, peak = total, Peak(dict(now), total, moment, name)
    return Use(peak, tuple(curve))
