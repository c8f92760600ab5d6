"""One case of `benchmarks.scaling`, in a process of its own: what it takes, in JSON, on standard output."""

import json
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any
from unittest.mock import patch

import numpy as np

from ringside.sim import effort, jit
from ringside.sim.algorithms import schedule
from ringside.sim.collective import Collective
from ringside.sim.engine import events, fast
from ringside.sim.predict import predict
from ringside.topologies import Routes, Topology, load, star

BANDWIDTH, LATENCY = 25e9, 5e-6
"""Of the star, as the other simulators' figures are: bytes/s of a rank, seconds of a message."""

SPREAD = 0.5, 2.0
"""Different links have from so much to so much of the bandwidth, and as much of the latency."""

GPUS = 8
"""Of one dgx-h100."""


@dataclass(frozen=True)
class Case:
    """An all-reduce on ``ranks`` ranks: by an ``engine`` on the star, or by a ``library`` on machines."""

    ranks: int
    nbytes: int
    engine: str
    algorithm: str = "auto"
    different: bool = False
    library: str = ""


@dataclass(frozen=True)
class Cost:
    """Seconds to build the topology, to route and wire, and to play; bytes of peak RSS above the imports'."""

    build_s: float
    wire_s: float
    play_s: float
    memory: int
    time_s: float
    transfers: int
    chunks: int
    engine: str
    algorithm: str


class Clock:
    """A function, and the seconds of processor time that were spent in it."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.seconds = 0.0

    def __call__(self, *args: Any, **named: Any) -> Any:
        begin = time.process_time()
        try:
            return self.function(*args, **named)
        finally:
            self.seconds += time.process_time() - begin


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def warm() -> None:
    """Load what is compiled: the loop, the rounds, and the ring's recurrence."""
    if not jit.available():
        return
    pair = Collective("all_reduce", 4, 64)
    fast.simulate(schedule("direct", pair), star(4))
    fast.simulate(schedule("double_binary_tree", pair), star(4))
    with patch.object(fast.maxplus, "MANY", 0):
        fast.simulate(schedule("ring", pair), star(4))


def network(case: Case) -> Topology:
    if case.library:
        return load(f"dgx-h100:{case.ranks // GPUS}")
    graph = star(case.ranks)
    random = np.random.default_rng(case.ranks)
    for _, _, link in graph.edges(data=True):
        link["bandwidth"], link["latency"] = BANDWIDTH, LATENCY / 2
        if case.different:
            link["bandwidth"] *= random.uniform(*SPREAD)
            link["latency"] *= random.uniform(*SPREAD)
    return graph


def cost(case: Case) -> Cost:
    """Carry the case out, what is compiled being loaded."""
    before, clock = peak(), Clock(network)
    graph = clock(case)
    collective = Collective("all_reduce", case.ranks, case.nbytes)
    if case.library:
        answer = Clock(predict)
        found = answer(collective, graph, library=case.library, engine=case.engine)
        return Cost(
            clock.seconds, 0.0, answer.seconds, peak() - before, found.time_s, 0, 0,
            found.engine, found.algorithm,
        )  # fmt: skip
    module, wires = (fast, "wire") if case.engine == "fast" else (events, "Execution")
    wiring, playing = Clock(getattr(module, wires)), Clock(module.simulate)
    with patch.object(module, wires, wiring), effort.forced():
        plan = schedule(case.algorithm, collective)
        run = playing(plan, graph, routes=Routes(graph))
    return Cost(
        clock.seconds, wiring.seconds, playing.seconds - wiring.seconds, peak() - before, run.time_s,
        run.num_transfers, len(plan.chunks), run.engine, case.algorithm,
    )  # fmt: skip


if __name__ == "__main__":
    warm()
    print(json.dumps(asdict(cost(Case(**json.loads(sys.argv[1]))))))
