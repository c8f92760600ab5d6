"""Times on a star by the algorithms' papers, as bounds or where `ringside.sim.engine.model` has no form."""

from math import log2

import pytest

from ringside.sim.algorithms import schedule
from ringside.sim.algorithms.grids.grid import squarest
from ringside.sim.collective import Collective
from ringside.sim.engine.events import simulate
from ringside.sim.libraries.find import find_library
from ringside.sim.libraries.ideal import on_machines
from ringside.sim.libraries.library import Candidate
from ringside.topologies import star

ALPHA, BETA, GAMMA = 5e-6, 1 / 25e9, 1e-11


def took(algorithm: str, kind: str, ranks: int, nbytes: int, gamma: float = GAMMA) -> float:
    return simulate(schedule(algorithm, Collective(kind, ranks, nbytes)), star(ranks), gamma).time_s


@pytest.mark.parametrize(("rows", "columns"), [(2, 2), (2, 8), (8, 2), (3, 5), (6, 4)])
@pytest.mark.parametrize("nbytes", [0, 240 * 4096])
def test_rings_in_two_directions(rows: int, columns: int, nbytes: int) -> None:
    s, n = nbytes, rows * columns
    expected = 2 * (columns - 1) * (ALPHA + s / columns * BETA) + 2 * (rows - 1) * (ALPHA + s / n * BETA)
    found = took(f"ring_2d:{rows}x{columns}", "all_reduce", n, nbytes)
    assert found == pytest.approx(expected + (n - 1) / n * s * GAMMA)


@pytest.mark.parametrize(("nodes", "inside"), [(2, 2), (2, 8), (8, 2), (4, 5)])
@pytest.mark.parametrize("nbytes", [0, 240 * 4096])
def test_hierarchical(nodes: int, inside: int, nbytes: int) -> None:
    s = nbytes
    expected = 2 * (ALPHA + (inside - 1) / inside * s * BETA)
    expected += 2 * log2(nodes) * ALPHA + 2 * (nodes - 1) / nodes * s / inside * BETA
    assert took(f"hierarchical:{nodes}x{inside}", "all_reduce", nodes * inside, nbytes, 0.0) == pytest.approx(
        expected
    )


@pytest.mark.parametrize(("radix", "levels"), [(2, 4), (3, 3), (4, 2), (7, 1)])
def test_knomial_trees(radix: int, levels: int) -> None:
    s = 1 << 20
    expected = levels * (ALPHA + (radix - 1) * s * BETA)
    assert took(f"knomial:{radix}", "broadcast", radix**levels, s) == pytest.approx(expected)
    assert took(f"knomial:{radix}", "reduce", radix**levels, s, 0.0) == pytest.approx(expected)


def test_a_radix_of_two_is_the_binomial_tree() -> None:
    for ranks in (1, 2, 5, 8, 13):
        for kind in ("broadcast", "reduce"):
            assert took("knomial:2", kind, ranks, 4096) == took("binomial", kind, ranks, 4096)


@pytest.mark.parametrize("ranks", [2, 4, 8, 16, 64])
@pytest.mark.parametrize("nbytes", [0, 64 * 4096, 64 << 18])
def test_scatter_and_all_gather_take_no_longer_than_both(ranks: int, nbytes: int) -> None:
    share, levels = 2 * (ranks - 1) / ranks * nbytes * BETA, log2(ranks)
    ring = took("scatter_all_gather_ring", "broadcast", ranks, nbytes)
    assert (share + levels * ALPHA) / 2 <= ring <= ((levels + ranks - 1) * ALPHA + share) * (1 + 1e-9)
    # the root's last message of the all-gather may go before the scatter's later ones
    doubling = took("scatter_all_gather", "broadcast", ranks, nbytes)
    assert (share + levels * ALPHA) / 2 <= doubling <= 1.75 * (2 * levels * ALPHA + share)


@pytest.mark.parametrize("ranks", [3, 5, 7, 11, 23, 48, 63])
def test_what_folds_takes_one_exchange_of_all_data_more_each_way_at_most(ranks: int) -> None:
    s, core = 1 << 20, 1 << ranks.bit_length() - 1
    alone = took("recursive_doubling", "all_reduce", core, s, 0.0)
    # a helper's port has its partner's first message beside its neighbour's
    assert alone < took("recursive_doubling", "all_reduce", ranks, s, 0.0) <= alone + 3 * (ALPHA + s * BETA)


@pytest.mark.parametrize("ranks", range(1, 40))
def test_the_squarest_grid_has_the_nearest_sides(ranks: int) -> None:
    rows, columns = squarest(ranks)
    assert rows * columns == ranks
    assert all(ranks % side for side in range(rows + 1, columns))


def test_machines_are_the_rows_of_a_grid_unless_another_is_asked_for() -> None:
    assert on_machines("hierarchical", (8, 8, 8)) == "hierarchical:3x8"
    assert on_machines("ring_2d", (8, 8)) == "ring_2d:2x8"
    assert on_machines("ring_2d", (7, 6)) == "ring_2d"
    assert on_machines("hierarchical", (8,)) == on_machines("hierarchical", (1,) * 24) == "hierarchical"
    assert on_machines("hierarchical:4x6", (8, 8, 8)) == "hierarchical:4x6"
    assert on_machines("ring", (8, 8, 8)) == "ring"
    with pytest.raises(ValueError, match="needs equally many ranks on every machine"):
        on_machines("hierarchical", (7, 6))


def test_auto_weighs_the_hierarchical_algorithm_where_there_are_machines() -> None:
    collective = Collective("all_reduce", 16, 64 << 20)
    dgx = find_library("ideal", "dgx-h100:2")
    assert "hierarchical" in [one.algorithm for one in dgx.candidates(collective)]
    assert dgx.choose(collective) == Candidate("hierarchical")
    names = [one.algorithm for one in find_library("ideal", "star:16").candidates(collective)]
    assert "hierarchical" not in names
    assert "ring_2d" in names
    primes = find_library("ideal", "star:13").candidates(Collective("all_reduce", 13, 64))
    assert "ring_2d" not in [one.algorithm for one in primes]


@pytest.mark.parametrize(
    ("asked", "kind", "ranks", "found"),
    [
        ("rabenseifner", "all_reduce", 8, "halving_doubling"),
        ("linear", "gather", 8, "direct"),
        ("chain", "broadcast", 8, "ring"),
        ("neighbor_exchange", "all_gather", 7, "ring"),
        ("neighbor_exchange", "all_gather", 8, "neighbor_exchange"),
        ("ring_2d", "all_reduce", 7, "ring"),
        ("ring_2d", "all_reduce", 12, "ring_2d:3x4"),
        ("hierarchical:1x8", "all_reduce", 8, "direct"),
        ("hierarchical:8x1", "all_reduce", 8, "halving_doubling"),
        ("knomial", "reduce", 8, "knomial:4"),
    ],
)
def test_a_schedule_has_the_name_of_what_it_is(asked: str, kind: str, ranks: int, found: str) -> None:
    assert schedule(asked, Collective(kind, ranks, 4096)).algorithm == found


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (
            "ring:4",
            "ring takes no parameter, as hierarchical:2x8 and ring_2d:4x8 and knomial:4 do; write ring",
        ),
        (
            "ring_2d:3x3",
            "3x3 is not a grid of 8 ranks; write rows x columns that multiply to 8, for example 2x4",
        ),
        ("ring_2d:0x8", "'0x8' is not a grid; write rows x columns, for example 4x8"),
        ("hierarchical:", "'' is not a grid"),
        ("hierarchical:-2x-4", "'-2x-4' is not a grid"),
        ("ring_3d", "unknown algorithm 'ring_3d'; write ring_2d "),
    ],
)
def test_parameters_that_mean_nothing_are_refused(asked: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        schedule(asked, Collective("all_reduce", 8, 64))


@pytest.mark.parametrize("asked", ["knomial:1", "knomial:x", "knomial:2.5", "knomial:²"])
def test_a_radix_below_two_is_none(asked: str) -> None:
    with pytest.raises(ValueError, match="is not a radix; write 2 or more, for example knomial:4"):
        schedule(asked, Collective("broadcast", 8, 64))


def test_a_radix_of_more_than_all_ranks_is_one_level() -> None:
    expected = ALPHA + 7 * 4096 * BETA
    assert took(f"knomial:{10**30}", "broadcast", 8, 4096) == pytest.approx(expected)
