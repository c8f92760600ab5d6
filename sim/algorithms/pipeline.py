"""Chunk sizes of algorithms that pipeline messages."""

from math import isqrt

from ringside.sim.collective import Collective
from ringside.sim.schedule import Chunks, sized_chunks

GRAIN = 4096
"""Bytes: alpha/beta over the depth of a tree, a constant because a schedule is independent of the network."""


def chunk_size(nbytes: int) -> int:
    """Return the bytes of one chunk of a message of ``nbytes``: sqrt(nbytes * GRAIN), at least GRAIN.

    A pipeline of K chunks through d hops takes (K + d - 1)(alpha + nbytes beta / K), least at K = sqrt((d -
    1) nbytes beta / alpha): the best chunk grows with the square root of the message (Chan et al.,
    "Collective communication: theory, practice, and experience", Concurrency and Computation 19, 2007,
    section 7). It grows smoothly and the last chunk is the remainder, so that a message that is larger by a
    few bytes is never faster because of a different cut.
    """
    return max(GRAIN, isqrt(nbytes * GRAIN))


def pipeline_chunks(collective: Collective) -> Chunks:
    """Cut the collective's only block for a pipeline."""
    return sized_chunks(collective, chunk_size(collective.nbytes))
