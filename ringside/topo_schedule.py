"""``ringside topo --schedule``: who sends to whom, channel by channel."""

from pathlib import Path

from ringside import console
from ringside.request import library_of
from sim.algorithms import schedule
from sim.collective import Collective
from sim.engine.effort import consider
from sim.libraries.nccl.cluster import communicators
from sim.libraries.nccl.communicator import Settings
from sim.libraries.nccl.device.schedules import schedule as nccl_schedule
from sim.schedule import Schedule
from topologies import Topology, parse_settings, ranks

NBYTES = 64 << 20
"""Large enough for NCCL to use all its channels."""

Links = dict[int, dict[tuple[int, int], bool]]
"""By channel, the pairs that talk, and whether the receiver adds what it gets first."""


def show_schedule(
    cluster: str, settings: list[str], graph: Topology, algorithm: str, plot: Path | None, *, as_json: bool
) -> None:
    """Print the connections of an all-reduce on the cluster, and draw them where asked to."""
    plan = _plan(cluster, settings, len(ranks(graph)), algorithm)
    with console.simulating("proving"):
        consider(plan, graph)
        plan.check()
        links = _links(plan)
    if plot:
        from ringside.pictures.schedule import draw_schedule

        draw_schedule(links, f"{algorithm} all_reduce on {cluster}", plot)
    if as_json:
        channels = [{"channel": c, "connections": list(pairs)} for c, pairs in links.items()]
        console.print_json("schedule", {"cluster": cluster, "algorithm": algorithm, "channels": channels})
        return
    print(f"# {algorithm} all_reduce on {cluster}, {plan.ranks} ranks; a>b: a sends to b, a+b: b adds")
    for channel, pairs in links.items():
        print(
            f"channel {channel:>2}  "
            + " ".join(f"{a}{'+' if adds else '>'}{b}" for (a, b), adds in pairs.items())
        )


def _plan(cluster: str, settings: list[str], count: int, algorithm: str) -> Schedule:
    if count == 1:
        raise ValueError(f"{cluster} is one rank, which talks to nobody; write more")
    if library_of(None, cluster) == "ideal":
        return schedule(algorithm, Collective("all_reduce", count, NBYTES, 4))
    values = parse_settings(settings)
    comm = next(iter(communicators(cluster, values, None, None, Settings()).values()))
    assert comm is not None
    return nccl_schedule(comm, Collective("all_reduce", comm.ranks, NBYTES, 4), algorithm, "simple")


def _links(plan: Schedule) -> Links:
    links: Links = {}
    for moved in plan.steps():
        columns = (moved.channel, moved.src, moved.dst, moved.reduce)
        for channel, src, dst, adds in zip(*(c.tolist() for c in columns), strict=True):
            links.setdefault(channel, {}).setdefault((src, dst), adds)
    return dict(sorted(links.items()))
