"""All-to-alls of uneven parts, by every library."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringside.sim.algorithms import algorithms_for, schedule
from ringside.sim.collective import Collective
from ringside.sim.engine import events, fast
from ringside.sim.libraries import gloo
from ringside.sim.libraries.find import find_library
from ringside.sim.libraries.library import answer
from ringside.sim.predict import predict
from ringside.sim.proof import prove
from ringside.topologies import star


@st.composite
def uneven(draw: st.DrawFn, most: int = 9) -> Collective:
    ranks = draw(st.integers(1, most))
    row = st.lists(st.sampled_from([0, 0, 1, 7, 40_000]), min_size=ranks, max_size=ranks)
    return Collective.uneven(draw(st.lists(row, min_size=ranks, max_size=ranks)))


@given(uneven())
def test_every_way_of_an_all_to_all_is_proved_and_moves_the_splits(collective: Collective) -> None:
    plans = [schedule(name, collective) for name in algorithms_for("all_to_all")]
    for plan in [*plans, gloo.all_to_all(collective)]:
        prove(plan)
        assert plan.chunks.bounds[-1] == collective.space
        if plan.algorithm != "bruck":  # whose parts go through third ranks
            splits = collective.splits or ()
            expected = {
                (src, dst): 4 * count
                for src, row in enumerate(splits)
                for dst, count in enumerate(row)
                if src != dst
            }
            assert plan.traffic() == expected


@given(uneven(), st.sampled_from(["direct", "pairwise", "bruck"]))
@settings(max_examples=30)
def test_both_engines_agree_and_keep_the_laws(collective: Collective, algorithm: str) -> None:
    pytest.importorskip("numba")
    graph, plan = star(collective.ranks), schedule(algorithm, collective)
    expected = events.simulate(plan, graph).time_s
    assert fast.simulate(plan, graph).time_s == pytest.approx(expected, rel=1e-9)
    predicted = predict(collective, graph, library="ideal", algorithm=algorithm).time_s
    assert predicted == pytest.approx(expected)


def test_gloos_all_to_all_waits_for_the_rank_that_sends_most() -> None:
    even, busy = [[9] * 4] * 4, [[9] * 4, [9, 0, 50, 9], [9] * 4, [9] * 4]
    assert gloo.all_to_all(Collective.uneven(even)).after == {(0, 3): (3, 2), (1, 3): (3, 2)}
    assert gloo.all_to_all(Collective.uneven(busy)).after == {(2, 1): (1, 0), (3, 1): (1, 0)}


def test_even_splits_are_the_even_collective() -> None:
    even = Collective("all_to_all", 4, 4 * 4 * 250, dtype="float32")
    split = Collective.uneven([[250] * 4] * 4)
    assert split.nbytes == even.nbytes
    assert split.busbw_factor == pytest.approx(even.busbw_factor)
    for library, cluster in (("ideal", "star:4"), ("gloo", "star:4"), ("nccl", "dgx-h100:1")):
        bound = find_library(library, cluster, ranks=4, calibration=None)
        for engine in ("simpy", *(("model",) if library == "nccl" else ())):
            times = [answer(bound, one, engine).time_s for one in (even, split)]
            assert times[0] == pytest.approx(times[1], rel=1e-12)


def test_the_rank_that_gets_most_takes_longest() -> None:
    hot = Collective.uneven([[1000, 10, 10, 10]] * 4)
    cold = Collective.uneven([[10] * 4] * 4)
    for library, cluster in (("ideal", "star:4"), ("gloo", "star:4"), ("nccl", "dgx-h100:1")):
        bound = find_library(library, cluster, ranks=4, calibration=None)
        assert answer(bound, hot).time_s > answer(bound, cold).time_s
    assert hot.busbw_factor == pytest.approx(3000 / 1030)


@pytest.mark.parametrize(("cluster", "ranks"), [("dgx-h100:2", 16), ("h100-1gpu:5", 5), ("dgx1-v100:1", 8)])
def test_nccl_sends_nothing_where_there_is_nothing_and_proves_it(cluster: str, ranks: int) -> None:
    chance = random.Random(ranks)
    splits = [[chance.choice([0, 0, 3, 100_000]) for _ in range(ranks)] for _ in range(ranks)]
    library, collective = find_library("nccl", cluster, calibration=None), Collective.uneven(splits)
    plan = library.schedule(collective, library.choose(collective))
    prove(plan)
    assert plan.traffic() == {
        (src, dst): 4 * count
        for src, row in enumerate(splits)
        for dst, count in enumerate(row)
        if count and src != dst
    }
    modelled, played = (answer(library, collective, engine).time_s for engine in ("model", "simpy"))
    assert played > 0
    assert modelled > 0


@pytest.mark.parametrize(
    ("splits", "message"),
    [
        ([[1, 2], [3]], "rank 1 of 2 splits its data in 1; write a row for each of 2 ranks"),
        ([[1, -2], [3, 4]], "rank 0 has -2 elements for another; write 0 or more"),
        ([], "0 ranks; write 1 or more"),
    ],
)
def test_splits_of_other_shapes_are_refused(splits: list[list[int]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Collective.uneven(splits)


def test_only_an_all_to_all_has_splits_and_its_size_is_theirs() -> None:
    with pytest.raises(ValueError, match="splits of all_gather; only all_to_all has them"):
        Collective("all_gather", 2, 4, splits=((1, 0), (0, 1)))
    with pytest.raises(ValueError, match="8 bytes, but with these splits a rank sends 1; write 1"):
        Collective("all_to_all", 2, 8, splits=((1, 0), (0, 1)))
