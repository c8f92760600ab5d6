import os
import tracemalloc
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringside.sim.algorithms import ALGORITHMS, schedule
from ringside.sim.collective import Collective
from ringside.sim.engine.events import simulate
from ringside.sim.libraries import gloo
from ringside.sim.schedule import Schedule
from ringside.topologies import Topology, dgx_a100, dgx_h100, make, star
from tests.processes import python
from tests.sim.engine import reference
from tests.sim.engine.networks import switch_trees

PAIRS = [(algorithm, kind) for algorithm, builds in ALGORITHMS.items() for kind in builds]


def agree(plan: Schedule, graph: Topology, gamma: float = 0.0) -> float:
    """Return the seconds, after checking that both agree."""
    expected = reference.simulate(plan, graph, gamma)
    found = simulate(plan, graph, gamma).time_s
    assert found == pytest.approx(expected, rel=1e-9)
    return found


@cache
def on_a_sound_star(algorithm: str, nbytes: int) -> float:
    return simulate(schedule(algorithm, Collective("all_reduce", 16, nbytes)), star(16)).time_s


@pytest.mark.parametrize("algorithm", ["ring", "tree", "double_binary_tree", "halving_doubling", "direct"])
@pytest.mark.parametrize("nbytes", [1000, 1 << 20, 30_000_007])
@pytest.mark.parametrize(
    "link", [("gpu3", "switch"), ("switch", "gpu3"), ("gpu0", "switch"), ("switch", "gpu6")]
)
@pytest.mark.parametrize(("key", "factor"), [("bandwidth", 0.1), ("latency", 10)])
def test_one_link_ten_times_worse_costs_what_the_reference_says(
    algorithm: str, nbytes: int, link: tuple[str, str], key: str, factor: float
) -> None:
    graph = star(16)
    graph.edges[link][key] *= factor
    time_s = agree(schedule(algorithm, Collective("all_reduce", 16, nbytes)), graph)
    if key == "bandwidth":
        # a longer latency may hide in a full pipeline, even bring chunks into a luckier order
        assert time_s > on_a_sound_star(algorithm, nbytes)


@pytest.mark.parametrize(("algorithm", "kind"), PAIRS)
@pytest.mark.parametrize("ranks", [2, 3, 5, 8, 16])
def test_the_textbook_network_costs_what_the_reference_says(algorithm: str, kind: str, ranks: int) -> None:
    for nbytes, gamma in ((0, 0.0), (1000, 1e-9), (1 << 20, 1e-10), (10_000_019, 1e-11)):
        root = ranks - 1 if kind in ("broadcast", "reduce") else 0
        agree(schedule(algorithm, Collective(kind, ranks, nbytes, root=root)), star(ranks), gamma)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["ring", "double_binary_tree", "halving_doubling", "direct"])
def test_machines_and_fabrics_cost_what_the_reference_says(algorithm: str) -> None:
    for graph in (dgx_a100(2), dgx_h100(2), make("leaf-spine", 4, {"oversubscription": "4"})):
        agree(schedule(algorithm, Collective("all_reduce", 16, 1 << 22)), graph, 1e-12)


@pytest.mark.parametrize("credits", [1, 2, 3, 8, 10**9])
@pytest.mark.parametrize("algorithm", ["tree", "double_binary_tree", "ring"])
def test_any_number_of_credits_costs_what_the_reference_says(algorithm: str, credits: int) -> None:
    kind = "broadcast" if algorithm == "ring" else "all_reduce"
    plan = replace(schedule(algorithm, Collective(kind, 11, 3 << 20)), credits=credits)
    agree(plan, star(11, latency=50e-6))


@pytest.mark.parametrize("ranks", [2, 3, 4, 7])
def test_gloos_ring_costs_what_the_reference_says(ranks: int) -> None:
    for nbytes in (1000, 1 << 20, 20_000_000):
        agree(gloo.all_reduce(Collective("all_reduce", ranks, nbytes, 4)), star(ranks, 12.5e6, 1e-4), 1e-10)


@pytest.mark.slow
@given(
    graph=switch_trees(),
    pair=st.sampled_from(PAIRS),
    nbytes=st.one_of(st.sampled_from([0, 1, 7]), st.integers(0, 4 << 20)),
    root=st.integers(0, 11),
    credits=st.integers(1, 9),
    gamma=st.sampled_from([0.0, 1e-10, 1e-9]),
)
@settings(max_examples=100)
def test_any_tree_of_switches_costs_what_the_reference_says(
    graph: Topology, pair: tuple[str, str], nbytes: int, root: int, credits: int, gamma: float
) -> None:
    ranks = sum(data["kind"] == "gpu" for _, data in graph.nodes(data=True))
    plan = schedule(pair[0], Collective(pair[1], ranks, nbytes, root=root % ranks))
    agree(replace(plan, credits=credits), graph, gamma)


TRACE = """
import sys
from ringside.sim.algorithms import schedule
from ringside.sim.collective import Collective
from ringside.sim.engine.events import simulate
from ringside.topologies import dgx_h100, star

for algorithm in ("ring", "tree", "double_binary_tree", "halving_doubling", "direct"):
    for graph in (star(13), dgx_h100(2)):
        plan = schedule(algorithm, Collective("all_reduce", 13, 300_001))
        run = simulate(plan, graph, 1e-11, traced=True)
        sys.stdout.write(run.timeline.dumps())
"""


@pytest.mark.slow
def test_traces_are_the_same_bytes_under_any_hash_seed() -> None:
    seeds = ("0", "4711")
    traces = {python("-c", TRACE, env={**os.environ, "PYTHONHASHSEED": seed}).stdout for seed in seeds}
    assert len(traces) == 1
    assert len(traces.pop()) > 10_000


@pytest.mark.parametrize(("algorithm", "kind"), [("ring", "broadcast"), ("tree", "all_reduce")])
def test_four_times_the_transfers_take_hardly_more_memory(algorithm: str, kind: str) -> None:
    def peak(nbytes: int) -> tuple[int, int]:
        plan = schedule(algorithm, Collective(kind, 8, nbytes))
        tracemalloc.start()
        run = simulate(plan, star(8))
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found, run.num_transfers

    peak(1 << 20)
    (small, few), (large, many) = peak(1 << 26), peak(1 << 30)
    assert many == 4 * few
    assert large < 1.5 * small
