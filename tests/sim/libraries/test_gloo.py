import numpy as np
import pytest

from ringside.sim.collective import Collective
from ringside.sim.engine.events import simulate
from ringside.sim.libraries import gloo
from ringside.sim.proof import prove
from ringside.topologies import star

BANDWIDTH, LATENCY = 1e9, 1e-4
COUNTS = range(1, 65)


@pytest.mark.parametrize("ranks", COUNTS)
@pytest.mark.parametrize("kind", gloo.BUILDS)
def test_every_collective_is_proved(kind: str, ranks: int) -> None:
    roots = {0, ranks // 2, ranks - 1} if kind in ("broadcast", "reduce") else {0}
    sizes = (0, 4, 4 * ranks, 4 * (1000 * ranks + 1), 3 * gloo.MAX_SEGMENT)
    for nbytes in sizes if ranks < 18 else (sizes[ranks % 5],):
        for root in roots:
            prove(gloo.BUILDS[kind](Collective(kind, ranks, nbytes, itemsize=4, root=root)))


def test_a_barrier_takes_two_latencies_a_round() -> None:
    assert [gloo.barrier_latencies(ranks) for ranks in (1, 2, 3, 4, 5, 8, 9, 64)] == [0, 2, 4, 4, 6, 6, 8, 12]


@pytest.mark.parametrize(
    ("nbytes", "ranks", "per_rank", "size"),
    [
        (2**20, 4, 2, 2**17),
        (2**24, 4, 4, 2**20),
        (9 * 2**20, 2, 5, 943_720),  # 9 segments of at most 1 MiB, rounded up to 10
        (100, 4, 2, 16),
    ],
)
def test_an_all_reduce_is_cut_as_gloo_cuts_it(nbytes: int, ranks: int, per_rank: int, size: int) -> None:
    plan = gloo.all_reduce(Collective("all_reduce", ranks, nbytes, itemsize=4))
    sizes = np.diff(plan.chunks.bounds)
    assert len(sizes) == ranks * per_rank
    assert sizes[0] == size
    assert sizes.sum() == nbytes
    assert plan.credits == 2


def test_a_rank_reduces_towards_the_one_before_it() -> None:
    plan = gloo.all_reduce(Collective("all_reduce", 5, 5000))
    assert {(src, dst) for src, dst, _ in plan.connections()} == {(r, (r - 1) % 5) for r in range(5)}


@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
def test_two_segments_in_flight_hide_the_latency_of_a_ring(ranks: int) -> None:
    collective = Collective("all_reduce", ranks, ranks * 10**6)
    found = simulate(gloo.all_reduce(collective), star(ranks, BANDWIDTH, LATENCY)).time_s
    traffic = 2 * (ranks - 1) * 1e6 / BANDWIDTH
    assert traffic < found < traffic + 2 * (ranks - 1) * LATENCY


@pytest.mark.parametrize("ranks", [2, 3, 4, 8])
def test_a_reduce_scatter_takes_as_long_as_an_all_reduce(ranks: int) -> None:
    graph = star(ranks, BANDWIDTH, LATENCY)
    times = [
        simulate(gloo.BUILDS[kind](Collective(kind, ranks, ranks * 10**6)), graph).time_s
        for kind in ("reduce_scatter", "all_reduce")
    ]
    assert times[0] == pytest.approx(times[1], rel=1e-9)


@pytest.mark.parametrize("ranks", COUNTS)
def test_a_broadcast_has_a_message_for_each_rank_and_logarithmic_depth(ranks: int) -> None:
    plan = gloo.broadcast(Collective("broadcast", ranks, 0, root=ranks - 1))
    assert sum(plan.connections().values()) == ranks - 1
    found = simulate(plan, star(ranks, BANDWIDTH, LATENCY)).time_s
    assert found == pytest.approx(LATENCY * max((rank.bit_count() for rank in range(ranks)), default=0))


def test_a_broadcasts_messages_share_the_senders_port() -> None:
    # the root's three messages arrive together after three, the next rank's two after two, then one
    nbytes = 10**6
    graph = star(8, BANDWIDTH, 1e-6)
    graph.graph.update(segment=1000, window=10_000)
    found = simulate(gloo.broadcast(Collective("broadcast", 8, nbytes)), graph).time_s
    assert found == pytest.approx(6 * nbytes / BANDWIDTH, rel=0.02)


@pytest.mark.parametrize("nbytes", [10**5, 10**6, 10**7])
def test_an_all_gather_loses_half_a_part_on_two_ranks_and_a_window_on_more(nbytes: int) -> None:
    for ranks in (2, 3, 4, 8):
        graph = star(ranks, BANDWIDTH, LATENCY)
        graph.graph.update(segment=1000, window=10_000)
        collective = Collective("all_gather", ranks, nbytes)
        half = nbytes / (2 * ranks)
        lost = half if ranks == 2 else min(half, 10_000)
        assert gloo.startup_s(collective, graph, LATENCY) == pytest.approx(LATENCY + lost / BANDWIDTH)
