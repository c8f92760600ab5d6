from collections.abc import Callable, Iterator
from math import log2

import numpy as np
import pytest

from ringside.sim.algorithms import schedule
from ringside.sim.collective import Collective
from ringside.sim.engine.events import simulate
from ringside.sim.schedule import Schedule, Step, even_chunks, step
from ringside.topologies import Topology, make, star

GIB, MIB, KIB = 1 << 30, 1 << 20, 1 << 10
ALPHA, BETA = 5e-6, 1 / 25e9
COUNTS = [*range(1, 10), 16, 31, 64]
EXACT = 1e-9


def time_of(
    algorithm: str, ranks: int, nbytes: int, kind: str = "all_reduce", gamma: float = 0.0, **star_of: float
) -> float:
    plan = schedule(algorithm, Collective(kind, ranks, nbytes))
    return simulate(plan, star(ranks, **star_of), gamma).time_s


# the closed forms, in seconds for n ranks, messages of m bytes (an n-th, or the whole), a, b and g

FORMS: list[tuple[str, str, Callable[..., float]]] = [
    ("ring", "all_reduce", lambda n, m, a, b, g: (n - 1) * (2 * (a + m * b) + m * g)),
    ("ring", "reduce_scatter", lambda n, m, a, b, g: (n - 1) * (a + m * b + m * g)),
    ("ring", "all_gather", lambda n, m, a, b, g: (n - 1) * (a + m * b)),
    ("direct", "all_gather", lambda n, m, a, b, g: min(n - 1, 1) * a + (n - 1) * m * b),
    ("direct", "reduce_scatter", lambda n, m, a, b, g: min(n - 1, 1) * (a + m * g) + (n - 1) * m * b),
    ("direct", "all_reduce", lambda n, m, a, b, g: min(n - 1, 1) * (2 * a + m * g) + 2 * (n - 1) * m * b),
    ("direct", "all_to_all", lambda n, m, a, b, g: min(n - 1, 1) * a + (n - 1) * m * b),
    ("direct", "sendrecv", lambda n, m, a, b, g: min(n - 1, 1) * (a + n * m * b)),
]


@pytest.mark.parametrize("gamma", [0.0, 1e-11], ids=["", "gamma"])
@pytest.mark.parametrize(("algorithm", "kind", "form"), FORMS)
def test_the_closed_forms_hold_exactly(
    algorithm: str, kind: str, form: Callable[..., float], gamma: float
) -> None:
    # gamma is below beta here, so that a rank adds as fast as it receives
    for ranks in COUNTS if algorithm == "ring" else COUNTS[:-1]:
        for message in (0, 1, 4096, 3_000_000):
            expected = form(ranks, message, ALPHA, BETA, gamma)
            found = time_of(algorithm, ranks, message * ranks, kind, gamma)
            assert found == pytest.approx(expected, rel=EXACT, abs=1e-18)


@pytest.mark.parametrize("gamma", [0.0, 1e-9], ids=["", "gamma"])
def test_halving_doubling_takes_its_closed_form_for_powers_of_two(gamma: float) -> None:
    for ranks in (1, 2, 4, 8, 16, 32, 64, 128):
        for size in (0, ranks, 4096 * ranks):
            share = size * (ranks - 1) / ranks
            expected = 2 * log2(ranks) * ALPHA + share * (2 * BETA + gamma)
            found = time_of("halving_doubling", ranks, size, gamma=gamma)
            assert found == pytest.approx(expected, rel=EXACT, abs=1e-18)


@pytest.mark.parametrize("ranks", [3, 5, 6, 7, 9, 12, 33, 100])
def test_halving_doubling_of_other_counts_takes_no_less_than_its_steps(ranks: int) -> None:
    core = 1 << ranks.bit_length() - 1
    size = 4096 * core
    # at a helper's port the first half of its partner competes with what its surplus rank hands over
    steps = 2 * (log2(core) + 1) * ALPHA + 2 * (size * (core - 1) / core + size) * BETA
    assert time_of("halving_doubling", ranks, size) >= steps * (1 - EXACT)


@pytest.mark.parametrize(("bandwidth", "latency"), [(12.5e6, 1e-3), (450e9, 0.6e-6), (25e9, 0.0), (1.0, 0.0)])
def test_the_closed_form_holds_on_any_star(bandwidth: float, latency: float) -> None:
    expected = 2 * 6 * (latency + 1000 / bandwidth)
    found = time_of("ring", 7, 7000, bandwidth=bandwidth, latency=latency)
    assert found == pytest.approx(expected, rel=EXACT)


@pytest.mark.parametrize(
    ("ranks", "nbytes", "microseconds"),
    [
        (8, KIB, 70.1),
        (8, MIB, 143.4),
        (8, 64 * MIB, 4767.6),
        (8, GIB, 75231.9),
        (64, KIB, 630.1),
        (64, MIB, 712.6),
        (64, 64 * MIB, 5914.8),
        (64, GIB, 85187),
        (256, 64 * MIB, 7897.7),
        (256, GIB, 88113.8),
    ],
)
def test_the_ring_takes_what_other_simulators_and_the_textbook_say(
    ranks: int, nbytes: int, microseconds: float
) -> None:
    assert time_of("ring", ranks, nbytes) * 1e6 == pytest.approx(microseconds, rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ranks", "nbytes", "microseconds"), [(64, MIB, 142.6), (64, GIB, 84617), (1024, GIB, 85915)]
)
def test_halving_doubling_takes_what_other_simulators_say(
    ranks: int, nbytes: int, microseconds: float
) -> None:
    assert time_of("halving_doubling", ranks, nbytes) * 1e6 == pytest.approx(microseconds, rel=1e-3)


@pytest.mark.slow
def test_the_double_binary_tree_pipelines() -> None:
    assert 84.557e-3 <= time_of("double_binary_tree", 64, GIB) <= 89e-3
    assert time_of("double_binary_tree", 64, KIB) <= 70e-6


def test_the_tree_comes_near_three_times_the_size() -> None:
    assert 3 * GIB * BETA <= time_of("tree", 64, GIB) <= 137e-3


@pytest.mark.parametrize("ranks", [2, 3, 4, 8, 16, 32])
def test_an_empty_tree_pays_each_level_twice(ranks: int) -> None:
    assert time_of("tree", ranks, 0) == pytest.approx(2 * (ranks - 1).bit_length() * ALPHA, rel=EXACT)


def chain(moves: list[tuple[int, int, int]], ranks: int, nbytes: int, credits: int = 8) -> Schedule:
    """Make a schedule of one overwriting transfer per step: (source, destination, chunk)."""
    collective = Collective("broadcast", ranks, nbytes)

    def steps() -> Iterator[Step]:
        return (step(src, dst, chunk, reduce=False) for src, dst, chunk in moves)

    return Schedule(collective, "by hand", even_chunks(collective, len(moves)), steps, credits=credits)


def test_a_message_pays_each_latency_once_and_the_narrowest_link_once() -> None:
    graph = make("leaf-spine", 2, {"hosts_per_leaf": 1, "latency": "6us", "bandwidth": "1GB/s"})
    graph.edges["leaf0", "spine"]["bandwidth"] = 1e8
    assert simulate(chain([(0, 1, 0)], 2, 1000), graph).time_s == pytest.approx(12e-6 + 1e-5, rel=EXACT)


@pytest.mark.parametrize("credits", [1, 2, 3, 8])
def test_a_sender_is_at_most_its_credits_ahead_of_its_receiver(credits: int) -> None:
    # latency dominates: every ``credits`` chunks cost one latency, and nothing overlaps
    plan = chain([(0, 1, chunk) for chunk in range(24)], 2, 24, credits)
    rounds = -(-24 // credits)
    found = simulate(plan, star(2, bandwidth=1e12, latency=1e-3)).time_s
    assert found == pytest.approx(rounds * 1e-3, rel=1e-6)


def test_a_rank_adds_one_chunk_at_a_time() -> None:
    collective = Collective("reduce", 5, 1000, root=0)

    def steps() -> Iterator[Step]:
        yield step(np.arange(1, 5), 0, 0, reduce=True)

    plan = Schedule(collective, "by hand", even_chunks(collective), steps)
    # four come in one after the other, 1 us each, and are added in 10 us each
    found = simulate(plan, star(5, bandwidth=1e9, latency=0.0), gamma=1e-8).time_s
    assert found == pytest.approx(1e-6 + 4 * 10e-6, rel=EXACT)


def test_what_waits_for_a_port_holds_up_no_other_port() -> None:
    # 0 and 1 both send to 2; then 0 sends to 3, whose port is free all the time
    plan = chain([(1, 2, 0), (0, 2, 1), (0, 3, 2)], 4, 3000)
    run = simulate(plan, star(4, bandwidth=1e9, latency=0.0), traced=True)
    assert run.timeline is not None
    delivered = {(t.src, t.dst): t.delivered for t in run.timeline.transfers}
    assert sorted([delivered[1, 2], delivered[0, 2]]) == pytest.approx([1e-6, 2e-6])
    assert delivered[0, 3] == pytest.approx(2e-6)


def test_at_one_instant_the_lower_rank_goes_first_however_it_came() -> None:
    graph = line(3)
    plan = chain([(1, 2, 0), (0, 2, 1)], 3, 2000)
    run = simulate(plan, graph, traced=True)
    assert run.timeline is not None
    delivered = {t.src: t.delivered for t in run.timeline.transfers}
    # rank 0's head crosses a link without latency and is at rank 1's port when rank 1 begins
    assert delivered == pytest.approx({0: 1e-6, 1: 2e-6})


def line(ranks: int) -> Topology:
    graph = star(ranks)
    graph.remove_node("switch")
    for rank in range(ranks - 1):
        graph.add_edge(f"gpu{rank}", f"gpu{rank + 1}", kind="pcie", bandwidth=1e9, latency=0.0)
        graph.add_edge(f"gpu{rank + 1}", f"gpu{rank}", kind="pcie", bandwidth=1e9, latency=0.0)
    return graph


@pytest.mark.parametrize("algorithm", ["ring", "tree", "double_binary_tree", "halving_doubling", "direct"])
def test_one_rank_alone_takes_no_time(algorithm: str) -> None:
    run = simulate(schedule(algorithm, Collective("all_reduce", 1, MIB)), star(1), traced=True)
    assert (run.time_s, run.num_transfers) == (0.0, 0)
    assert run.timeline is not None
    assert run.timeline.transfers == []


def test_more_ranks_than_the_topology_has_are_refused() -> None:
    with pytest.raises(ValueError, match="8 ranks on star with 4; write at most that many ranks"):
        simulate(schedule("ring", Collective("all_reduce", 8, KIB)), star(4))


def test_fewer_ranks_than_the_topology_has_are_its_first_ones() -> None:
    plan = schedule("ring", Collective("all_reduce", 4, 4096))
    assert simulate(plan, star(9)).time_s == simulate(plan, star(4)).time_s


def test_tracing_changes_nothing() -> None:
    plan = schedule("double_binary_tree", Collective("all_reduce", 13, 300_000))
    assert simulate(plan, star(13), traced=True).time_s == simulate(plan, star(13)).time_s
