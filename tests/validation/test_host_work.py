"""The host's own work in a step: what calls that move nothing show of it, and what it adds to a step."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("torch")
from ringside.real.training.job import Sleeping, TrainingJob
from ringside.real.training.record import MeasuredRankStep, Said, TrainingRecord
from ringside.sim.program import Call, Compute, Wait
from ringside.sim.training.ddp.step import MeasuredNetwork
from ringside.topologies import star
from ringside.topologies.file import dumps
from ringside.validation.training.compare import compare_training, planned
from ringside.validation.training.host import host_work
from ringside.validation.training.program import program_of

MODEL = Sleeping(layers=2, hidden=16, inner=16, rows=16, forward_s=2e-3, backward_s=4e-3)
JOBS = {
    "fsdp": TrainingJob(model=MODEL, shard=2),
    "tensor": TrainingJob(model=MODEL, tensor=2),
    "both": TrainingJob(model=MODEL, shard=2, tensor=2, sequence_parallel=True),
    "ring": TrainingJob(model=MODEL, context=2, context_method="ring"),
    "ulysses": TrainingJob(model=MODEL, context=2, context_method="ulysses", micro_batches=2),
    "zero redundancy": TrainingJob(model=MODEL, strategy="zero_redundancy", replicate=2),
}


def step_without_network(job, program, begin_s=0.0):
    """Make the step of a program on a network that takes no time, from the bytes and kinds of the plan."""
    return tuple(
        _rank_step(program.operations(rank), planned_calls, begin_s)
        for rank, planned_calls in enumerate(planned(program_of(job)))
    )


def _rank_step(operations, planned_calls, now):
    first, calls, begins, ends = now, [], {}, {}
    for place, operation in enumerate(operations):
        if isinstance(operation.action, Compute):
            now += operation.action.seconds
        elif isinstance(operation.action, Call):
            calls.append(place)
            begins[place] = now
        elif isinstance(operation.action, Wait):
            ends.setdefault(operation.after[0], now)
    recorded = tuple(
        Said(one.kind, one.nbytes, "float32", one.ranks, -1, begins[place], ends.get(place, now))
        for place, one in zip(calls, planned_calls, strict=True)
    )
    return MeasuredRankStep(first, now, recorded)


def random_work(job, seed):
    """Return random work of each rank, before each call and each wait and after the last."""
    none = host_work(program_of(job), [step_without_network(job, program_of(job))])
    random = Random(seed)
    return tuple(tuple(random.choice([0.0, random.uniform(0, 5e-3)]) for _ in rank) for rank in none)


@pytest.mark.parametrize("name", JOBS)
@settings(max_examples=20)
@given(seed=st.integers(0), begin_s=st.floats(0, 10))
def test_a_program_with_the_work_that_a_step_shows_takes_as_long_call_by_call(name, seed, begin_s):
    job = JOBS[name]
    step = step_without_network(job, program_of(job, random_work(job, seed)), begin_s)
    again = step_without_network(job, program_of(job, host_work(program_of(job), [step])), begin_s)
    for one, other in zip(again, step, strict=True):
        assert one.end_s == pytest.approx(other.end_s, abs=1e-9)
        for ours, theirs in zip(one.said, other.said, strict=True):
            assert (ours.begin_s, ours.end_s) == pytest.approx((theirs.begin_s, theirs.end_s), abs=1e-9)


@pytest.mark.parametrize("name", JOBS)
def test_sleeps_alone_show_no_work(name):
    job = JOBS[name]
    program = program_of(job)
    assert not any(map(any, host_work(program, [step_without_network(job, program)])))


def record(job, host_steps):
    """Make a record of one step on an emulated network."""
    network = MeasuredNetwork(topology=dumps(star(job.mesh.ranks, bandwidth=12.5e6)), library="gloo")
    return TrainingRecord(
        job=job,
        steps=(step_without_network(job, program_of(job)),),
        fingerprint={},
        wires=network,
        host_steps=host_steps,
    )


@pytest.mark.parametrize("name", JOBS)
@settings(max_examples=20)
@given(seed=st.integers(0))
def test_work_lengthens_a_step_by_no_more_than_its_sum(name, seed):
    job = JOBS[name]
    work = random_work(job, seed)
    plain = compare_training(record(job, ())).predicted_s
    hosted = compare_training(record(job, (step_without_network(job, program_of(job, work)),))).predicted_s
    assert plain - 1e-9 <= hosted <= plain + sum(map(sum, work)) + 1e-9


@settings(max_examples=20)
@given(seed=st.integers(0))
def test_steps_of_another_order_show_nothing(seed):
    job = JOBS["fsdp"]
    ranks = step_without_network(job, program_of(job, random_work(job, seed)))
    turned = tuple(one._replace(said=one.said[::-1]) for one in ranks)
    plain = compare_training(record(job, ())).predicted_s
    assert compare_training(record(job, (turned,))).predicted_s == plain
