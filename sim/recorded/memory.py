"""The memory of a recorded rank over its step, in the order in which its host allocates and frees.

PyTorch's caching allocator hands out and takes back memory when the host asks, whatever the device has done
by then, so a peak follows from the host's order alone. On a timeline a change is shown at the moment when the
compute stream comes to it.
"""

from collections.abc import Sequence

from ringside.sim.recorded.job import RecordedRank
from ringside.sim.training.memory.peak import Peak, Use


def use_of(recorded: RecordedRank, names: Sequence[str], moments: Sequence[float]) -> Use:
    """Return a rank's memory; ``names`` and ``moments`` (s) are of its entries, moments never decreasing."""
    now, total = dict(recorded.held), sum(recorded.held.values())
    peak = Peak(dict(now), total, 0.0, "")
    curve = [(0.0, total)]
    for entry, name, moment in zip(recorded.entries, names, moments, strict=True):
        if not entry.memory:
            continue
        most, high = total, None
        for pool, nbytes in entry.memory:
            now[pool] = now.get(pool, 0) + nbytes
            total += nbytes
            if total > most:
                most, high = total, dict(now)
        if high is not None and most > peak.nbytes:
            peak = Peak(high, most, moment, name)
        if curve[-1][0] == moment:
            curve.pop()
        curve.append((moment, total))
    return Use(peak, tuple(curve))
