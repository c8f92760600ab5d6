"""Young's and Daly's formulas: published points, and the laws that any goodput obeys."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringside.sim.goodput.formulas import (
    best_interval,
    daly,
    expected_goodput,
    expected_wall,
    first_order_goodput,
    young,
)
from ringside.sim.goodput.job import Checkpoints, LongJob, Restart, causes_of_mtbf

MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0

seconds = st.floats(1.0, 1e4)
mtbfs = st.floats(3e3, 1e7)


def job(mtbf=6 * HOUR, write=60.0, restart=600.0, work=10 * DAY, **more):
    causes = causes_of_mtbf(mtbf, 8) if mtbf else ()
    return LongJob(
        nodes=8, causes=causes, work_s=work, checkpoints=Checkpoints(write_s=write),
        restart=Restart(start_s=restart), **more,
    )  # fmt: skip


@pytest.mark.parametrize(("mtbf_h", "digits", "minutes"), [(24, 0, 117), (6, 0, 57), (0.25, 1, 9.1)])
def test_daly_reaches_the_points_that_he_printed(mtbf_h, digits, minutes):
    assert round(daly(5 * MINUTE, mtbf_h * HOUR) / MINUTE, digits) == minutes


def test_daly_gives_up_where_a_checkpoint_takes_two_failures():
    assert daly(2.0, 1.0) == 1.0
    assert daly(5.0, 1.0) == 1.0


@given(write=seconds, mtbf=mtbfs)
def test_young_and_daly_agree_where_checkpoints_are_cheap(write, mtbf):
    if write < mtbf / 1e4:
        assert daly(write, mtbf) == pytest.approx(young(write, mtbf), rel=0.01)


@given(write=seconds, mtbf=mtbfs)
def test_daly_is_close_to_the_zero_of_the_derivative(write, mtbf):
    if write < mtbf / 4:
        assert best_interval(job(mtbf, write)) == pytest.approx(daly(write, mtbf), rel=0.01)


@given(write=seconds, mtbf=mtbfs, off=st.floats(0.1, 10.0), restart=seconds)
def test_no_interval_beats_the_best_one(write, mtbf, off, restart):
    one = job(mtbf, write, restart, work=1e9)
    best = best_interval(one)
    if 1e-6 <= best * off < 1e8:
        assert expected_goodput(one, best * off) <= expected_goodput(one, best) * (1 + 1e-6)


@given(write=seconds, mtbf=mtbfs, interval=st.floats(1.0, 1e6), restart=seconds)
def test_goodput_is_a_share_and_falls_with_failures(write, mtbf, interval, restart):
    often, seldom = job(mtbf, write, restart), job(2 * mtbf, write, restart)
    assert 0 <= expected_goodput(often, interval) <= expected_goodput(seldom, interval) <= 1
    assert 0 <= first_order_goodput(often, interval) <= 1


@given(write=seconds, more=st.floats(1.01, 10.0), mtbf=mtbfs)
def test_the_best_interval_grows_with_the_checkpoint_and_with_the_mtbf(write, more, mtbf):
    assert best_interval(job(mtbf, write)) < best_interval(job(mtbf, write * more))
    assert best_interval(job(mtbf, write)) < best_interval(job(mtbf * more, write))


@given(interval=st.floats(10.0, 1e6), write=st.floats(0.0, 100.0), restart=seconds)
def test_without_failures_only_checkpoints_and_the_start_cost_anything(interval, write, restart):
    calm = job(None, write, restart)
    count = math.ceil(calm.work_s / interval * (1 - 1e-12))
    assert expected_wall(calm, interval) == pytest.approx(calm.work_s + restart + count * write)
    assert first_order_goodput(calm, interval) == max(0, 1 - write / interval)


@given(mtbf=st.floats(1e4, 1e7), write=st.floats(0.1, 10.0), restart=st.floats(1.0, 50.0))
def test_the_first_order_is_the_exact_one_where_all_is_small(mtbf, write, restart):
    one = job(mtbf, write, restart, work=1e8)
    interval = young(write, mtbf)
    small = write / interval + (interval + restart) / mtbf
    assert first_order_goodput(one, interval) == pytest.approx(
        expected_goodput(one, interval), abs=small**2 + 1e-5
    )


@given(persist=st.floats(0.0, 300.0))
def test_a_checkpoint_that_is_usable_later_costs_as_a_longer_restart_does(persist):
    late = replace(job(restart=600.0), checkpoints=Checkpoints(write_s=60.0, persist_s=persist))
    longer = replace(job(), restart=Restart(start_s=600.0, load_s=persist))
    assert expected_wall(late, HOUR) - persist == pytest.approx(expected_wall(longer, HOUR))


def test_failures_beyond_all_measure_rare_give_youngs_interval():
    seldom = job(mtbf=1e9, write=1e-3)
    assert best_interval(seldom) == pytest.approx(young(1e-3, 1e9), rel=1e-5)
    assert best_interval(job(write=0.0)) == 1e-6


def test_a_job_that_never_ends_has_no_goodput_and_no_overflow():
    hopeless = job(mtbf=60.0, restart=1e5)
    assert math.isinf(expected_wall(hopeless, 1e6))
    assert expected_goodput(hopeless, 1e6) == 0
    assert expected_goodput(job(mtbf=60.0, restart=1e6), 10.0) == 0


def test_the_best_interval_waits_for_the_checkpoint_before():
    late = replace(job(), checkpoints=Checkpoints(write_s=1.0, persist_s=2 * HOUR))
    assert best_interval(late) == 2 * HOUR - 1
    with pytest.raises(ValueError, match="write 7199 s"):
        expected_goodput(late, HOUR)
