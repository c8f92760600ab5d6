"""A host launches operators one by one, ahead of its GPU, until it waits for it."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringside.sim.recorded.job import HostWait, Operator, RecordedGroup
from tests.sim.recorded.made import Recording, job_of, timed
from tests.sim.recorded.test_laws import training

LAUNCH_S = 10e-6

US = st.integers(0, 40).map(lambda us: us * 1e-6)


def step_s(posted: list[tuple[float | None, str]]) -> float:
    """Return the step's time by the law: a host, lanes, and None for its waits for all lanes."""
    host, lanes = 0.0, {"compute": 0.0, "other": 0.0}
    for seconds, lane in posted:
        if seconds is None:
            host = max(host, *lanes.values())
        else:
            host += LAUNCH_S
            lanes[lane] = max(host, lanes[lane]) + seconds
    return max(host, *lanes.values())


def job(posted: list[tuple[float | None, str]]):
    one, last = Recording(0), dict[str, int]()
    for seconds, lane in posted:
        if seconds is None:
            one.post(HostWait("item"), "host", tuple(last.values()))
        else:
            last[lane] = one.post(timed(seconds), lane)
    return job_of([one.done()], [RecordedGroup("world", ((0,),))])


@given(st.lists(st.tuples(st.one_of(US, US, st.none()), st.sampled_from(["compute", "other"])), min_size=1))
@settings(max_examples=100)
def test_a_step_is_that_of_its_host_and_its_lanes(posted: list[tuple[float | None, str]]) -> None:
    own = replace(training(job(posted)), launch_s=LAUNCH_S)
    assert own.step().step_s == pytest.approx(step_s(posted), abs=1e-12)


def test_a_gpu_that_is_behind_hides_its_host_but_for_the_first_launch() -> None:
    posted = [(20e-6, "compute")] * 50
    own = replace(training(job(posted)), launch_s=LAUNCH_S)
    assert own.step().step_s == pytest.approx(50 * 20e-6 + LAUNCH_S)
    assert len(own.program.operations(0)) == 51


def test_a_number_that_the_host_reads_exposes_it() -> None:
    work: list[tuple[float | None, str]] = [(20e-6, "compute")] * 10
    own = replace(training(job([*work, (None, ""), *work])), launch_s=LAUNCH_S)
    assert own.step().step_s == pytest.approx(20 * 20e-6 + 2 * LAUNCH_S)


def test_small_kernels_wait_for_their_host() -> None:
    own = replace(training(job([(1e-6, "compute")] * 100)), launch_s=LAUNCH_S)
    assert own.launching_s == pytest.approx(1e-3)
    step = own.step()
    assert step.step_s == pytest.approx(1e-3 + 1e-6)
    assert step.stages[0].bubble_s == pytest.approx(100 * 9e-6 + 1e-6)
    assert isinstance(own.job.recorded[0].actions[0], Operator)
