"""Times of passes of tensor-parallel ranks without contention.

All ranks of a group act alike at the same times, so their exchanges can be replaced by times.
"""

from ringside.sim.program.groups import CostModel
from ringside.sim.training.layers import Kernels, Pass


def pass_s(parts: Pass, time: CostModel) -> float:
    """Return the seconds of a pass whose exchanges take ``time``; work hides earlier ones that overlap."""
    now = beside = 0.0
    for part in parts:
        if isinstance(part, Kernels):
            now = max(now + part.seconds, beside)
            continue
        beside = max(now, beside) + time(part.collective)
        if not part.overlaps:
            now = beside
    return max(now, beside)
