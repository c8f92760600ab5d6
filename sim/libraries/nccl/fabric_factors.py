"""A site's bus bandwidths by number of nodes, and NCCL on such a fabric.

    time = latency + factor(collective, nodes, bytes) * (time without the table - latency)

A factor is what the bytes' part of a collective takes at the site, over what it would take without the table.
Latency is the time of the smallest message. Factors are interpolated along the logarithms of nodes and bytes,
and held beyond the first and the last; those of one node apply inside a node only. Of another collective that
a ring carries out the factors stand in for a missing one's. Sends are scaled by their own rows alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp, log

import numpy as np

from ringside.sim.collective import Collective
from ringside.sim.libraries.library import Candidate, Estimate
from ringside.sim.libraries.nccl.library import Nccl

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


class NcclOnFabric(Nccl):
    """NCCL at a site whose bandwidths by number of nodes are known; the choice stays the tuner's."""

    factors: Sequence[FabricFactor] = ()

    def _time(self, collective: Collective, candidate: Candidate, engine: str, *, traced: bool) -> Estimate:
        """Return the time on the site's fabric; simulated times are those of the links and stay."""
        estimate = super()._time(collective, candidate, engine, traced=traced)
        factor = factor_of(self.factors, collective.kind, self.nodes, collective.nbytes)
        if self.comm is None or engine in ("simpy", "fast") or factor == 1.0:
            return estimate
        latency_s = min(self._latency_s(collective), estimate.time_s)
        scale = (latency_s + factor * (estimate.time_s - latency_s)) / estimate.time_s
        return replace(
            estimate, time_s=estimate.time_s * scale, time_lo_s=estimate.time_lo_s * scale,
            time_hi_s=estimate.time_hi_s * scale,
            basis=f"{estimate.basis}; bytes take {factor:.3g} times as long by the site's bandwidths",
        )  # fmt: skip

    def _latency_s(self, collective: Collective) -> float:
        smallest = Collective(
            collective.kind, collective.ranks, collective.ranks * collective.itemsize,
            dtype=collective.dtype, redop=collective.redop,
        )  # fmt: skip
        return super()._time(smallest, self.choose(smallest), "auto", traced=False).time_s
