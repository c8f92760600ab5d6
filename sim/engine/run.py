"""The common interface of engines that play schedules."""

from dataclasses import dataclass

from ringside.sim.engine.timeline import Timeline
from ringside.sim.schedule import Schedule
from ringside.topologies import Topology, ranks
from ringside.topologies.graph import name_of


@dataclass(frozen=True)
class Run:
    """The outcome of one simulated collective."""

    time_s: float
    num_transfers: int
    timeline: Timeline | None = None
    engine: str = "simpy"


def check_ranks(schedule: Schedule, graph: Topology) -> None:
    """Refuse a schedule of more ranks than the topology has."""
    if schedule.ranks > len(ranks(graph)):
        raise ValueError(
            f"{schedule.ranks} ranks on {name_of(graph)} with {len(ranks(graph))}; "
            f"write at most that many ranks, or a larger cluster"
        )
