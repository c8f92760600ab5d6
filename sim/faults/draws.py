"""Faults drawn from a law, one after another: as a record of their own, or as failures of a job."""

import heapq
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ringside.sim.faults.history import FaultHistory, Floats, NodeFault, quantile_of
from ringside.sim.faults.law import FaultLaw

_TRIES = 50


class DrawnFault(NamedTuple):
    """A fault of a node at a moment; ``kind`` is its place among the law's kinds."""

    begin_s: float
    node: int
    kind: int
    repair_s: float


def draw_faults(law: FaultLaw, nodes: int, rng: np.random.Generator) -> Iterator[DrawnFault]:
    """Yield endless faults of that many nodes in the order of their begins; all nodes are up at 0."""
    shares = np.array([kind.share for kind in law.kinds])
    nodes_before = _cumulative_rates(law, nodes, rng)
    busy: dict[int, float] = {}
    relapses: list[tuple[float, int]] = []

    def struck(begin_s: float, node: int) -> DrawnFault:
        kind = quantile_of(shares, rng.random())
        repair_s = law.kinds[kind].repaired_within_s(rng.random())
        busy[node] = begin_s + repair_s
        if rng.random() < law.relapse:
            busy[node] += float(law.gaps_s[rng.integers(len(law.gaps_s))])
            heapq.heappush(relapses, (busy[node], node))
        return DrawnFault(begin_s, node, kind, repair_s)

    for fresh_s in _fresh(law, nodes, rng):
        while relapses and relapses[0][0] <= fresh_s:
            yield struck(*heapq.heappop(relapses))
        for _ in range(_TRIES):
            node = min(int(np.searchsorted(nodes_before, rng.random())), nodes - 1)
            if busy.get(node, 0.0) <= fresh_s:
                yield struck(fresh_s, node)
                break


def draw_history(law: FaultLaw, nodes: int, span_s: float, rng: np.random.Generator) -> FaultHistory:
    """Draw a record of that duration; it begins after as long a time, with nodes down."""
    faults = []
    for one in draw_faults(law, nodes, rng):
        if one.begin_s > 2 * span_s:
            break
        end_s = min(one.begin_s + one.repair_s, 2 * span_s)
        faults.append(
            NodeFault(node=str(one.node), begin_s=one.begin_s, end_s=end_s, kind=law.kinds[one.kind].name)
        )
    whole = FaultHistory(nodes=nodes, begin_s=0.0, end_s=2 * span_s, faults=tuple(faults), source="drawn")
    return whole.between(span_s, 2 * span_s)


def _fresh(law: FaultLaw, nodes: int, rng: np.random.Generator) -> Iterator[float]:
    """Yield the begins of faults that are no relapses: Poisson's, at the level's rate."""
    rate = nodes * law.per_node_s * (1 - law.relapse)
    now_s, level_end_s, level = 0.0, 0.0, 1.0
    while True:
        if now_s >= level_end_s:
            level_end_s = now_s + rng.exponential(law.level_s)
            level = rng.gamma(1 / law.level, law.level) if law.level > 0 else 1.0
        gap_s = rng.exponential() / (rate * level) if rate * level > 0 else np.inf
        now_s = min(now_s + gap_s, level_end_s)
        if now_s < level_end_s:
            yield now_s


def _cumulative_rates(law: FaultLaw, nodes: int, rng: np.random.Generator) -> Floats:
    """Return the shares of faults up to each node, with rates from a gamma law."""
    rates = rng.gamma(1 / law.offenders, law.offenders, nodes) if law.offenders > 0 else np.ones(nodes)
    shares: Floats = np.cumsum(rates) / rates.sum()
    return shares
