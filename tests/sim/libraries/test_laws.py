import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringside.sim.algorithms import ALGORITHMS, schedule
from ringside.sim.collective import Collective
from ringside.sim.engine.bounds import lower_bounds
from ringside.sim.engine.events import simulate
from ringside.sim.libraries.library import LawError, check_band, check_monotone, check_time
from ringside.topologies import make, star

PAIRS = [(algorithm, kind) for algorithm, builds in ALGORITHMS.items() for kind in builds]


@pytest.mark.parametrize("time_s", [math.nan, math.inf, -math.inf, -1e-12])
def test_what_is_no_time_is_a_violation(time_s: float) -> None:
    with pytest.raises(LawError, match="is not a valid time"):
        check_time("ring", time_s, {})


def test_a_time_below_a_bound_is_a_violation_that_shows_the_numbers() -> None:
    with pytest.raises(LawError, match=r"ring: .*0\.5 s is below the traffic bound of 1\.0 s"):
        check_time("ring", 0.5, {"latency": 0.1, "traffic": 1.0})


def test_rounding_is_no_violation() -> None:
    check_time("ring", 1.0 - 1e-12, {"traffic": 1.0})
    check_time("ring", 0.0, {"traffic": 0.0})
    check_monotone("ring", [1, 2], [1.0, 1.0 - 1e-12])


def test_times_that_fall_while_the_size_grows_are_a_violation_in_any_order_of_rows() -> None:
    check_monotone("ring", [4, 1, 2], [3.0, 1.0, 1.0])
    check_monotone("ring", [], [])
    with pytest.raises(LawError, match=r"ring: 4 B in 0\.5 s, less than 2 B in 1\.0 s"):
        check_monotone("ring", [4, 1, 2], [0.5, 1.0, 1.0])


@given(st.lists(st.tuples(st.integers(0, 1000), st.floats(0, 1)), unique_by=lambda row: row[0], max_size=8))
def test_exactly_falling_times_are_refused(rows: list[tuple[int, float]]) -> None:
    times = [time for _, time in sorted(rows)]
    falls = any(after < before * (1 - 1e-9) for before, after in pairwise(times))
    if falls:
        with pytest.raises(LawError):
            check_monotone("x", [size for size, _ in rows], [time for _, time in rows])
    else:
        check_monotone("x", [size for size, _ in rows], [time for _, time in rows])


def test_traffic_bounds_are_the_textbooks() -> None:
    size, ranks = 1 << 20, 16
    second = 25e9 / size
    for algorithm, share in (
        ("ring", 2 * 15 / 16),
        ("halving_doubling", 2 * 15 / 16),
        ("direct", 2 * 15 / 16),
        ("tree", 3),
        ("double_binary_tree", 2),
    ):
        plan = schedule(algorithm, Collective("all_reduce", ranks, size))
        assert lower_bounds(plan, star(ranks)).traffic * second == pytest.approx(share)


def test_an_uplink_bounds_what_crosses_it() -> None:
    graph = make("leaf-spine", 2, {"hosts_per_leaf": "4", "oversubscription": "8", "bandwidth": "1GB/s"})
    plan = schedule("ring", Collective("all_reduce", 8, 8000))
    assert lower_bounds(plan, graph).traffic == pytest.approx(14 * 1000 / 0.5e9)


@pytest.mark.parametrize(("algorithm", "kind"), PAIRS)
@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 6, 8, 13])
@pytest.mark.parametrize("nbytes", [0, 1, 100_000])
def test_no_simulation_is_below_its_bounds(algorithm: str, kind: str, ranks: int, nbytes: int) -> None:
    plan = schedule(algorithm, Collective(kind, ranks, nbytes))
    for graph in (star(ranks), star(ranks, 1e15), make("leaf-spine", 4)):
        time_s = simulate(plan, graph).time_s * (1 + 1e-9)
        assert max(lower_bounds(plan, graph)) <= time_s


@pytest.mark.parametrize(("algorithm", "hops"), [("ring", 30), ("tree", 8), ("double_binary_tree", 8)])
def test_latency_bounds_are_reached_by_empty_messages(algorithm: str, hops: int) -> None:
    plan = schedule(algorithm, Collective("all_reduce", 16, 0))
    assert lower_bounds(plan, star(16)).latency == pytest.approx(hops * 5e-6)
    assert simulate(plan, star(16)).time_s == pytest.approx(hops * 5e-6)


@pytest.mark.parametrize(
    "band",
    [
        (1.0, math.nan, 1.0),
        (math.nan, 1.0, 1.0),
        (1.0, 1.0, math.inf),
        (-0.9, -0.9, -0.9),
        (2, 1, 3),
        (0, 2, 1),
    ],
)
def test_what_leaves_is_a_time_within_its_band(band: tuple[float, float, float]) -> None:
    check_band("what", 0.9, 1.0, 1.1)
    with pytest.raises(LawError):
        check_band("what", *band)
