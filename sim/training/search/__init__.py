"""The search for a job's fastest layout: bounds, and which candidates are worth simulating.

`search` goes through candidates; `Bounds` has lower bounds of time and memory.
"""

from ringside.sim.training.search.bounds import Bounds
from ringside.sim.training.search.search import (
    IMPOSSIBLE,
    SLOWER,
    Candidate,
    Found,
    Pruned,
    Searched,
    search,
)

__all__ = [
    "IMPOSSIBLE",
    "SLOWER",
    "Bounds",
    "Candidate",
    "Found",
    "Pruned",
    "Searched",
    "search",
]
