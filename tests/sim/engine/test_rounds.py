from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringside.sim.algorithms import ALGORITHMS, schedule
from ringside.sim.collective import Collective
from ringside.sim.engine import events, fast, rounds
from ringside.sim.engine.wiring import wire
from ringside.sim.schedule import Chunks, Schedule
from ringside.topologies import Routes, Topology, make, star

pytest.importorskip("numba")

PIPELINES = [(name, kind) for name in ("tree", "double_binary_tree") for kind in ALGORITHMS[name]]


def even_star(ranks: int, bandwidth: float = 25e9, latency: float = 2.5e-6) -> Topology:
    graph = star(ranks)
    for _, _, link in graph.edges(data=True):
        link["bandwidth"], link["latency"] = bandwidth, latency
    return graph


def cut_anew(plan: Schedule, sizes: list[int]) -> Schedule:
    """Return the same transfers with chunks of these bytes, in turn."""
    nbytes = np.resize(sizes, len(plan.chunks))
    return replace(plan, chunks=Chunks(np.cumsum([0, *nbytes]), plan.chunks.block))


def star_of(plan: Schedule, graph: Topology, gamma: float = 0.0) -> rounds.Star | None:
    return rounds.star_of(plan, wire(plan, graph, Routes(graph)), gamma)


@given(
    pair=st.sampled_from(PIPELINES),
    ranks=st.integers(2, 40),
    chunks=st.integers(1, 60),
    sizes=st.lists(st.sampled_from([0, 1, 3000, 3001, 4096, 9000]), min_size=1, max_size=70),
    root=st.integers(0, 39),
    credits=st.integers(1, 9),
    bandwidth=st.sampled_from([1e9, 3e9, 25e9]),
    latency=st.sampled_from([1e-7, 3e-7, 7e-7, 2.5e-6, 1e-4]),
)
@settings(max_examples=150)
def test_a_pipeline_on_a_star_takes_what_the_loop_says_to_the_last_bit_and_simpy_too(
    pair: tuple[str, str],
    ranks: int,
    chunks: int,
    sizes: list[int],
    root: int,
    credits: int,
    bandwidth: float,
    latency: float,
) -> None:
    collective = Collective(pair[1], ranks, chunks * 4096, root=root % ranks)
    plan = cut_anew(replace(schedule(pair[0], collective), credits=credits), sizes)
    graph = even_star(ranks, bandwidth, latency)
    wiring = wire(plan, graph, Routes(graph))
    star = rounds.star_of(plan, wiring, 0.0)
    if star is None:  # chunks that differ too much, for rounds of the least one
        assert 2 * latency < 9000 / bandwidth
        return
    found, loops = rounds.simulate(star, 0), fast._loop(plan, wiring, 0.0)
    assert found == loops
    expected = events.simulate(plan, graph)
    assert found.num_transfers == expected.num_transfers
    assert found.time_s == pytest.approx(expected.time_s, rel=1e-9)


def test_what_is_no_pipeline_on_a_star_of_equal_links_is_left_to_the_loop() -> None:
    tree = schedule("tree", Collective("all_reduce", 8, 1 << 20))
    uneven, slow = even_star(8), even_star(8, latency=1e-30)
    uneven.edges["gpu3", "switch"]["bandwidth"] *= 2
    at_once, fabric = even_star(8, latency=0.0), make("leaf-spine", 2, {})
    assert star_of(tree, even_star(8)) is not None
    for graph in (uneven, slow, at_once, fabric):
        assert star_of(tree, graph) is None
    assert star_of(tree, even_star(8), gamma=1e-9) is None
    assert star_of(replace(tree, after={(0, 1): (1, 0)}), even_star(8)) is None
    assert star_of(schedule("direct", Collective("all_reduce", 8, 1 << 20)), even_star(8)) is None
    assert star_of(cut_anew(tree, [1 << 20, 1 << 20, 1]), even_star(8, latency=1e-9)) is None


@pytest.mark.parametrize("short", [0, 1, 7, 8, 9, 30])
def test_a_chunk_that_is_shorter_than_the_rest_may_come_anywhere(short: int) -> None:
    plan = schedule("tree", Collective("all_reduce", 13, 32 * 4096))
    sizes = [9000] * 32
    sizes[short] = 1
    plan, graph = cut_anew(plan, sizes), even_star(13, 1e9, 2.5e-7)
    assert star_of(plan, graph) is not None
    assert fast.simulate(plan, graph).time_s == pytest.approx(events.simulate(plan, graph).time_s, rel=1e-9)


def test_a_double_binary_tree_of_1024_ranks_takes_what_the_loop_says() -> None:
    plan, graph = schedule("double_binary_tree", Collective("all_reduce", 1024, 1 << 24)), even_star(1024)
    found = fast.simulate(plan, graph)
    assert found == fast._loop(plan, wire(plan, graph, Routes(graph)), 0.0)
