"""NCCL at a site whose bandwidths by number of nodes are known."""

from collections.abc import Sequence
from dataclasses import replace

from ringside.sim.collective import Collective
from ringside.sim.libraries.library import Candidate, Estimate
from ringside.sim.libraries.nccl.fabric_factors import FabricFactor, factor_of
from ringside.sim.libraries.nccl.library import Nccl
from ringside.sim.libraries.scaling import raised


class NcclOnFabric(Nccl):
    """NCCL on the site's fabric; the choice stays the tuner's."""

    factors: Sequence[FabricFactor] = ()

    def _time(self, collective: Collective, candidate: Candidate, engine: str, *, traced: bool) -> Estimate:
        """Return the time on the site's fabric; simulated times are those of the links and stay."""
        estimate = super()._time(collective, candidate, engine, traced=traced)
        factor = factor_of(self.factors, collective.kind, self.nodes, collective.nbytes)
        if self.comm is None or engine in ("simpy", "fast") or factor == 1.0:
            return estimate
        latency_s = min(self._latency_s(collective), estimate.time_s)
        scale = (latency_s + factor * (estimate.time_s - latency_s)) / estimate.time_s
        at_site = replace(
            estimate, time_s=estimate.time_s * scale, time_lo_s=estimate.time_lo_s * scale,
            time_hi_s=estimate.time_hi_s * scale,
            basis=f"{estimate.basis}; bytes take {factor:.3g} times as long by the site's bandwidths",
        )  # fmt: skip
        least = self.bound(collective, candidate)
        return raised(at_site, least) if at_site.time_lo_s < least else at_site

    def _latency_s(self, collective: Collective) -> float:
        smallest = Collective(
            collective.kind, collective.ranks, collective.ranks * collective.itemsize,
            dtype=collective.dtype, redop=collective.redop,
        )  # fmt: skip
        return super()._time(smallest, self.choose(smallest), "auto", traced=False).time_s
