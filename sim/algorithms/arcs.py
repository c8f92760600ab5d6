"""Neighbouring parts that may wrap around from the last rank's to the first one's."""

import numpy as np
from numpy.typing import ArrayLike

from ringside.sim.steps import Step, step


def arcs(src: ArrayLike, dst: ArrayLike, first: ArrayLike, span: ArrayLike, parts: int) -> Step:
    """Send ``span`` parts, beginning with ``first``, from each source; use two transfers to wrap around."""
    src, dst, first, span = (np.atleast_1d(a) for a in np.broadcast_arrays(src, dst, first, span))
    first = first % parts
    over = np.maximum(first + span - parts, 0)
    past = over > 0
    return step(
        np.concatenate([src, src[past]]),
        np.concatenate([dst, dst[past]]),
        np.concatenate([first, np.zeros_like(first[past])]),
        span=np.concatenate([span - over, over[past]]),
        reduce=False,
    )
