"""Bounds hold for any schedule on any network."""

import time
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringside.sim.algorithms import ALGORITHMS, schedule
from ringside.sim.collective import Collective
from ringside.sim.engine import bounds
from ringside.sim.engine.bounds import closed_bounds, lower_bounds
from ringside.sim.engine.events import simulate
from ringside.sim.engine.model import CLOSED_FORMS, closed_form
from ringside.sim.libraries import gloo
from ringside.sim.parameters import Parameters
from ringside.sim.predict import predict
from ringside.sim.schedule import Schedule, Step, even_chunks, step
from ringside.topologies import Routes, Topology, check, make, ranks, star
from ringside.topologies.graph import add_cable
from tests.sim.algorithms.rewriting import Move, moves, with_moves

PAIRS = [(algorithm, kind) for algorithm, builds in ALGORITHMS.items() for kind in builds]
DOORS = [("ideal", *pair) for pair in PAIRS] + [("gloo", "auto", kind) for kind in gloo.BUILDS]
LATENCIES = st.sampled_from([0.0, 1e-6, 1e-6 / 3, 5e-5])


@st.composite
def networks(draw: st.DrawFn) -> Topology:
    """Draw any graph of switches and ranks, with or without tiers, with random figures per direction."""
    graph: Topology = nx.DiGraph(name="web")
    switches, hosts, tiers = draw(st.integers(1, 4)), draw(st.integers(2, 6)), draw(st.booleans())
    for switch in range(switches):
        graph.add_node(f"s{switch}", kind="switch", **({"tier": draw(st.integers(1, 3))} if tiers else {}))
    pairs = {(f"s{n}", f"s{draw(st.integers(0, n - 1))}") for n in range(1, switches)}
    pairs |= {(f"s{b}", f"s{a}") for a, b in combinations(range(switches), 2) if draw(st.booleans())}
    for rank in range(hosts):
        graph.add_node(f"g{rank}", kind="gpu", rank=rank, **({"tier": 0} if tiers else {}))
        some = draw(st.sets(st.integers(0, switches - 1), min_size=1, max_size=2))
        pairs |= {(f"g{rank}", f"s{switch}") for switch in some}
    for a, b in sorted(pairs):
        add_cable(graph, a, b, kind="ethernet", bandwidth=1e9, latency=0.0)
    for link in graph.edges.values():
        link.update(bandwidth=draw(st.sampled_from([1e8, 1e9, 4e9])), latency=draw(LATENCIES))
    if draw(st.booleans()):
        segment = draw(st.sampled_from([100, 4096]))
        graph.graph.update(segment=segment, window=segment * draw(st.integers(1, 4)))
    check(graph)
    return graph


@st.composite
def schedules(draw: st.DrawFn, count: int) -> Schedule:
    """Draw any transfers in any order, right or wrong."""
    chunks = draw(st.integers(1, 6))
    collective = Collective("all_reduce", count, draw(st.sampled_from([0, 1, 10_000])))

    waves = []
    for _ in range(draw(st.integers(0, 8))):
        wave = []
        for _ in range(draw(st.integers(1, 5))):
            src, dst, *_ = draw(st.permutations(range(count)))
            first = draw(st.integers(0, chunks - 1))
            span = draw(st.integers(1, chunks - first))
            wave.append(Move(src, dst, first, span, draw(st.integers(0, 1)), draw(st.booleans())))
        waves.append(wave)
    plan = Schedule(collective, "by chance", even_chunks(collective, chunks), lambda: iter(()))
    return replace(with_moves(plan, waves), credits=draw(st.sampled_from([1, 2, 8])))


def longest_chain(plan: Schedule, graph: Topology) -> float:
    """Return the latency bound, one transfer after another."""
    ready: dict[tuple[int, int], float] = {}
    routes, longest = Routes(graph), 0.0
    for wave in moves(plan):
        ends = []
        for move in wave:
            begin = max(ready.get((move.src, c), 0.0) for c in range(move.chunk, move.chunk + move.span))
            hops = routes.route(move.src, move.dst)
            ends.append(begin + sum(graph.edges[hop]["latency"] for hop in hops))
        for move, end in zip(wave, ends, strict=True):
            for c in range(move.chunk, move.chunk + move.span):
                ready[move.dst, c] = max(ready.get((move.dst, c), 0.0), end)
        longest = max([longest, *ends])
    return longest


@pytest.mark.slow
@given(st.data(), networks(), st.sampled_from([0.0, 1e-9]))
@settings(max_examples=300)
def test_no_schedule_on_any_network_is_quicker_than_its_bounds(
    data: st.DataObject, graph: Topology, gamma: float
) -> None:
    plan = data.draw(schedules(len(ranks(graph))))
    found = lower_bounds(plan, graph)
    assert max(found) <= simulate(plan, graph, gamma).time_s * (1 + 1e-9)
    assert found.latency == pytest.approx(longest_chain(plan, graph), rel=1e-12)


@given(st.data(), networks(), st.integers(1, 8))
def test_chunks_that_are_not_followed_make_a_bound_weak_and_not_false(
    data: st.DataObject, graph: Topology, tracked: int
) -> None:
    plan = data.draw(schedules(len(ranks(graph))))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(bounds, "MAX_TRACKED", tracked)
        found = lower_bounds(plan, graph).latency
    single = max((longest_chain(with_moves(plan, [[m]]), graph) for w in moves(plan) for m in w), default=0.0)
    assert single * (1 - 1e-12) <= found <= longest_chain(plan, graph) * (1 + 1e-12)


@pytest.mark.parametrize(("library", "algorithm", "kind"), DOORS)
def test_every_collective_of_every_library_keeps_the_laws_on_up_to_33_ranks(
    library: str, algorithm: str, kind: str
) -> None:
    for count in range(1, 34):
        found = predict(Collective(kind, count, 1024), star(count), library=library, algorithm=algorithm)
        assert (found.time_s > 0) == (count > 1)


@pytest.mark.parametrize(
    ("algorithm", "kind", "hops"),
    [
        ("ring", "all_reduce", 30),
        ("ring", "all_gather", 15),
        ("ring", "broadcast", 15),
        ("tree", "all_reduce", 8),
        ("double_binary_tree", "all_reduce", 8),
        ("halving_doubling", "all_reduce", 8),
        ("direct", "all_reduce", 2),
        ("direct", "all_to_all", 1),
    ],
)
def test_empty_messages_take_as_long_as_the_bound(algorithm: str, kind: str, hops: int) -> None:
    plan = schedule(algorithm, Collective(kind, 16, 0))
    assert lower_bounds(plan, star(16)).latency == pytest.approx(hops * 5e-6)
    assert simulate(plan, star(16)).time_s == pytest.approx(hops * 5e-6)


def test_a_rank_that_sends_to_all_at_once_needs_one_hop() -> None:
    collective = Collective("broadcast", 33, 0)
    to_all = Schedule(
        collective,
        "flat",
        even_chunks(collective),
        lambda: iter([step(0, np.arange(1, 33), 0, reduce=False)]),
    )
    assert lower_bounds(to_all, star(33)).latency == pytest.approx(5e-6)
    assert simulate(to_all, star(33)).time_s == pytest.approx(5e-6)


def test_each_hop_counts_with_the_latency_of_its_own_route() -> None:
    graph = make("leaf-spine", 2, {"hosts_per_leaf": "2", "latency": "4us"})
    plan = schedule("ring", Collective("all_gather", 4, 0))
    # two neighbours on one leaf, two across the spine: the longest chain crosses it twice
    assert lower_bounds(plan, graph).latency == pytest.approx(4e-6 + 2 * 8e-6)


@pytest.mark.parametrize(("algorithm", "kind"), CLOSED_FORMS)
def test_closed_bounds_are_the_bounds(algorithm: str, kind: str) -> None:
    parameters = Parameters(alpha=5e-6, beta=1 / 25e9)
    for count in (*range(1, 12), 16, 33):
        for nbytes in (0, count * 4096):
            plan = schedule(algorithm, Collective(kind, count, nbytes))
            closed = closed_form(algorithm, plan.collective, parameters)
            if closed is not None:
                found = closed_bounds(plan, parameters)
                assert found == pytest.approx(lower_bounds(plan, star(count)))
                assert max(found) <= closed * (1 + 1e-12)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("algorithm", "kind", "count", "hops"),
    [
        ("ring", "all_reduce", 1024, 2046),
        ("halving_doubling", "all_reduce", 2048, 22),
        ("direct", "all_to_all", 512, 1),
    ],
)
def test_bounds_of_large_schedules_take_little_time_and_room(
    algorithm: str, kind: str, count: int, hops: int
) -> None:
    graph = star(count)
    plan, routes = schedule(algorithm, Collective(kind, count, 1 << 20)), Routes(graph)
    begin = time.process_time()
    assert lower_bounds(plan, graph, routes).latency == pytest.approx(hops * 5e-6)
    assert time.process_time() - begin < 8
    tracemalloc.start()
    lower_bounds(replace(plan, steps=lambda: _first(plan, 50)), graph, routes)
    assert tracemalloc.get_traced_memory()[1] < 200 << 20
    tracemalloc.stop()


def _first(plan: Schedule, count: int) -> Iterator[Step]:
    return (moved for moved, _ in zip(plan.steps(), range(count), strict=False))
