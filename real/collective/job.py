"""The job of one run, which the launcher hands to every rank as a JSON file."""

import statistics
from dataclasses import dataclass
from typing import Any, ClassVar

from ringside.real.launch.follow import RankJob

PING_PONG = "ping_pong"
"""Pairs of ranks that each send one message back and forth; the time is one way."""

MAX_ITERATIONS = 1_000_000
"""A larger number is a typing mistake."""


def check_repeats(iterations: int, warmup: int) -> None:
    """Raise ValueError for fewer than one iteration, or more than `MAX_ITERATIONS`."""
    if not (1 <= iterations <= MAX_ITERATIONS and 0 <= warmup <= MAX_ITERATIONS):
        raise ValueError(
            f"{iterations} iterations after {warmup} warm-up ones; write at least 1 after 0, "
            f"and at most {MAX_ITERATIONS}"
        )


def check_timeout(timeout_s: float) -> None:
    """Raise ValueError for a timeout of zero or less, or out of range."""
    if not 0 < timeout_s < 1e6:
        raise ValueError(f"a timeout of {timeout_s} s; write for example 60")


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveJob(RankJob):
    """One collective at several sizes, each with ``iterations`` timed after ``warmup`` untimed ones.

    ``algorithm`` is ``library`` for the backend's own collective, `PING_PONG`, or the name of one of
    Ringside's algorithms, whose schedule runs over point-to-point sends and receives. ``timeout_s`` is how
    long a rank waits for another before it gives up.
    """

    worker: ClassVar[str] = "ringside.real.collective.worker"

    collective: str
    algorithm: str
    backend: str
    sizes: tuple[int, ...]
    dtype: str
    iterations: int
    warmup: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MpiJob(CollectiveJob):
    """The same job under mpirun."""

    worker: ClassVar[str] = "ringside.real.mpi.worker"


def row_of(nbytes: int, slowest: list[float], fingerprint: dict[str, str]) -> dict[str, Any]:
    """Return rank 0's row for one size, from the seconds of every iteration on its slowest rank."""
    ordered = sorted(slowest)
    return {
        "nbytes": nbytes,
        "time_s": statistics.median(ordered),
        "min_s": ordered[0],
        "max_s": ordered[-1],
        "p95_s": ordered[min(len(ordered) - 1, round(0.95 * (len(ordered) - 1)))],
        "fingerprint": fingerprint,
    }
