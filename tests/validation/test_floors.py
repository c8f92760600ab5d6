"""Floors of healthy bus bandwidth: laws on random runs, and the rates that they promise on published ones."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringside.validation.compare import Compared
from ringside.validation.floors import LARGE, SMALL, floored, own_times, slack, verdicts
from ringside.validation.published import published
from ringside.validation.scorecard.floored import floor_scores
from tests.made_up import record

RATES = st.floats(1e-4, 0.49)
SIZES = st.integers(3, 34).map(lambda power: 2**power)


@st.composite
def compared(draw: st.DrawFn) -> Compared:
    """Draw a row: any size, up to twenty times as long as expected, with any interval."""
    predicted = draw(st.floats(1e-6, 1.0))
    one = record(nbytes=draw(SIZES), ranks=8, time_s=predicted * draw(st.floats(0.05, 20.0)))
    return Compared(one, predicted, predicted / 2, predicted * draw(st.floats(1.0, 5.0)), "held_out")


def below(rows: list[Compared], rate: float) -> bool:
    return any(run.below for run in verdicts(floored(rows, rate)))


def slower(one: Compared, factor: float) -> Compared:
    return Compared(
        replace(one.record, time_s=one.record.time_s * factor), one.predicted_s, one.lo_s, one.hi_s, one.set
    )


@given(st.floats(1e-6, 1.0), st.floats(1.0, 5.0), RATES, RATES)
def test_fewer_false_alarms_need_more_slack(time_s, width, one, other):
    fewer, more = sorted((one, other))
    assert slack(time_s, time_s * width, fewer) >= slack(time_s, time_s * width, more) >= 1


@given(st.lists(compared(), min_size=1, max_size=12), RATES, st.floats(1.0, 10.0))
def test_a_slower_run_is_never_healthier(rows, rate, factor):
    assert below([slower(one, factor) for one in rows], rate) >= below(rows, rate)


@given(st.lists(compared(), min_size=1, max_size=12), RATES, st.randoms())
def test_the_order_of_rows_changes_nothing(rows, rate, random):
    shuffled = random.sample(rows, len(rows))
    assert below(rows, rate) == below(shuffled, rate)


@given(st.lists(compared(), max_size=12), RATES)
def test_sizes_between_and_rows_without_an_interval_decide_nothing(rows, rate):
    kept = [one for one in rows if one.hi_s > one.predicted_s and not SMALL < one.record.nbytes < LARGE]
    assert below(rows, rate) == below(kept, rate)
    assert sum(len(run.rows) for run in verdicts(floored(rows, rate))) == len(kept)


@given(st.lists(compared(), min_size=1, max_size=12), RATES)
def test_a_run_at_its_expected_times_is_healthy(rows, rate):
    assert not below([slower(one, one.predicted_s / one.record.time_s) for one in rows], rate)


@given(st.lists(compared(), min_size=1, max_size=12), RATES)
def test_a_healthy_log_of_the_site_is_what_its_repetition_is_held_against(rows, rate):
    own = own_times([one.record for one in rows])
    for row in floored(rows, rate, own):
        assert row.expected_s == own[next(kind for kind in own if kind[0] == row.record.nbytes)]
        assert row.slack == slack(1.0, 1.0, rate)


@pytest.mark.proof  # five minutes: 19 fits
def test_floors_hold_at_sites_that_the_model_has_not_seen(capsys):
    unseen, beside_others = floor_scores(published(), 0.02)
    with capsys.disabled():
        print(f"\nwithout its site: {unseen}\nbeside the site's other runs: {beside_others}")
    assert unseen.alarms <= 0.03 * unseen.runs
    assert unseen.flagged >= 0.95 * unseen.runs
    assert beside_others.alarms <= 0.03 * beside_others.runs
    assert beside_others.flagged >= 0.8 * beside_others.runs
