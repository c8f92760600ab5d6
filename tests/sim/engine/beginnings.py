"""Random questions that can begin at any moment, in an idle or busy network.

The last two ranks of a question's cluster take no part: they exchange messages for hours, over their own
links.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import ulp
from typing import Any

import networkx as nx
import numpy as np

from ringside.sim.algorithms import ALGORITHMS
from ringside.sim.collective import Collective
from ringside.sim.libraries import gloo
from ringside.sim.program.check import check as verdict_of
from ringside.sim.program.jobs import PlacedProgram, simulate
from ringside.sim.program.libraries import Libraries
from ringside.sim.program.operations import Program
from ringside.sim.program.record.distributed import record
from ringside.sim.schedule import Chunks, Schedule, Step, step
from ringside.topologies import Topology, check, star
from ringside.topologies.fabrics import fat_tree, leaf_spine
from ringside.topologies.graph import add_cable
from tests.sim.network.cases import torus
from tests.sim.program.random_programs import random_program

HOUR, DAY, MONTH = 3600.0, 86400.0, 2592000.0

KINDS = (
    *("all_reduce", "broadcast", "reduce", "all_gather", "reduce_scatter", "all_to_all"),
    *("gather", "scatter"),
)
BUILDS = {
    **{(name, kind): build for name, builds in ALGORITHMS.items() for kind, build in builds.items()},
    **{("gloo", kind): build for kind, build in gloo.BUILDS.items()},
}
ALL = sorted(BUILDS)
ROOTS = {"broadcast": "src", "reduce": "dst", "gather": "dst", "scatter": "src"}


@dataclass(frozen=True)
class Question:
    """What a job does on a cluster, and how its library and its network are called."""

    graph: Topology
    ranks: int
    main: Callable[[Any], None]
    library: str
    network: str

    def program(self, begin_s: float) -> Program:
        """Return the job, which computes first."""

        def main(dist: Any) -> None:
            dist.compute(begin_s)
            self.main(dist)

        return record(main, self.ranks, "gloo")

    def seconds(self, begin_s: float, *, busy: bool) -> tuple[float, float]:
        """Return the time of a question that begins late, and the rounding error of an exact answer.

        Other ranks keep the network busy from the start, or send afterwards.
        """
        libraries = Libraries.on(self.library, self.graph, self.ranks + 2)
        libraries.network = self.network
        others = stream(self.graph, self.ranks, begin_s, busy=busy)
        jobs = [
            PlacedProgram(self.program(begin_s), tuple(range(self.ranks))),
            PlacedProgram(others, (self.ranks, self.ranks + 1)),
        ]
        end_s = simulate(jobs, libraries)[0].makespan_s
        return end_s - begin_s, 8 * ulp(end_s)


def stream(graph: Topology, ranks: int, begin_s: float, *, busy: bool) -> Program:
    """Return three messages that keep the last two ranks busy until well after a moment."""
    bandwidth = graph.edges["elsewhere", f"gpu{ranks + 1}"]["bandwidth"]
    nbytes = round(0.4 * begin_s * bandwidth) if busy else 1

    def main(dist: Any) -> None:
        if not busy:
            dist.compute(begin_s + 1.0)
        for _ in range(3):
            dist.recv(nbytes, 0) if dist.get_rank() else dist.send(nbytes, 1)

    return record(main, 2, "gloo")


def question(seed: int, network: str) -> Question:
    """Return the question of a seed: any cluster, with or without segments, a collective or a program."""
    draw = random.Random(seed)
    while True:
        library = draw.choice(("ideal", "gloo"))
        main, ranks = _job(draw)
        graph = _cluster(draw, ranks)
        found = Question(graph, ranks, main, library, network)
        if verdict_of(found.program(0.0)).verdict == "proved":
            return found


def _job(draw: random.Random) -> tuple[Callable[[Any], None], int]:
    if draw.random() < 0.4:
        program = random_program(draw.randrange(10**6))
        return program, program.ranks
    ranks, kind = draw.randint(2, 16), draw.choice(KINDS)
    nbytes = draw.choice((8, 1000, 65536, 1 << 20)) if draw.random() < 0.5 else draw.randint(1, 1 << 20)
    late = [draw.choice((0.0, 0.0, draw.uniform(0, 1e-3))) for _ in range(ranks)]
    jitter = draw.random() < 0.5

    def main(dist: Any) -> None:
        if jitter:
            dist.compute(late[dist.get_rank()])
        root = {ROOTS[kind]: ranks - 1} if kind in ROOTS else {}
        getattr(dist, kind)(4 * ranks * -(-nbytes // (4 * ranks)), **root)

    return main, ranks


def _cluster(draw: random.Random, ranks: int) -> Topology:
    """Return a cluster of ``count`` ranks and two more, on links that mostly differ."""
    shape = draw.choice(("star", "leaf-spine", "leaf-spine", "fat-tree", "torus", "tree", "tree"))
    if shape == "star":
        graph = star(ranks, draw.choice((25e9, draw.uniform(1e9, 1e11))), draw.choice((0.0, 5e-6)))
    elif shape == "leaf-spine":
        leaves = draw.randint(1, 4)
        graph = leaf_spine(leaves, -(-ranks // leaves), oversubscription=draw.choice((1, 2, 4)))
    elif shape == "fat-tree":
        graph = fat_tree(ranks)
    elif shape == "torus":
        graph = torus(2, max(2, -(-ranks // 2)))
    else:
        graph = _tree(draw, ranks)
    graph = nx.DiGraph(graph)
    for key in ("recipe", "structure"):
        graph.graph.pop(key, None)
    extra = [node for node, data in graph.nodes(data=True) if data.get("rank", -1) >= ranks]
    graph.remove_nodes_from(extra)
    if shape != "star" and draw.random() < 0.3:
        for _, _, link in graph.edges(data=True):
            link["bandwidth"] *= draw.uniform(0.5, 2)
    _, _, some = next(iter(graph.edges(data=True)))
    figures = {"kind": "ethernet", "bandwidth": some["bandwidth"], "latency": some["latency"]}
    if draw.random() < 0.3:
        segment = draw.randint(500, 9000)
        graph.graph.update(segment=segment, window=segment * draw.randint(1, 9))
        figures["bandwidth"] = 1.0
    switch = next(node for node, data in graph.nodes(data=True) if data["kind"] == "switch")
    tiers = "tier" in graph.nodes[switch]
    graph.add_node("elsewhere", kind="switch", **({"tier": 1} if tiers else {}))
    add_cable(graph, "elsewhere", switch, **figures)
    for rank in (ranks, ranks + 1):
        graph.add_node(f"gpu{rank}", kind="gpu", rank=rank, **({"tier": 0} if tiers else {}))
        add_cable(graph, f"gpu{rank}", "elsewhere", **figures)
    check(graph)
    return graph


def _tree(draw: random.Random, ranks: int) -> Topology:
    """Return a tree of switches with ranks anywhere, and different figures for each direction of a cable."""
    graph: Topology = nx.DiGraph(name="tree")
    cables: list[tuple[str, str]] = []
    switches = draw.randint(1, 4)
    for switch in range(switches):
        graph.add_node(f"s{switch}", kind="switch")
        if switch:
            cables.append((f"s{switch}", f"s{draw.randrange(switch)}"))
    for rank in range(ranks):
        graph.add_node(f"gpu{rank}", kind="gpu", rank=rank)
        cables.append((f"gpu{rank}", f"s{draw.randrange(switches)}"))
    for cable in cables:
        for ends in (cable, cable[::-1]):
            bandwidth = draw.choice((1e9, 2e9, 1e10, draw.uniform(1e8, 1e11)))
            graph.add_edge(
                *ends,
                kind="ethernet",
                bandwidth=bandwidth,
                latency=draw.choice((0.0, 1e-6, draw.uniform(1e-7, 1e-4))),
            )
    return graph


def held_back(plan: Schedule, first_s: float, graph: Topology, *, busy: bool = False) -> Schedule:
    """Return the same job, delayed until a long message of the last two ranks has arrived.

    If they are ``busy`` another message goes back meanwhile, for the same time again.
    """
    one, other = plan.ranks, plan.ranks + 1
    nbytes = round(first_s * graph.edges["elsewhere", f"gpu{other}"]["bandwidth"])
    last, count = int(plan.chunks.bounds[-1]), len(plan.chunks)
    bounds = np.append(plan.chunks.bounds, [last + nbytes, last + 3 * nbytes])

    def steps() -> Iterator[Step]:
        yield step(one, other, count, reduce=False)
        if busy:
            yield step(other, one, count + 1, reduce=False)
        yield from plan.steps()

    return replace(
        plan,
        collective=replace(plan.collective, ranks=plan.ranks + 2),
        chunks=Chunks(bounds, plan.chunks.block),
        steps=steps,
        after={(src, dst): (one, other) for src, dst, _ in plan.connections()},
    )


def collective(seed: int) -> tuple[Schedule, Topology]:
    """Return the collective of a seed, by any algorithm without ``after``, on any cluster."""
    draw = random.Random(seed)
    while True:
        ranks, (algorithm, kind) = draw.randint(2, 12), draw.choice(ALL)
        nbytes = draw.choice((8, 1000, 65536, 1 << 20))
        try:
            plan = BUILDS[algorithm, kind](Collective(kind, ranks, nbytes, root=ranks - 1))
        except ValueError:  # an algorithm for powers of two
            continue
        if not plan.after:
            return plan, _cluster(draw, ranks)
