"""Schedules with times of SimGrid: rings and double binary trees, and two rings that cross.

``python -m tests.sim.network.cases`` runs SimGrid again, if installed, and writes `simgrid.json`.
"""

import json
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np

from ringside.sim.algorithms import schedule
from ringside.sim.collective import Collective
from ringside.sim.schedule import Schedule, Step, even_chunks, step
from ringside.topologies import Routes, Topology, check, star
from ringside.topologies.fabrics import leaf_spine
from ringside.topologies.graph import add_cable
from tests.sim.engine.reference import transfers_of

GOLDEN = Path(__file__).with_name("simgrid.json")
PLAYER = Path(__file__).parents[3] / "benchmarks/play_in_simgrid.py"
PYTHON = "/usr/bin/python3"
"""The system's, to which Debian's SimGrid belongs."""

KIB, MIB = 1 << 10, 1 << 20


def torus(rows: int, columns: int, bandwidth: float = 25e9, latency: float = 1e-6) -> Topology:
    """Return a torus with every rank on its own switch."""
    graph: Topology = nx.DiGraph(name=f"torus-{rows}x{columns}")
    cable = partial(add_cable, graph, kind="ethernet", bandwidth=bandwidth, latency=latency)
    for rank in range(rows * columns):
        graph.add_node(f"gpu{rank}", kind="gpu", rank=rank, tier=0)
        graph.add_node(f"switch{rank}", kind="switch", tier=1)
        cable(f"gpu{rank}", f"switch{rank}")
    for row in range(rows):
        for column in range(columns):
            here = f"switch{row * columns + column}"
            for there in (row * columns + (column + 1) % columns, (row + 1) % rows * columns + column):
                if not graph.has_edge(here, f"switch{there}"):
                    cable(here, f"switch{there}")
    check(graph)
    return graph


def crossing_rings(ranks: int, stride: int, nbytes: int) -> Schedule:
    """Return an all-reduce, half around the ranks in order, half around them in strides."""
    ring = schedule("ring", Collective("all_reduce", ranks, nbytes // 2))
    other = np.concatenate([np.arange(first, ranks, stride) for first in range(stride)])

    def steps() -> Iterator[Step]:
        for one in ring.steps():
            yield one
            yield step(other[one.src], other[one.dst], one.chunk + ranks, channel=1, reduce=one.reduce)

    collective = Collective("all_reduce", ranks, nbytes)
    return Schedule(collective, "two rings", even_chunks(collective, 2 * ranks), steps)


def fabrics() -> Iterator[tuple[str, int, Topology]]:
    for ranks in (8, 12, 32, 64):
        yield "star", ranks, star(ranks)
    for leaves, hosts, oversubscription in ((2, 4, 1), (4, 4, 2), (4, 8, 4), (8, 8, 2)):
        graph = leaf_spine(leaves, hosts, oversubscription=oversubscription)
        yield f"leaf-spine {leaves}x{hosts} at {oversubscription}", leaves * hosts, graph
    for rows, columns in ((2, 4), (4, 4), (4, 8), (8, 8)):
        yield f"torus {rows}x{columns}", rows * columns, torus(rows, columns)


def cases() -> Iterator[tuple[str, Schedule, Topology]]:
    for fabric, ranks, graph in fabrics():
        for algorithm in ("ring", "double_binary_tree"):
            for nbytes in (64 * KIB, 4 * MIB) if ranks < 64 else (MIB,):
                plan = schedule(algorithm, Collective("all_reduce", ranks, nbytes))
                yield f"{algorithm} of {nbytes >> 10} KiB on {fabric}, {ranks} ranks", plan, graph
    for leaves, hosts, oversubscription in ((4, 4, 1), (4, 4, 4), (8, 4, 2)):
        plan = crossing_rings(leaves * hosts, hosts, 8 * MIB)
        graph = leaf_spine(leaves, hosts, oversubscription=oversubscription)
        yield f"two rings on leaf-spine {leaves}x{hosts} at {oversubscription}", plan, graph


def plain(plan: Schedule, graph: Topology) -> dict[str, Any]:
    """Return SimGrid's input: links, connections, and transfers with dependencies."""
    transfers, routes = transfers_of(plan), Routes(graph)
    number = {hop: place for place, hop in enumerate(graph.edges)}
    at = {id(transfer): place for place, transfer in enumerate(transfers)}
    pairs = list(dict.fromkeys((t.src, t.dst, t.channel) for t in transfers))
    ways = [routes.route(src, dst) for src, dst, _ in pairs]
    return {
        "ranks": plan.ranks,
        "credits": plan.credits,
        "bandwidths": [link["bandwidth"] for _, _, link in graph.edges(data=True)],
        "connections": [
            {
                "src": src,
                "dst": dst,
                "links": [number[hop] for hop in way],
                "latency": sum(graph.edges[hop]["latency"] for hop in way),
            }
            for (src, dst, _), way in zip(pairs, ways, strict=True)
        ],
        "transfers": [
            {
                "connection": pairs.index((t.src, t.dst, t.channel)),
                "nbytes": int(t.nbytes),
                "missing": t.missing,
                "waiters": [at[id(waiter)] for waiter in t.waiters],
            }
            for t in transfers
        ],
    }


def in_simgrid(plan: Schedule, graph: Topology) -> dict[str, Any]:
    """Return SimGrid's ``time_s``, and the ``seconds`` of its simulation."""
    asked = json.dumps(plain(plan, graph))
    run = subprocess.run([PYTHON, str(PLAYER)], input=asked, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(run.stdout)
    return found


def has_simgrid() -> bool:
    try:
        return not subprocess.run([PYTHON, "-c", "import simgrid"], capture_output=True).returncode
    except OSError:
        return False


if __name__ == "__main__":
    found = {name: in_simgrid(plan, graph) for name, plan, graph in cases()}
    version = next(iter(found.values()))["version"]
    times = {name: one["time_s"] for name, one in found.items()}
    told = {"made by": "python -m tests.sim.network.cases", "SimGrid": version, "time_s": times}
    GOLDEN.write_text(json.dumps(told, indent=1) + "\n")
