import random
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringside.sim import effort
from ringside.sim.algorithms import schedule
from ringside.sim.collective import Collective
from ringside.sim.engine import events, fast, maxplus
from ringside.sim.engine.wiring import wire
from ringside.sim.predict import predict
from ringside.sim.schedule import Schedule
from ringside.topologies import Routes, Topology, make, star
from tests.sim.algorithms.rewriting import in_channels
from tests.sim.engine.beginnings import BUILDS
from tests.sim.engine.networks import switch_trees

pytest.importorskip("numba")


def agree(plan: Schedule, graph: Topology, gamma: float = 0.0) -> None:
    expected, found = events.simulate(plan, graph, gamma), fast.simulate(plan, graph, gamma)
    assert found.num_transfers == expected.num_transfers
    assert found.time_s == pytest.approx(expected.time_s, rel=1e-9)


def plan_of(pair: tuple[str, str], ranks: int, nbytes: int, root: int, credits: int) -> Schedule:
    plan = BUILDS[pair](Collective(pair[1], ranks, nbytes, root=root % ranks))
    return replace(plan, credits=credits) if credits else plan


@pytest.mark.slow
@given(
    graph=switch_trees(32),
    pair=st.sampled_from(sorted(BUILDS)),
    nbytes=st.one_of(st.sampled_from([0, 1, 7]), st.integers(0, 4 << 20)),
    root=st.integers(0, 31),
    credits=st.integers(0, 9),
    gamma=st.sampled_from([0.0, 1e-10, 1e-9]),
)
@settings(max_examples=150)
def test_any_tree_of_switches_costs_what_simpy_says(
    graph: Topology, pair: tuple[str, str], nbytes: int, root: int, credits: int, gamma: float
) -> None:
    ranks = sum(data["kind"] == "gpu" for _, data in graph.nodes(data=True))
    agree(plan_of(pair, ranks, nbytes, root, credits), graph, gamma)


@given(
    graph=switch_trees(8),
    pair=st.sampled_from(sorted(BUILDS)),
    nbytes=st.integers(0, 200_000),
    credits=st.integers(0, 9),
    segment=st.integers(500, 9000),
    window=st.integers(1, 9),
    gamma=st.sampled_from([0.0, 1e-9]),
    channels=st.integers(1, 3),
    chance=st.integers(0, 9999),
)
@settings(max_examples=120)
def test_segments_in_windows_cost_what_simpy_says(
    graph: Topology,
    pair: tuple[str, str],
    nbytes: int,
    credits: int,
    segment: int,
    window: int,
    gamma: float,
    channels: int,
    chance: int,
) -> None:
    graph.graph.update(segment=segment, window=segment * window)
    ranks = sum(data["kind"] == "gpu" for _, data in graph.nodes(data=True))
    plan = plan_of(pair, ranks, nbytes, 0, credits)
    # what is streamed by rule stays so
    agree(in_channels(plan, channels, random.Random(chance)) if channels > 1 else plan, graph, gamma)


def test_channels_that_share_windows_cost_what_simpy_says_to_the_last_bit() -> None:
    for number in range(150):
        chance = random.Random(number)
        pair, ranks = chance.choice(sorted(BUILDS)), chance.randint(2, 6)
        plan = plan_of(pair, ranks, chance.randint(1, 60_000), 0, chance.choice([1, 2, 8]))
        plan = in_channels(plan, chance.randint(2, 3), chance)
        graph, segment = star(ranks), chance.randint(500, 9000)
        graph.graph.update(segment=segment, window=segment * chance.randint(1, 9))
        gamma = chance.choice([0.0, 1e-9])
        expected, found = (engine.simulate(plan, graph, gamma) for engine in (events, fast))
        assert (found.time_s, found.num_transfers) == (expected.time_s, expected.num_transfers), number


@pytest.mark.parametrize("algorithm", ["ring", "tree", "double_binary_tree"])
@pytest.mark.parametrize("credits", [1, 8])
def test_what_piles_up_before_a_slow_adder_costs_what_simpy_says(algorithm: str, credits: int) -> None:
    graph = make("leaf-spine", 2, {"oversubscription": "4"})
    agree(plan_of((algorithm, "all_reduce"), 8, 1 << 24, 0, credits), graph, 1e-9)


speeds = st.lists(st.floats(0.2, 3.0), min_size=4, max_size=4)


@pytest.mark.slow
@given(
    ranks=st.integers(2, 24),
    nbytes=st.integers(0, 1 << 20),
    kind=st.sampled_from(["all_reduce", "reduce_scatter", "all_gather", "gloo"]),
    speeds=speeds,
    credits=st.integers(0, 9),
    gamma=st.sampled_from([0.0, 1e-11, 1e-9]),
)
@settings(max_examples=60)
def test_rings_by_recurrence_cost_what_simpy_says_with_and_without_numba(
    ranks: int, nbytes: int, kind: str, speeds: list[float], credits: int, gamma: float
) -> None:
    graph = star(ranks)
    for rank in range(ranks):  # every fourth rank is alike, so that some rings fold
        graph.edges[f"gpu{rank}", "switch"]["bandwidth"] *= speeds[rank % 4]
        graph.edges["switch", f"gpu{rank}"]["latency"] *= speeds[-1 - rank % 4]
    pair = ("gloo", "all_reduce") if kind == "gloo" else ("ring", kind)
    plan = plan_of(pair, ranks, nbytes, 0, credits)
    ring = maxplus.ring_of(plan, wire(plan, graph, Routes(graph)))
    if plan.connections():
        assert ring is not None or (ranks == 2 and kind != "all_reduce")
        agree(plan, graph, gamma)
    if ring is not None:
        expected = maxplus.play(ring, plan.credits, gamma)
        for compiled_from in (0, 1 << 60):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(maxplus, "MANY", compiled_from)
                found = maxplus.play(ring.folded(), plan.credits, gamma)
            assert found == pytest.approx(expected, rel=1e-12)


def test_without_numba_what_competes_goes_to_simpy_and_rings_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)
    said: list[str] = []
    with effort.watched(said.append, lambda done, total: None):
        tree = fast.simulate(schedule("tree", Collective("all_reduce", 8, 1 << 20)), star(8))
        ring = fast.simulate(schedule("ring", Collective("all_reduce", 8, 1 << 20)), star(8))
    assert (tree.engine, ring.engine) == ("simpy", "fast")
    assert any("'.[fast]'" in line for line in said)


@pytest.mark.slow
def test_auto_takes_the_fast_engine_for_what_is_large_and_says_so() -> None:
    small, large = (
        predict(Collective("all_reduce", 64, nbytes), star(64), algorithm="tree")
        for nbytes in (1 << 20, 1 << 32)
    )
    assert (small.engine, large.engine) == ("simpy", "fast")


@pytest.mark.parametrize(("is_compiled", "engine"), [(True, "fast"), (False, "simpy")])
def test_auto_leaves_some_seconds_to_simpy_where_the_loop_is_yet_to_be_compiled(
    monkeypatch: pytest.MonkeyPatch, is_compiled: bool, engine: str
) -> None:
    monkeypatch.setattr(fast, "is_compiled", lambda plan: is_compiled)
    asked = Collective("all_reduce", 64, 1 << 24)
    assert predict(asked, star(64), algorithm="double_binary_tree").engine == engine
    assert predict(replace(asked, nbytes=1 << 10), star(64), algorithm="tree").engine == "simpy"


def test_the_fast_engine_keeps_no_timeline() -> None:
    with pytest.raises(ValueError, match="keeps no timeline; write --engine simpy"):
        predict(Collective("all_reduce", 4, 1000), star(4), engine="fast", traced=True)


def test_a_ring_that_looks_alike_everywhere_is_the_closed_form() -> None:
    ring = Collective("all_reduce", 4096, 1 << 30)
    found, form = (predict(ring, star(4096), algorithm="ring", engine=engine) for engine in ("fast", "model"))
    assert found.engine == "fast"
    assert found.time_s == pytest.approx(form.time_s, rel=1e-9)


@pytest.mark.proof
@pytest.mark.parametrize("pair", sorted(BUILDS))
def test_200_ranks_of_every_algorithm_cost_what_simpy_says(pair: tuple[str, str]) -> None:
    random = np.random.default_rng(sum(map(ord, "".join(pair))))
    for graph in (star(200), make("leaf-spine", 50, {"oversubscription": "3"})):
        for _, _, link in graph.edges(data=True):
            link["bandwidth"] *= random.uniform(0.3, 3)
            link["latency"] *= random.uniform(0.3, 3)
        agree(plan_of(pair, 200, 1 << 20, 0, 3), graph, 1e-11)
    agree(plan_of(pair, 200, 1 << 20, 0, 3), star(200))
