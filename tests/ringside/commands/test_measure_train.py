"""``measure train`` and its comparison: jobs from options, errors, and tables of made-up steps."""

import json
from dataclasses import replace

import pytest

from ringside.real.questions.training_measurement import TrainingMeasurement, model_of
from ringside.real.training.job import ExpertLayers, Sleeping, SmallDecoder, TrainingJob
from ringside.real.training.record import MeasuredRankStep, Said, TrainingRecord
from ringside.sim.training.ddp.step import MeasuredNetwork
from ringside.topologies import star
from ringside.topologies.file import dumps
from ringside.validation.emulated.strategies import CASES, MEDIAN, SHORT, checks
from ringside.validation.training.compare import compare_training, planned
from ringside.validation.training.program import program_of

JOB = TrainingJob(model=Sleeping(layers=2), shard=2)


def job_of(ranks, model="sleeping", **options):
    return TrainingMeasurement(ranks=ranks, model=model, **options).job


def made_up(job=JOB, step_s=1.0):
    """Make a record with the program's communication, in steps of these seconds."""
    network = MeasuredNetwork(topology=dumps(star(job.mesh.ranks, bandwidth=12.5e6)), library="gloo")
    step = tuple(
        MeasuredRankStep(0.0, step_s, tuple(
            Said(one.kind, one.nbytes, "float32", one.ranks, -1, 0.0, step_s) for one in asked
        ))
        for asked in planned(program_of(job))
    )  # fmt: skip
    return TrainingRecord(job=job, steps=(step,), fingerprint={}, wires=network)


def test_words_become_the_job_that_they_describe():
    assert job_of(4) == TrainingJob(shard=4, iterations=20)
    job = job_of(8, "decoder:layers=4", pp=2, tp=2, schedule="zbv")
    assert (job.shard, job.pipeline, job.tensor, job.virtual, job.micro_batches) == (2, 2, 2, 2, 4)
    job = job_of(4, "sleeping", strategy="hsdp")
    assert (job.strategy, job.shard, job.replicate) == ("fsdp", 2, 2)
    job = job_of(4, "sleeping", strategy="zero_redundancy")
    assert (job.strategy, job.shard, job.replicate) == ("zero_redundancy", 1, 4)
    job = job_of(8, "decoder", cp=2, tp=2, cp_method="ring")
    assert (job.shard, job.context, job.tensor, job.context_method) == (2, 2, 2, "ring")
    assert model_of("sleeping:layers=2,forward_s=5ms") == Sleeping(layers=2, forward_s=5e-3)
    assert model_of("decoder:hidden=32") == SmallDecoder(hidden=32)
    assert model_of("experts:skew=0.25,forward_s=5ms") == ExpertLayers(skew=0.25, forward_s=5e-3)


def test_experts_are_dealt_out_among_all_ranks_or_as_many_as_was_said():
    assert job_of(4, "experts") == TrainingJob(model=ExpertLayers(), replicate=4, expert=4, iterations=20)
    pairs = job_of(4, "experts:experts=2", strategy="ddp", ep=2)
    assert (pairs.expert, pairs.mesh.expert_data) == (2, 2)
    with pytest.raises(ValueError, match="experts train with `strategy` ddp here, not fsdp"):
        job_of(4, "experts", strategy="fsdp")
    with pytest.raises(ValueError, match="`cp` cannot be combined with expert layers"):
        job_of(4, "experts", cp=2)
    with pytest.raises(ValueError, match="sleeping has no experts; write `model` experts"):
        job_of(4, "sleeping", ep=2)


@pytest.mark.parametrize("degree", ["tp", "cp", "shard", "virtual"])
def test_degrees_begin_at_one(degree):
    with pytest.raises(ValueError, match=f"`{degree}` 0; write 1 or more"):
        job_of(4, pp=2, **{degree: 0})


@pytest.mark.slow
def test_steps_are_compared_with_their_program_and_its_time(ringside, json_of, refused, silently, tmp_path):
    predicted = compare_training(made_up()).predicted_s
    (tmp_path / "steps.json").write_text(made_up(step_s=predicted / 1.02).dumps())
    out = silently("compare", "steps.json", "--max-error", "3%")
    assert out.splitlines()[-1].split()[:3] == ["steps.json", "identical", "identical"]
    (row,) = json_of("compare", "steps.json")["rows"]
    assert row["error"] == pytest.approx(0.02)
    code, _, err = ringside("compare", "steps.json", "--max-error", "1%")
    assert code == 1
    assert "error of the step above 1% in steps.json" in err
    assert "remove --plot" in refused("compare", "steps.json", "--plot", "p.svg")


def test_steps_in_which_ranks_say_something_else_fail(ringside, tmp_path):
    record = made_up()
    first, second = record.steps[0]
    cut = second._replace(said=second.said[:-1])
    (tmp_path / "steps.json").write_text(replace(record, steps=((first, cut),)).dumps())
    code, out, err = ringside("compare", "steps.json")
    assert code == 1
    assert "rank 1, number 5: nothing, where the program has reduce_scatter" in out
    assert "ranks did not follow their program in steps.json" in err


def test_a_validation_says_how_far_off_and_ends_so(ringside, silently, monkeypatch):
    step_s = compare_training(made_up()).predicted_s

    def judge_as(step_s):
        def judge(plan, on_judged):
            for case in plan:
                on_judged(case, compare_training(made_up(step_s=step_s)))

        monkeypatch.setattr("ringside.validation.emulated.strategies.judge", judge)

    judge_as(step_s)
    out = silently("validate", "training", "--short")
    assert out.count("identical") == 2 * len(SHORT)
    assert "# pass  worst error of step times: 0.0% (at most 6%)" in out
    code, out, _ = ringside("validate", "training", "--family", "zbv", "--json")
    assert [row["job"] for row in json.loads(out)["rows"]] == ["zbv"]
    judge_as(step_s / 1.1)
    code, out, err = ringside("validate", "training", "--short")
    assert code == 1
    assert "past the tolerance: median error of step times, worst error of step times" in err


@pytest.mark.slow
def test_every_case_has_a_program_that_is_as_long_as_any_step():
    assert len({case.name for case in CASES}) == len(CASES)
    for case in CASES:
        asked = planned(program_of(case.job))
        assert len(asked) == case.job.mesh.ranks
        assert all(asked)


def test_checks_want_all_orders_and_small_errors():
    good = compare_training(made_up(step_s=compare_training(made_up()).predicted_s))
    assert all(check.passed for check in checks([good]))
    assert not all(check.passed for check in checks([replace(good, same_bytes=False)]))
    off = replace(good, predicted_s=good.predicted_s * (1 + 2 * MEDIAN))
    assert not all(check.passed for check in checks([off]))
