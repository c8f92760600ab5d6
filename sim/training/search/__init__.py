"""The search for the layout under which a job is quickest: bounds, and who is worth simulating.

`search` goes through candidates; `Bounds` says what each takes and holds at the least.
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
