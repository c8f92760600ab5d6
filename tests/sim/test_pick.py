import math
import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringside.sim.libraries.ideal import Ideal
from ringside.sim.libraries.nccl import communicator, cost_table
from ringside.sim.libraries.nccl.library import Nccl
from ringside.sim.pick import ERROR, default_of, pick, ranges, times_of
from ringside.topologies import star

SIZES = [1 << power for power in range(3, 34)]
COUNTS = [1, 2, 3, 4, 8, 16, 24, 32, 64, 128, 256, 512]


def libraries(machine, clock="tuner"):
    return lambda nodes: Nccl(communicator(machine, nodes), clock=clock)


def all_reduces(machine, counts, clock="tuner"):
    found = libraries(machine, clock)
    times, default = times_of(found, "all_reduce"), default_of(found, "all_reduce")
    return pick(times, counts, SIZES, default=default)


def told(table):
    return lambda nodes, sizes: table


def test_the_quickest_wins_and_the_margin_is_to_the_next():
    table = {("ring", "ll"): [1.0, 4.0], ("tree", "ll"): [1.05, 2.0], ("pat", "simple"): [math.inf, math.inf]}
    first, second = pick(told(table), [2], [8, 16], default=lambda nodes, nbytes: ("ring", "ll"))
    assert (first.pair, first.next_best) == (("ring", "ll"), ("tree", "ll"))
    assert first.margin == pytest.approx(0.05)
    assert first.too_close
    assert first.loss == 0
    assert (second.pair, second.margin, second.too_close) == (("tree", "ll"), 1.0, False)
    assert second.loss == 1.0


def test_the_stated_error_decides_what_is_close():
    table = {("ring", "ll"): [1.0], ("tree", "ll"): [1.05]}
    assert ERROR == 0.1
    assert not pick(told(table), [2], [8], error=0.04)[0].too_close
    assert not pick(told(table), [2], [8], error=0)[0].too_close


def test_a_default_without_a_time_has_no_loss_and_a_lone_winner_no_rival():
    (only,) = pick(told({("ring", "ll"): [1.0]}), [2], [8], default=lambda *_: ("nvls", "simple"))
    assert (only.loss, only.next_best, only.margin, only.too_close) == (None, None, math.inf, False)
    assert only.default == ("nvls", "simple")


@pytest.mark.parametrize(
    ("nodes", "sizes", "error", "message"),
    [
        ([], [8], 0.1, "0 node counts and 1 sizes"),
        ([1], [], 0.1, "1 node counts and 0 sizes"),
        ([1], [8], -0.1, "an error of -0.1"),
        ([1], [8], math.nan, "an error of nan"),
    ],
)
def test_what_cannot_be_picked_for_is_refused(nodes, sizes, error, message):
    with pytest.raises(ValueError, match=message):
        pick(told({("ring", "ll"): [1.0]}), nodes, sizes, error=error)


def test_nothing_available_is_an_error():
    with pytest.raises(ValueError, match="no candidate can carry out 8 B on 3 nodes"):
        pick(told({("ring", "ll"): [math.inf]}), [3], [8])


@given(st.lists(st.sampled_from(["ring", "tree", "pat"]), min_size=1, max_size=20))
def test_ranges_hold_every_size_once_and_change_where_the_winner_does(winners):
    sizes = [8 << place for place in range(len(winners))]
    table = {
        (name, "ll"): [1.0 if won == name else 2.0 for won in winners] for name in ("ring", "tree", "pat")
    }
    found = ranges(pick(told(table), [1, 2], sizes))
    for nodes in (1, 2):
        mine = [run for run in found if run.nodes == nodes]
        assert all(a.algorithm != b.algorithm and a.max_bytes < b.min_bytes for a, b in pairwise(mine))
        for nbytes, won in zip(sizes, winners, strict=True):
            (run,) = [run for run in mine if run.min_bytes <= nbytes <= run.max_bytes]
            assert run.algorithm == won


def test_by_the_tuner_nccls_own_choice_wins_everywhere():
    for found in all_reduces("dgx-h100", [1, 2, 16]):
        choice = cost_table(communicator("dgx-h100", found.nodes), "all_reduce").choose(found.nbytes)
        assert found.pair == found.default == (choice.algorithm, choice.protocol)
        assert found.loss == 0


def test_by_the_pipeline_the_default_loses_somewhere():
    found = all_reduces("dgx-a100", [1, 2, 4], "pipeline")
    losses = [(one.loss, one.nodes, one.nbytes) for one in found if one.loss]
    assert 0.3 < max(losses)[0] < 2
    small = [one for one in found if one.nodes == 4 and one.nbytes <= 128 * 1024]
    assert all(one.pair == one.default == ("tree", "ll") for one in small)


def test_the_pipeline_ranks_no_pair_that_nccl_does_not_consider():
    times = times_of(libraries("a100-pcie4", "pipeline"), "all_reduce")
    assert {protocol for _, protocol in times(1, [8])} == {"ll", "simple"}


def test_the_textbook_picks_halving_or_direct_for_small_data_never_a_ring():
    found = pick(times_of(lambda nodes: Ideal(star(nodes)), "all_reduce"), [5, 8], [64, 4096])
    assert all(one.algorithm != "ring" and one.protocol == "auto" for one in found)
    assert all(one.margin >= 0 for one in found)


def test_what_cannot_win_is_not_timed(monkeypatch):
    timed = []
    real = Ideal.time
    monkeypatch.setattr(Ideal, "time", lambda self, c, one: timed.append(one.algorithm) or real(self, c, one))
    (found,) = pick(times_of(lambda nodes: Ideal(star(nodes)), "all_reduce"), [8], [1 << 24])
    assert {found.algorithm, found.next_best[0]} <= set(timed)
    assert "tree" not in timed


@pytest.mark.slow
@pytest.mark.parametrize(("clock", "limit_s"), [("tuner", 5), ("pipeline", 10)])
def test_31_sizes_on_12_node_counts_take_seconds(clock, limit_s):
    begin = time.process_time()
    found = all_reduces("dgx-h100", COUNTS, clock)
    assert time.process_time() - begin < limit_s
    assert len(found) == len(COUNTS) * len(SIZES)
