from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringside.sim import effort
from ringside.sim.algorithms import ALGORITHMS, schedule
from ringside.sim.collective import Collective
from ringside.sim.effort import MAX_TRANSFERS, TooMuchError, consider, estimate, forced, watched
from ringside.sim.engine.events import simulate
from ringside.sim.libraries import gloo
from ringside.sim.libraries.scheduled import evaluate
from ringside.sim.parameters import preset_of
from ringside.sim.predict import predict
from ringside.sim.schedule import Schedule
from ringside.topologies import star

PAIRS = [(algorithm, kind) for algorithm, builds in ALGORITHMS.items() for kind in builds]


def counted(plan: Schedule) -> tuple[int, int]:
    connections: Counter[tuple[int, int]] = Counter()
    for (src, dst, _), count in plan.connections().items():
        connections[src, dst] += count
    return connections.total(), len(connections)


@given(st.sampled_from(PAIRS), st.integers(1, 24), st.integers(0, 10**7))
@settings(max_examples=60)
def test_few_transfers_are_never_taken_for_fewer(pair: tuple[str, str], ranks: int, nbytes: int) -> None:
    plan = schedule(pair[0], Collective(pair[1], ranks, nbytes))
    transfers, connections = counted(plan)
    found = estimate(plan, star(ranks))
    assert found.transfers >= transfers
    assert found.connections >= connections
    if pair[0] in ("ring", "tree", "double_binary_tree"):
        assert found.transfers == transfers


@pytest.mark.parametrize(
    "plan",
    [
        schedule("ring", Collective("all_reduce", 200, 10**6)),
        schedule("halving_doubling", Collective("all_reduce", 1000, 10**6)),
        schedule("direct", Collective("all_to_all", 300, 10**6)),
        gloo.all_reduce(Collective("all_reduce", 100, 2**30)),
    ],
    ids=lambda plan: f"{plan.algorithm} {plan.collective.kind}",
)
def test_many_transfers_are_counted(plan: Schedule) -> None:
    found = estimate(plan, star(2))
    assert (found.transfers, found.connections) == counted(plan)


def test_what_is_not_walked_to_its_end_is_told_by_what_chunks_travel(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = schedule("tree", Collective("all_reduce", 8, 2**34))
    monkeypatch.setattr(effort, "_WALK", 100)
    assert estimate(plan, star(8)).transfers == counted(plan)[0]


def test_more_than_so_many_are_known_without_a_count_of_all() -> None:
    ring = schedule("ring", Collective("all_reduce", 100, 2**20))
    assert not effort.has_more_than(2 * 99 * 100, ring, star(100))
    assert effort.has_more_than(2 * 99 * 100 - 1, ring, star(100))
    large = schedule("direct", Collective("all_reduce", 10**5, 2**20))
    assert effort.has_more_than(10**6, large, star(2))
    halving = schedule("halving_doubling", Collective("all_reduce", 4096, 2**20))
    assert not effort.has_more_than(10**5, halving, star(2))
    assert effort.has_more_than(2 * 12 * 4096 - 1, halving, star(2))


def test_segments_count_for_the_messages_that_they_are() -> None:
    graph = star(4)
    graph.graph.update(segment=2**16, window=2**18)
    plan = schedule("ring", Collective("all_reduce", 4, 2**24))
    assert estimate(plan, graph).transfers == pytest.approx(6 * 4 * 2**22 / 2**16, rel=0.02)


def test_too_much_is_refused_with_its_cost_unless_it_is_forced() -> None:
    plan = schedule("ring", Collective("all_reduce", 4000, 2**20))
    said: list[str] = []
    with watched(said.append, lambda *_: None):
        with pytest.raises(TooMuchError, match=r"31,992,000 transfers .* about 27 minutes.*--force"):
            consider(plan, star(2))
        assert not said
        with forced():
            consider(plan, star(2))
        with pytest.raises(TooMuchError):
            consider(plan, star(2))
    assert said == [
        "ring all_reduce of 1 MiB on 4000 ranks: 31,992,000 transfers to simulate, about 27 minutes"
    ]


def test_too_many_connections_are_refused_for_their_memory() -> None:
    plan = schedule("direct", Collective("all_to_all", 2000, 2**20))
    with pytest.raises(TooMuchError, match=r"8\.0 GiB; the maximum is 20,000,000 and 8 GiB"):
        consider(plan, star(2))


def test_a_billion_chunks_are_refused_before_they_are_made() -> None:
    with pytest.raises(TooMuchError, match="78 days"):
        predict(Collective("all_reduce", 64, 2**50), star(64), library="gloo", engine="simpy")


def test_a_closed_form_needs_no_chunks() -> None:
    ranks = 30_000
    found = predict(Collective("all_to_all", ranks, 2**20), star(ranks))
    assert found.engine == "model"
    assert found.time_s == pytest.approx(5e-6 + (ranks - 1) / ranks * 2**20 / 25e9)


def test_short_work_is_not_announced_and_long_work_shows_how_far_it_is() -> None:
    said: list[str] = []
    shown: list[tuple[int, int]] = []
    plan = schedule("ring", Collective("all_reduce", 100, 2**20))
    with watched(said.append, lambda done, total: shown.append((done, total))):
        simulate(plan, star(100))
    assert said == []
    assert shown == [(10_000, 19_800)]
    assert MAX_TRANSFERS == 20_000_000


@pytest.mark.parametrize("engine", ["simpy", "fast"])
@pytest.mark.parametrize(("algorithm", "kind"), PAIRS)
def test_a_collective_of_one_rank_is_no_work(algorithm: str, kind: str, engine: str) -> None:
    graph = star(1)
    graph.graph.update(segment=1, window=1)
    plan = schedule(algorithm, Collective(kind, 1, 1 << 32))
    assert estimate(plan, graph).transfers == 0
    assert evaluate(plan, graph, preset_of(graph), engine)[0] == 0.0
