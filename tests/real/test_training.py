"""Real training steps: their communication equals the program's, and differences are reported."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringside.real.training.job import ExpertLayers, Sleeping, SmallDecoder, TrainingJob
from ringside.real.training.record import MeasuredRankStep, Said, TrainingRecord, measure_training, read
from ringside.sim.record import RecordError
from ringside.sim.training.mesh import DATA
from ringside.validation.training.compare import CommunicationCall, compare_training, planned, seen
from ringside.validation.training.program import program_of
from tests.tiers import slow_or_proof

TINY = Sleeping(layers=4, hidden=16, inner=16, rows=4, forward_s=2e-3, backward_s=4e-3)
ROUTED = ExpertLayers(hidden=8, inner=4, rows=6, experts=4, forward_s=2e-3, backward_s=4e-3)
JOBS = {
    "fsdp": TrainingJob(model=SmallDecoder(), shard=2, micro_batches=2),
    "fsdp under no_sync": TrainingJob(model=TINY, shard=2, micro_batches=3, no_sync=True),
    "fsdp kept": TrainingJob(model=TINY, shard=2, reshard=False, param_dtype="bfloat16"),
    "1f1b": TrainingJob(model=TINY, pipeline=2, micro_batches=3),
    "zbv": TrainingJob(model=TINY, pipeline=2, micro_batches=4, schedule="zbv", virtual=2),
    "tensor": TrainingJob(model=SmallDecoder(), tensor=2, sequence_parallel=True),
    "zigzag": TrainingJob(model=SmallDecoder(), context=2),
    "all-gather x fsdp": TrainingJob(model=TINY, context=2, shard=2, context_method="all-gather"),
    "ring": TrainingJob(model=TINY, context=2, context_method="ring", micro_batches=2),
    "ulysses": TrainingJob(model=SmallDecoder(), context=2, context_method="ulysses"),
    "fsdp x tensor": TrainingJob(model=SmallDecoder(), shard=2, tensor=2),
    "experts": TrainingJob(model=ROUTED, replicate=2, expert=2, micro_batches=2),
    "experts of one rank alone": TrainingJob(model=replace(ROUTED, skew=1.0), replicate=2, expert=2),
    "experts in pairs": TrainingJob(model=replace(ROUTED, skew=0.5), replicate=4, expert=2),
    "experts on each rank": TrainingJob(model=ROUTED, replicate=2),
    "zero redundancy": TrainingJob(model=TINY, strategy="zero_redundancy", replicate=3, micro_batches=2),
    "zero redundancy under no_sync": TrainingJob(
        model=TINY, strategy="zero_redundancy", replicate=2, micro_batches=3, no_sync=True
    ),
    "zero redundancy of a decoder": TrainingJob(
        model=SmallDecoder(), strategy="zero_redundancy", replicate=2
    ),
}


@pytest.mark.gloo
@pytest.mark.parametrize(
    "name", slow_or_proof(JOBS, ["fsdp", "1f1b", "tensor", "ring", "experts", "zero redundancy"])
)
def test_real_ranks_say_what_their_program_says(name, written):
    # DistributedDataParallel rebuilds its buckets before the second step
    job = replace(JOBS[name], iterations=1, warmup=2 if JOBS[name].strategy == "zero_redundancy" else 1)
    found = measure_training(job)
    compared = compare_training(found)
    assert not compared.differences
    assert compared.same_order
    assert compared.same_bytes
    assert compared.predicted_s is None
    for rank in found.median:
        assert all(rank.begin_s <= one.begin_s <= one.end_s <= rank.end_s for one in rank.said)
    file = written(found.dumps(), "steps.json")
    assert read(file) == found


@pytest.mark.gloo
@pytest.mark.parametrize(
    "name",
    slow_or_proof([name for name in JOBS if JOBS[name].data_independent], ["ring"]),
)
def test_ranks_on_fake_process_groups_make_the_same_calls(name):
    job = replace(JOBS[name], iterations=1, warmup=2, moves=False)
    record = measure_training(job)
    assert not compare_training(record).differences
    if job.strategy == "fsdp":
        # every call is waited for within the step, on fake process groups too
        assert all(call.end_s < rank.end_s for rank in record.median for call in rank.said)


@pytest.mark.proof
@pytest.mark.gloo
def test_stages_that_share_parameters_gather_ahead_and_reduce_once():
    job = TrainingJob(
        model=TINY, pipeline=2, shard=2, micro_batches=2, schedule="interleaved1f1b", virtual=2,
        iterations=1, warmup=1,
    )  # fmt: skip
    assert not compare_training(measure_training(job)).differences


@pytest.mark.parametrize("schedule", ["1f1b", "interleaved1f1b", "zbv", "looped_bfs"])
def test_stages_reduce_once_however_many_micro_batches_there_are(schedule):
    virtual = 1 if schedule == "1f1b" else 2
    job = TrainingJob(model=TINY, pipeline=2, shard=2, micro_batches=4, schedule=schedule, virtual=virtual)
    for asked in planned(program_of(job)):
        kinds = [one.kind for one in asked]
        assert kinds.count("reduce_scatter") == TINY.layers // 2


def test_a_decoder_on_tensor_parallel_ranks_asks_as_often_as_torch_was_seen_to():
    """Counts of torch 2.13 by CommDebugMode: 2L+1 and 5L+1 all-reduces, one all-gather of the logits."""
    for layers in (1, 2, 5):
        (asked, _) = planned(program_of(TrainingJob(model=SmallDecoder(layers=layers), tensor=2)))
        kinds = [one.kind for one in asked]
        assert kinds.count("all_reduce") == 2 * layers + 1 + 5 * layers + 1
        assert kinds.count("all_gather") == 1


@given(st.integers(1, 9), st.integers(1, 3), st.floats(0, 1), st.sampled_from([1, 2, 3, 6]))
def test_all_tokens_reach_all_their_experts(rows, active, skew, ranks):
    model = ExpertLayers(rows=rows, active=active, skew=skew, experts=6)
    for rank in range(ranks):
        assert sum(model.counts(rank)) == rows * active
        assert all(len(set(token)) == active for token in model.choices(rank))
    assert sum(model.load(rank, ranks) for rank in range(ranks)) == pytest.approx(ranks)


def test_an_uneven_all_to_all_is_each_ranks_own_bytes():
    job = TrainingJob(model=replace(ROUTED, skew=1.0, layers=1), replicate=2, expert=2)
    first, second = planned(program_of(job))
    there = [one.nbytes for one in first if one.kind == "all_to_all"]
    # 6 tokens of 8 elements go out twice, and their results come back from the one rank that has them
    assert there == [384, 48, 768, 384, 96, 768]
    assert [one.nbytes for one in second if one.kind == "all_to_all"] == [384, 48, 0, 384, 0, 0]


def made_up(job):
    """Make steps whose communication is the program's."""
    step = tuple(
        MeasuredRankStep(
            0.0, 1.0, tuple(Said(one.kind, one.nbytes, "float32", (0, 1), -1, 0.0, 1.0) for one in asked)
        )
        for asked in planned(program_of(job))
    )
    return TrainingRecord(job=job, steps=(step, step), fingerprint={})


def test_any_other_order_and_any_other_size_is_told():
    record = made_up(JOBS["fsdp kept"])
    assert not compare_training(record).differences
    first, second = record.steps[1]
    *most, last = second.said
    another = second._replace(said=(last, *most))
    turned = compare_training(replace(record, steps=(record.steps[0], (first, another))))
    assert not turned.same_order
    assert turned.differences[0].startswith("rank 1, number 0: reduce_scatter of")
    larger = second._replace(said=(*most, last._replace(nbytes=last.nbytes + 4)))
    grown = compare_training(replace(record, steps=(record.steps[0], (first, larger))))
    assert grown.same_order
    assert not grown.same_bytes
    short = second._replace(said=tuple(most))
    cut = compare_training(replace(record, steps=(record.steps[0], (first, short))))
    assert "nothing, where the program has reduce_scatter" in cut.differences[0]


@pytest.mark.parametrize("sync_each", [True, False])
@pytest.mark.parametrize("name", JOBS)
def test_records_of_before_say_how_they_were_run(name, sync_each, written):
    """They had ``sync_each``, false unless asked, which said nothing where nothing is accumulated."""
    job = replace(JOBS[name], no_sync=False)
    record = json.loads(made_up(job).dumps())
    del record["job"]["no_sync"]
    record["job"]["sync_each"] = sync_each
    file = written(json.dumps(record), "steps.json")
    accumulates = job.micro_batches > 1 and job.pipeline == 1 and job.mesh.degree(*DATA) > 1
    expected = accumulates and not sync_each and job.model.kind != "experts"
    assert read(file).job == replace(job, no_sync=expected)


def test_a_message_names_its_other_end():
    step = (MeasuredRankStep(0, 1, (Said("send", 8, "float32", (0, 1), 1, 0, 1),)),)
    assert seen(step) == ((CommunicationCall("send", 8, (1,)),),)
    assert str(seen(step)[0][0]) == "send of 8 bytes to 1"


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ({}, "one rank does not communicate"),
        ({"pipeline": 2, "schedule": "zb"}, "unknown torch schedule 'zb'; write one of gpipe"),
        ({"pipeline": 4, "micro_batches": 3}, "torch's 1f1b on 4 ranks needs 4 or more"),
        ({"pipeline": 2, "schedule": "zbv", "micro_batches": 4}, "zbv has 2 per rank, not 1"),
        ({"pipeline": 2, "virtual": 2, "micro_batches": 4}, "1f1b has 1 per rank, not 2"),
        ({"pipeline": 16, "micro_batches": 16}, "8 layers on 16 stages leave some without a layer"),
        ({"shard": 2, "virtual": 2}, "2 stages per rank, but no pipeline"),
        ({"tensor": 3}, "3 tensor-parallel ranks do not divide inner 512"),
        ({"tensor": 2, "model": SmallDecoder(heads=3)}, "3 heads do not divide hidden 64"),
        ({"shard": 2, "param_dtype": "int8"}, "unknown dtype 'int8'"),
        ({"shard": 2, "iterations": 0}, "0 iterations"),
        ({"shard": 2, "timeout_s": 0}, "a timeout of 0 s"),
        ({"shard": 2, "micro_batches": 0}, "0 micro-batches"),
        ({"shard": 0}, "0 ranks along shard"),
        ({"shard": 2, "expert": 2}, "sleeping layers have no experts; write `model` experts"),
        (
            {"replicate": 3, "expert": 2, "model": ROUTED},
            "2 expert-parallel times .* do not divide 3",
        ),
        ({"replicate": 3, "expert": 3, "model": ROUTED}, "4 experts do not divide by 3"),
        ({"replicate": 2, "tensor": 2, "model": ROUTED}, "`tp` cannot be combined with expert layers"),
        (
            {"replicate": 2, "no_sync": True, "model": ROUTED},
            "`no_sync` cannot be combined with expert layers",
        ),
        (
            {"replicate": 2, "strategy": "zero4"},
            "unknown strategy .*; write one of fsdp, ddp, zero_redundancy",
        ),
        ({"shard": 2, "strategy": "zero_redundancy"}, "leave `tp`, `cp`, `pp` and `shard` out"),
        (
            {"replicate": 2, "strategy": "zero_redundancy", "reshard": False},
            "zero_redundancy shards no parameters",
        ),
        ({"replicate": 2, "strategy": "zero_redundancy", "warmup": 1}, "so write 2 or more"),
    ],
)
def test_jobs_that_cannot_be_are_refused(words, complaint):
    with pytest.raises(ValueError, match=complaint):
        TrainingJob(**words)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('{"schema": "ringside.training/1"', "cannot be read"),
        ('{"schema": "ringside.ddp/1"}', "no ringside.training/1 file"),
        ('{"schema": "ringside.training/1", "job": {"shard": "many"}}', "job.shard: Input should be"),
        ('{"schema": "ringside.training/1", "job": {"shard": 2}, "steps": [], "fingerprint": {}}',
         "no step with all of its ranks"),
    ],
)  # fmt: skip
def test_a_file_that_holds_no_such_steps_is_refused(written, text, complaint):
    file = written(text, "steps.json")
    with pytest.raises(RecordError, match=complaint):
        read(file)
