"""What the recorded faults of a cluster mean for a job: nodes down, and spares that keep it whole."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ringside.sim.faults.draws import draw_faults, draw_history
from ringside.sim.faults.history import FaultHistory, FaultsError, Floats, quantile_of
from ringside.sim.faults.law import DAY_S, FaultLaw
from ringside.sim.goodput.job import Cause, LongJob
from ringside.sim.goodput.study import Strike

SHARES = (0.5, 0.9, 0.99)
"""Shares of the time for which nodes down and spares are given."""

DRAWN = 100
"""Records drawn for the spread of node-days."""

SPREAD = (0.05, 0.5, 0.95)


@dataclass(frozen=True, kw_only=True)
class JobFaults:
    """A record of faults and the law learnt from it, for a job of ``nodes`` nodes with ``spares`` more."""

    history: FaultHistory
    law: FaultLaw
    nodes: int
    spares: int
    seed: int

    @property
    def causes(self) -> tuple[Cause, ...]:
        """The kinds of faults as causes of failures; a node is away until repaired."""
        return tuple(
            Cause(kind.name, kind.share * self.law.per_node_s, loses_node=True) for kind in self.law.kinds
        )

    @property
    def repair_s(self) -> float:
        """The mean repair time."""
        return sum(kind.share * kind.mean_s for kind in self.law.kinds)

    def strikes(self, job: LongJob, rng: np.random.Generator) -> Iterator[Strike]:
        """Yield the job's failures, drawn from the law."""
        last_s = 0.0
        for one in draw_faults(self.law, job.nodes, rng):
            yield Strike(one.begin_s - last_s, job.causes[one.kind], one.node / job.nodes, one.repair_s)
            last_s = one.begin_s

    @cached_property
    def node_days(self) -> tuple[float, ...]:
        """Node-days down of drawn records, as long as this one: their `SPREAD`."""
        drawn = [
            draw_history(
                self.law, self.law.nodes, self.law.span_s, np.random.default_rng([self.seed, number])
            )
            for number in range(DRAWN)
        ]
        return tuple(float(one) for one in np.quantile([one.node_s_down / DAY_S for one in drawn], SPREAD))

    def spares_for(self, share: float) -> int | None:
        """Return the least spares that keep the job whole for a share of the time; None if none do."""
        try:
            return self.law.spares(self.nodes, share)
        except FaultsError:
            return None

    def content(self) -> dict[str, Any]:
        """Return all as plain values, for JSON."""
        law, low_median_high = self.law, self.node_days
        return {
            "source": self.history.source,
            "nodes": law.nodes,
            "span_s": law.span_s,
            "faults": len(self.history.faults),
            "nodes_with_faults": len(self.history.by_node()),
            "per_1000_node_days": law.per_node_s * DAY_S * 1000,
            "relapse": law.relapse,
            "offenders": law.offenders,
            "crowding": law.crowding,
            "level_s": law.level_s,
            "kinds": [
                {
                    "name": kind.name, "faults": kind.faults, "mean_s": kind.mean_s,
                    "p50_s": kind.repaired_within_s(0.5), "p90_s": kind.repaired_within_s(0.9),
                }
                for kind in law.kinds
            ],
            "recorded": {"node_days": self.history.node_s_down / DAY_S, **_figures(self.history.down())},
            "expected": {
                "node_days": law.down_share * law.nodes * law.span_s / DAY_S,
                **dict(zip(("p5_node_days", "p50_node_days", "p95_node_days"), low_median_high, strict=True)),
                **_figures(law.down(law.nodes)),
            },
            "spares": [{"share": share, "spares": self.spares_for(share)} for share in SHARES],
            "whole": law.whole(self.nodes, self.spares),
        }  # fmt: skip


def _figures(shares: Floats) -> dict[str, float]:
    """Return the mean and the quantiles of nodes down."""
    quantiles = {f"p{100 * share:g}": quantile_of(shares, share) for share in SHARES}
    return {"mean": float(np.arange(len(shares)) @ shares), **quantiles}
