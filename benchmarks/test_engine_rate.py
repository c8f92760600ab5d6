"""How fast the engine is, in SimPy's own coin: transfers per timeout of a loop that does nothing else."""

import subprocess
import sys
import time
from math import inf

import pytest
import simpy

from ringside.sim.algorithms import schedule
from ringside.sim.collective import Collective
from ringside.sim.engine import fast
from ringside.sim.engine.events import simulate
from ringside.topologies import star

pytestmark = pytest.mark.benchmark

RANKS = 256
ROUNDS = 400
LEAST_RATIO = 0.15
LEAST_GAIN = 20
MOST_MEMORY = 300e6

MEASURED = """
import resource, sys
from ringside.sim.algorithms import schedule
from ringside.sim.collective import Collective
from ringside.sim.engine.events import simulate
from ringside.topologies import star

ranks = int(sys.argv[2])
simulate(schedule(sys.argv[1], Collective("all_reduce", ranks, 1 << 30)), star(ranks))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


def simpy_rate() -> float:
    """Timeouts per second of CPU of 256 processes that only wait."""
    env = simpy.Environment()

    def wait() -> simpy.events.ProcessGenerator:
        for _ in range(ROUNDS):
            yield env.timeout(1.0)

    for _ in range(RANKS):
        env.process(wait())
    begin = time.process_time()
    env.run()
    return RANKS * ROUNDS / (time.process_time() - begin)


def engine_rate() -> float:
    """Transfers per second of CPU of a ring of 256 ranks, not traced."""
    plan = schedule("ring", Collective("all_reduce", RANKS, 1 << 30))
    graph = star(RANKS)
    begin = time.process_time()
    run = simulate(plan, graph)
    return run.num_transfers / (time.process_time() - begin)


def test_the_engine_keeps_up_with_bare_simpy() -> None:
    pairs = [(engine_rate(), simpy_rate()) for _ in range(3)]
    for engine, bare in pairs:
        print(f"{engine:,.0f} transfers/s, {bare:,.0f} bare timeouts/s, ratio {engine / bare:.3f}")
    assert max(engine / bare for engine, bare in pairs) >= LEAST_RATIO


def test_a_tree_on_a_star_is_played_much_sooner_than_by_simpy() -> None:
    pytest.importorskip("numba")
    plan = schedule("double_binary_tree", Collective("all_reduce", RANKS, 1 << 26))
    graph = star(RANKS)
    fast.simulate(plan, graph)  # compiles
    seconds = dict[str, float]()
    for name, engine in (("simpy", simulate), ("fast", fast.simulate)) * 3:
        begin = time.process_time()
        engine(plan, graph)
        seconds[name] = min(time.process_time() - begin, seconds.get(name, inf))
    print(f"SimPy {seconds['simpy']:.3f} s, fast {seconds['fast']:.3f} s")
    assert seconds["simpy"] / seconds["fast"] >= LEAST_GAIN


@pytest.mark.parametrize(("algorithm", "ranks"), [("ring", RANKS), ("halving_doubling", 2048)])
def test_the_engine_stays_small(algorithm: str, ranks: int) -> None:
    found = subprocess.run(
        [sys.executable, "-c", MEASURED, algorithm, str(ranks)], capture_output=True, text=True, check=True
    ).stdout
    print(f"{algorithm} on {ranks} ranks: peak memory {int(found) / 1e6:.0f} MB")
    assert int(found) < MOST_MEMORY
