"""The peak of a rank's memory in a step."""

from collections.abc import Iterator, Mapping, Sequence
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


def peak(
    held: Mapping[str, int],
    operations: Sequence[Operation],
    begins: Sequence[float] | None = None,
    ends: Sequence[float] | None = None,
) -> Peak:
    """Return the peak of a rank that holds ``held`` bytes throughout and runs these operations.

    Without times operations run one after another, as listed: the peak of a step before it is simulated.
    """
    changes: Iterator[tuple[float, int, str, int, str]] = (
        (
            *((2.0 * place + (nbytes < 0), 0) if begins is None or ends is None
              else (begins[place], 2 * place) if nbytes > 0 else (ends[place], 2 * place + 1)),
            pool, nbytes, operation.name,
        )
        for place, operation in enumerate(operations)
        for pool, nbytes in operation.memory
    )  # fmt: skip
    now, total, most = dict(held), sum(held.values()), sum(held.values())
    peak_ = Peak(dict(held), total, 0.0, "")
    for moment, _, pool, nbytes, name in sorted(changes):
        now[pool] = now.get(pool, 0) + nbytes
        total += nbytes
        if total > most:
            most, peak_ = total, Peak(dict(now), total, moment, name)
    return peak_
