"""The physical parameters of a network, which calibration fits and predictions use."""

import math
from dataclasses import dataclass, fields, replace

from ringside.topologies import Routes, Topology, ranks
from ringside.topologies.units import MAX_DURATION, MIN_RATE

_MOST = {"alpha": MAX_DURATION, "beta": 1 / MIN_RATE, "gamma": 1 / MIN_RATE, "launch": MAX_DURATION}


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """Hockney's model with reduction and launch.

    ``alpha`` is the latency of one message from rank to rank in seconds, ``beta`` the seconds per byte on the
    narrowest link, ``gamma`` the seconds per byte that a rank takes to add received data to its own,
    ``launch`` the seconds before a collective's first message (Hockney, "The communication challenge for
    MPP", Parallel Computing 20, 1994; gamma as in Thakur et al. 2005).
    """

    alpha: float
    beta: float
    gamma: float = 0.0
    launch: float = 0.0

    def __post_init__(self) -> None:
        for name in (field.name for field in fields(self)):
            check_within(name, getattr(self, name), _MOST[name])

    def carried_over(self, before: "Parameters", now: "Parameters") -> "Parameters":
        """Scale parameters fitted to the figures ``before`` in proportion to the figures ``now``."""
        alpha = self.alpha * (now.alpha / before.alpha) if before.alpha else self.alpha
        return replace(self, alpha=alpha, beta=self.beta * (now.beta / before.beta))

    def on(self, graph: Topology, routes: Routes | None = None) -> Topology:
        """Return the topology with latencies and bandwidths scaled to ``alpha`` and ``beta``.

        Links keep their proportions: the slowest route between neighbouring ranks gets ``alpha``, the
        narrowest link ``beta``. A topology without latencies gets equal ones on every link. Routes stay the
        same, so the graph's ``routes`` serve for both.
        """
        routes = routes or Routes(graph)
        preset = preset_of(graph, routes)
        scaled = graph.copy()
        hops = max((len(hops) for hops in _between_neighbours(graph, routes)), default=1)
        for _, _, link in scaled.edges(data=True):
            link["bandwidth"] *= preset.beta / self.beta if self.beta else math.inf
            link["latency"] = (
                link["latency"] * (self.alpha / preset.alpha) if preset.alpha else self.alpha / hops
            )
        return scaled


def check_within(name: str, value: float, most: float = math.inf) -> None:
    """Raise ValueError unless a figure is a finite number from 0 to ``most``."""
    if not (math.isfinite(value) and 0 <= value <= most):
        limit = f"from 0 to {most:g}" if most < math.inf else "of 0 or more"
        raise ValueError(f"{name} is {value}; write a number {limit}")


def preset_of(graph: Topology, routes: Routes | None = None) -> Parameters:
    """Return a topology's own parameters: its slowest route between neighbours, its narrowest link."""
    neighbours = _between_neighbours(graph, routes or Routes(graph))
    edges = graph.edges
    return Parameters(
        alpha=max((sum(edges[hop]["latency"] for hop in hops) for hops in neighbours), default=0.0),
        beta=1 / min((edges[hop]["bandwidth"] for hops in neighbours for hop in hops), default=1.0),
    )


def _between_neighbours(graph: Topology, routes: Routes) -> list[tuple[tuple[str, str], ...]]:
    count = len(ranks(graph))
    return [routes.route(rank, (rank + 1) % count) for rank in range(count if count > 1 else 0)]
