"""The law of faults: what it learns from half a record holds in the other half, and from its own draws."""

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from ringside.sim.faults.draws import draw_history
from ringside.sim.faults.file import read_faults
from ringside.sim.faults.history import FaultHistory, FaultsError, NodeFault, quantile_of
from ringside.sim.faults.law import DAY_S, RELAPSE_S, learn

RECORD = Path(__file__).parents[3] / "validation/published/faults/infinitehbd.json"


@pytest.fixture(scope="module")
def record():
    return read_faults(RECORD)


def parts(history, count):
    bounds = [history.begin_s + history.span_s * place / count for place in range(count + 1)]
    return [history.between(*ends) for ends in pairwise(bounds)]


def errors(fitted, judged):
    """Return the relative errors of node-days and of the 90 % quantile of nodes down."""
    law = learn(fitted)
    node_s = law.down_share * law.nodes * judged.span_s
    real = quantile_of(judged.down(), 0.9)
    return node_s / judged.node_s_down - 1, law.down_quantile(0.9, law.nodes) / real - 1


@pytest.mark.parametrize("turn", [1, -1])
def test_half_of_a_record_foretells_the_other(record, turn):
    node_days, crowded = errors(*parts(record, 2)[::turn])
    assert abs(node_days) < 0.3
    assert abs(crowded) < 0.2


def test_a_third_without_the_burst_does_not_foretell_it(record):
    calm, burst, after = parts(record, 3)
    assert errors(calm, burst)[0] < -0.7
    assert errors(burst, after)[0] > 2
    assert abs(errors(calm, after)[0]) < 0.3


def test_faults_that_came_independently_would_fall_short(record):
    first, second = parts(record, 2)
    mean = learn(first).down_share * 400
    assert stats.poisson.ppf(0.9, mean) < 0.8 * quantile_of(second.down(), 0.9)


def test_repeat_offenders_are_relapses(record):
    """A fault soon after a repair is frequent; beyond that nodes are hit in both halves as by chance."""
    assert 0.2 < learn(record).relapse < 0.4
    assert learn(record).offenders == 0
    first, second = (
        {one.node for one in part.faults if one.begin_s is not None} for part in parts(record, 2)
    )
    assert len(first & second) <= len(first) * len(second) / record.nodes


@pytest.fixture(scope="module")
def drawn(record):
    law = replace(learn(record), offenders=1.5)
    return law, draw_history(law, 400, 20 * record.span_s, np.random.default_rng(3))


def test_draws_follow_the_law(drawn):
    law, history = drawn
    down = history.down()
    mean = np.arange(len(down)) @ down
    assert mean == pytest.approx(law.down_share * 400, rel=0.15)
    assert quantile_of(down, 0.9) == pytest.approx(law.down_quantile(0.9, 400), rel=0.2)
    assert len(history.faults) / history.span_s / 400 == pytest.approx(law.per_node_s, rel=0.15)


def test_the_law_is_learnt_again_from_its_draws(drawn):
    law, history = drawn
    again = learn(history)
    assert again.relapse == pytest.approx(law.relapse, abs=0.05)
    assert again.offenders == pytest.approx(law.offenders, rel=0.35)
    assert again.crowding == pytest.approx(law.crowding, rel=0.4)
    assert sum(kind.share for kind in again.kinds) == pytest.approx(1)


def test_nodes_down_follow_a_negative_binomial_law(record):
    law = learn(record)
    mean, size = law.down_share * 400, 1 / law.crowding
    expected = stats.nbinom.pmf(np.arange(60), size, size / (size + mean))
    assert law.down(400)[:60] == pytest.approx(expected)
    calm = replace(law, crowding=0.0)
    assert calm.down(400)[:30] == pytest.approx(stats.poisson.pmf(np.arange(30), mean))


def test_spares_are_the_fewest_that_keep_a_job_whole(record):
    law = learn(record)
    for share in (0.5, 0.9, 0.999):
        spares = law.spares(300, share)
        assert law.whole(300, spares) >= share > law.whole(300, spares - 1)


def fault(node, begin, end):
    begin_s, end_s = (None if day is None else day * DAY_S for day in (begin, end))
    return NodeFault(node=node, begin_s=begin_s, end_s=end_s, kind="any")


def history(*faults, nodes=10, days=10):
    return FaultHistory(nodes=nodes, begin_s=0.0, end_s=days * DAY_S, faults=faults)


def test_a_node_with_two_faults_is_down_once():
    both = history(fault("a", 1, 4), fault("a", 2, 3), fault("b", None, 2), fault("c", 8, None))
    assert both.node_s_down == pytest.approx((3 + 2 + 2) * DAY_S)
    assert both.down() == pytest.approx([0.4, 0.5, 0.1])


def test_parts_of_a_record_have_all_its_node_days(record):
    for count in (2, 3, 7):
        assert sum(part.node_s_down for part in parts(record, count)) == pytest.approx(record.node_s_down)


def test_an_open_fault_counts_with_those_that_are_longer():
    rows = [fault(str(one), one / 2, one / 2 + 1) for one in range(10)]
    law = learn(history(*rows, fault("open", 6, None), fault("long", 0, 8), nodes=20))
    (kind,) = law.kinds
    assert kind.weights[-1] == pytest.approx(2 / 12)
    assert kind.mean_s * 12 == pytest.approx(
        history(*rows, fault("o", 6, None), fault("l", 0, 8), nodes=20).node_s_down
    )


@pytest.mark.parametrize(
    ("faults", "message"),
    [
        ([fault("a", 1, 2)], "1 faults begin in the record; a law needs 10 or more"),
        ([fault(str(day), day, day) for day in range(10)], "no node is down at any time"),
    ],
)
def test_too_little_to_learn_from_is_refused(faults, message):
    with pytest.raises(FaultsError, match=message):
        learn(history(*faults))


def test_a_relapse_is_what_comes_soon_after_a_repair():
    soon = RELAPSE_S / DAY_S / 2
    chains = [
        fault(str(one), begin, begin + 1) for one in range(8) for begin in (5 * one, 5 * one + 1 + soon)
    ]
    assert learn(history(*chains, nodes=1000, days=100)).relapse == pytest.approx(0.5, abs=0.01)
