from dataclasses import replace

import pytest

from real.ddp import Measured
from real.emulate import available
from sim.training.buckets import Bucketing, layout
from sim.training.ddp import simulate_step
from sim.training.job import DataParallel
from sim.training.process_group import TimedGroup
from validation.ddp_steps import Judged, Trial, judge, sleeping_layers, table, trials
from validation.scenes import MBIT

TRIAL = Trial(bandwidth=500 * MBIT, cap_mb=5, workers=2)


def slower(step, factor):
    buckets = tuple(replace(bucket, finish_s=bucket.finish_s * factor) for bucket in step.buckets)
    return replace(step, step_s=step.step_s * factor, buckets=buckets)


def test_errors_are_against_the_median_of_the_measured_steps():
    step = simulate_step(
        sleeping_layers(), TimedGroup(4, lambda c: 0.05), DataParallel(bucketing=Bucketing(5))
    )
    steps = tuple(slower(step, factor) for factor in (1.25, 1.0, 4.0))
    one = Judged(TRIAL, step, Measured(steps, (), {}))
    assert one.step_error == pytest.approx(1 / 1.25 - 1)
    assert one.finish_errors == pytest.approx([1 / 1.25 - 1] * 2)
    assert one.spread == pytest.approx(3 / 2 / 1.25)
    assert "step times: median error 20.0%, worst 20.0%" in table([one])


def test_trials_are_every_combination():
    plan = trials([1e6, 2e6], [1, 5, 25], [1, 2])
    assert len(set(plan)) == len(plan) == 12


@pytest.mark.netadmin
@pytest.mark.gloo
@pytest.mark.skipif(bool(available()), reason="no right to make network namespaces")
def test_a_real_step_on_an_emulated_network_takes_as_long_as_predicted():
    judged = []
    judge([TRIAL], judged.append)
    (one,) = judged
    expected = layout(sleeping_layers(), Bucketing(5), 3)
    assert [set(b.parameters) for b in one.measured.buckets] == [set(b.parameters) for b in expected]
    assert abs(one.step_error) < 0.1
    assert max(map(abs, one.finish_errors)) < 0.15
