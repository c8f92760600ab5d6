"""How a site's bandwidths by number of nodes change NCCL's times.

    time = latency + factor(collective, nodes, bytes) * (time without the table - latency)

A factor is what the bytes' part of a collective takes at the site, over what it would take without the table.
Latency is the time of the smallest message. Factors are interpolated along the logarithms of nodes and bytes,
and held beyond the first and the last; those of one node apply inside a node only. Of another collective that
a ring carries out the factors stand in for a missing one's. Sends are scaled by their own rows alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log

import numpy as np

RINGS = ("all_gather", "reduce_scatter", "all_reduce", "broadcast", "reduce")
"""Collectives whose factors stand in for one another's, in this order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricFactor:
    """How much longer bytes take at a site than without the site's table."""

    collective: str
    nodes: int
    nbytes: int
    factor: float

    def __post_init__(self) -> None:
        if not (self.nodes >= 1 and self.nbytes >= 1 and 0 < self.factor < float("inf")):
            raise ValueError(f"a factor of {self.factor} on {self.nodes} nodes; write numbers above 0")


def factor_of(factors: Sequence[FabricFactor], kind: str, nodes: int, nbytes: int) -> float:
    """Return the factor of a collective; 1 where the table has none for it."""
    alike = (kind, *RINGS) if kind in RINGS else (kind,)
    for name in alike:
        rows = [one for one in factors if one.collective == name and (one.nodes == 1) == (nodes == 1)]
        if rows:
            counts = sorted({one.nodes for one in rows})
            logs = [_along_bytes([one for one in rows if one.nodes == count], nbytes) for count in counts]
            return exp(float(np.interp(log(nodes), np.log(counts), logs)))
    return 1.0


def _along_bytes(rows: Sequence[FabricFactor], nbytes: int) -> float:
    """Return the logarithm of the factor at a size, of rows of one number of nodes."""
    rows = sorted(rows, key=lambda one: one.nbytes)
    sizes, logs = [log(one.nbytes) for one in rows], [log(one.factor) for one in rows]
    return float(np.interp(log(max(nbytes, 1)), sizes, logs))
