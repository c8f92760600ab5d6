"""Two binary trees, each for half of the data; inner ranks of one are leaves of the other.

Every rank then sends and receives close to 2S in all, as in a ring, at a tree's depth (Sanders, Speck and
Träff 2009; NCCL 2.4 and later, src/graph/trees.cc).
"""

import numpy as np

from ringside.sim.algorithms.pipeline import chunk_size
from ringside.sim.algorithms.trees.tree import streams
from ringside.sim.collective import Collective
from ringside.sim.schedule import Chunks, Ints, Schedule, sized_chunks
from ringside.sim.trees import trees


def halves(collective: Collective) -> tuple[Chunks, range, range]:
    """Cut the data in two halves, each in chunks for a pipeline; return all chunks and those per half."""
    elements = collective.nbytes // collective.itemsize
    middle = elements // 2 * collective.itemsize
    size = chunk_size(middle)
    low = sized_chunks(Collective(collective.kind, 1, middle, collective.itemsize), size)
    high = sized_chunks(Collective(collective.kind, 1, collective.nbytes - middle, collective.itemsize), size)
    count = len(low) + len(high)

    def cut() -> tuple[Ints, Ints]:
        return np.concatenate([low.bounds, middle + high.bounds[1:]]), np.zeros(count, dtype=np.int64)

    return Chunks.later(count, cut), range(len(low)), range(len(low), count)


def all_reduce(collective: Collective) -> Schedule:
    """Run both trees at once, each on its own channel."""
    chunks, *parts = halves(collective)
    one, other = (
        streams(parent, part, len(chunks), channel=channel)
        for channel, (parent, part) in enumerate(zip(trees(collective.ranks), parts, strict=True))
    )
    return Schedule(collective, "double_binary_tree", chunks, one.beside(other))


BUILDS = {"all_reduce": all_reduce}
