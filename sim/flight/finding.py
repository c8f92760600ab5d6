"""What a cause is, and how sentences name ranks and calls."""

from collections.abc import Sequence
from dataclasses import dataclass

from ringside.sim.flight.dump import FlightCall

DIFFERENT, ORDER, LATE, DEAD, DEVICE = "different call", "wrong order", "late", "no dump", "device"
"""Causes: members call different things; ranks wait for one another; a rank has not called what others wait
in; or has left no dump; or all have called, so that a GPU or a link is to blame."""

MOST_NAMED = 8
"""Ranks that a sentence lists."""


@dataclass(frozen=True, slots=True)
class Finding:
    """The cause: guilty ranks, and the call of a group at which they differ or are missing.

    ``number`` counts the group's collectives, or the messages of a pair of ranks, from 1. ``waiting`` ranks
    are in that call, or in the one that guilty ranks should have made. ``sentence`` says all of it.
    """

    cause: str
    ranks: tuple[int, ...]
    waiting: tuple[int, ...]
    group: str
    number: int
    call: str
    place: str
    sentence: str
    is_message: bool = False


def named(ranks: Sequence[int]) -> str:
    """Write ``rank 3``, ``ranks 0 and 1``, or ``ranks 0, 1, 2 and 4 more``."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    more = len(ranks) - MOST_NAMED
    *first, last = [*map(str, ranks[:MOST_NAMED]), *([f"{more:,} more"] if more > 0 else [])]
    return f"ranks {', '.join(first)} and {last}"


def verb(ranks: Sequence[int], plural: str, singular: str | None = None) -> str:
    """Return the verb in the number of its ranks."""
    return plural if len(ranks) > 1 else singular or f"{plural}s"


def placed(call: FlightCall) -> str:
    """Return a call with its line: ``all_reduce (train.py:31)``."""
    return f"{call.name} ({call.where})" if call.where else call.name
