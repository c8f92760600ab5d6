"""A rank's memory over a simulated step, pool by pool."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ringside.sim.program import Operation


@dataclass(frozen=True, slots=True)
class Peak:
    """The most that a rank holds: bytes by pool, its begin (s), and the operation that begins then.

    If no operation allocates anything it is the constant part.
    """

    pools: Mapping[str, int]
    moment_s: float
    operation: str

    @property
    def nbytes(self) -> int:
        """Their sum."""
        return sum(self.pools.values())


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
    peak_ = Peak(dict(held), 0.0, "")
    for moment, _, pool, nbytes, name in sorted(changes):
        now[pool] = now.get(pool, 0) + nbytes
        total += nbytes
        if total > most:
            most, peak_ = total, Peak(dict(now), moment, name)
    return peak_
