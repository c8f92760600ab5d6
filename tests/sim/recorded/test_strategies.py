"""Ringside's own strategies, recorded as plain data, take the same steps."""

import pytest

from ringside.sim.program.libraries import Libraries
from ringside.sim.recorded.step import RecordedTraining
from ringside.sim.training.parallel import simulate_parallel
from ringside.sim.training.program import Writing
from ringside.validation.questions.step_time import StepTime
from tests.sim.recorded.made import recorded_of, seconds_of


@pytest.mark.parametrize(
    "layout",
    [
        pytest.param({"strategy": "fsdp"}, marks=pytest.mark.slow),
        pytest.param({"strategy": "hsdp", "shard": 8}, marks=pytest.mark.slow),
        {"micro_batch": 1},
        pytest.param({"strategy": "fsdp", "tp": 2, "sequence_parallel": True}, marks=pytest.mark.slow),
        {"pp": 2, "micro_batch": 1},
        pytest.param({"pp": 2, "tp": 2, "strategy": "fsdp", "micro_batch": 1}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_a_recording_of_a_strategy_takes_its_step(layout: dict[str, object]) -> None:
    question = StepTime(model="gpt2:128", cluster="dgx-h100:2", batch=4, **layout)
    job = question.job
    wanted = simulate_parallel(job, question.libraries)
    writing = Writing(job)
    recorded = recorded_of(writing.program(), job.roles, lambda rank: writing.step(rank).held)
    libraries = Libraries("nccl", "dgx-h100:2", {}, job.mesh.ranks)
    training = RecordedTraining(recorded, libraries, seconds_of, contention=job.costs.contention)
    step = training.step()
    assert step.step_s == pytest.approx(wanted.step_s, rel=1e-9)
    assert sum(step.exposed_by_s.values()) == pytest.approx(wanted.exposed_s, rel=1e-6, abs=1e-9)
