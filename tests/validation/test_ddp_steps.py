from dataclasses import replace

import pytest

from ringside.real.ddp.job import sleeping_layers
from ringside.real.emulate import available
from ringside.sim.program.groups import TimedGroup
from ringside.sim.training.ddp.buckets import Bucketing, layout
from ringside.sim.training.ddp.job import DataParallel
from ringside.sim.training.ddp.simulate import simulate_step
from ringside.validation.compare_ddp import ComparedSteps
from ringside.validation.emulated.plan import MBIT
from ringside.validation.emulated.training import StepCase, checks, judge, trials
from tests.made_up import ddp_record

TRIAL = StepCase(bandwidth=500 * MBIT, cap_mb=5, workers=2)


def recorded(steps):
    ddp = DataParallel(bucketing=Bucketing(5))
    return ddp_record(sleeping_layers(), 4, *steps, way="ring", ddp=ddp, workers=1)


def slower(step, factor):
    buckets = tuple(replace(bucket, finish_s=bucket.finish_s * factor) for bucket in step.buckets)
    return replace(step, step_s=step.step_s * factor, buckets=buckets)


def test_errors_are_against_the_median_of_the_measured_steps():
    step = simulate_step(
        sleeping_layers(), TimedGroup(4, lambda c: 0.05), DataParallel(bucketing=Bucketing(5))
    )
    steps = tuple(slower(step, factor) for factor in (1.25, 1.0, 4.0))
    one = ComparedSteps(recorded(steps), step)
    assert one.step_error == pytest.approx(1 / 1.25 - 1)
    assert one.finish_errors == pytest.approx([1 / 1.25 - 1] * 2)
    assert one.spread == pytest.approx(3 / 2 / 1.25)
    assert [check.error for check in checks([one])] == pytest.approx([0.2] * 3)
    assert not any(check.passed for check in checks([one]))
    assert all(check.passed for check in checks([ComparedSteps(recorded((step,)), step)]))


def test_trials_are_every_combination():
    plan = trials([1e6, 2e6], [1, 5, 25], [1, 2])
    assert len(set(plan)) == len(plan) == 16
    assert sum(trial.powersgd is not None for trial in plan) == 4


@pytest.mark.slow
@pytest.mark.netadmin
@pytest.mark.gloo
@pytest.mark.skipif(bool(available()), reason="no right to make network namespaces")
def test_a_real_step_on_an_emulated_network_takes_as_long_as_predicted():
    judged = []
    judge([TRIAL], lambda trial, one: judged.append((trial, one)))
    ((trial, one),) = judged
    assert trial == TRIAL
    expected = layout(sleeping_layers(), Bucketing(5), 3)
    assert [b.nbytes for b in one.record.median.buckets] == [b.nbytes for b in expected]
    assert abs(one.step_error) < 0.1
    assert max(map(abs, one.finish_errors)) < 0.15
