"""Labels of layouts that ran or ran out of memory, beside what is said about them."""

from collections.abc import Iterable
from typing import NamedTuple

from ringside.sim.training.memory.room import FITS, TOO_LARGE
from ringside.validation.scorecard.judged import Counted


class MemoryLabel(NamedTuple):
    """A layout that ``ran`` or ran out of memory, its verdict, and whether a data sheet's size has room."""

    ran: bool
    verdict: str
    has_room: bool


def counted(labels: Iterable[MemoryLabel]) -> list[Counted]:
    """Count right answers: ``fits`` is wrong of what ran out of memory, ``tight`` is never quite wrong.

    The naive rule compares predicted bytes with a data sheet's.
    """
    labels = list(labels)
    ran = [one for one in labels if one.ran]
    ran_out = [one for one in labels if not one.ran]
    return [
        Counted(
            "ran out of memory and is not said to fit",
            sum(one.verdict != FITS for one in ran_out), len(ran_out),
            sum(not one.has_room for one in ran_out),
        ),
        Counted(
            "ran and is not said not to fit",
            sum(one.verdict != TOO_LARGE for one in ran), len(ran), sum(one.has_room for one in ran),
        ),
        Counted(
            "ran and is said to fit",
            sum(one.verdict == FITS for one in ran), len(ran), sum(one.has_room for one in ran),
        ),
    ]  # fmt: skip
