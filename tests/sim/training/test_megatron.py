"""Megatron-LM's data parallelism: messages, memory, and their order."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringside.sim.program import Call
from ringside.sim.training.program import Writing
from ringside.sim.training.strategies import MEGATRON
from ringside.sim.training.zero.distributed_optimizer import DistributedOptimizer, Moved, bucket_size
from ringside.validation.questions.step_time import StepTime
from tests.sim.training.zero_steps import SMALL, calls, job, made, pools, rank, step


def test_megatron_exchanges_all_at_once_unless_told_to_overlap() -> None:
    """One reduce-scatter behind all passes and one all-gather behind the optimizer, on every stage."""
    writing = job("distributed_optimizer", decoder=replace(SMALL, layers=16), pp=2)
    for number in (0, 4):
        operations = list(writing.operations(number))
        kinds = [one.category for one in operations]
        assert (kinds.count("reduce_scatter"), kinds.count("all_gather")) == (1, 1)
        last = max(place for place, kind in enumerate(kinds) if kind in ("forward", "backward"))
        assert last < kinds.index("reduce_scatter") < kinds.index("optimizer") < kinds.index("all_gather")


def test_megatron_has_several_buckets_on_the_first_stage_alone() -> None:
    writing = job(
        "distributed_optimizer", decoder=replace(SMALL, layers=16), pp=2, overlap_grad_reduce=True,
        overlap_param_gather=True,
    )  # fmt: skip
    first, second = (
        Counter(kind for kind, _ in calls(list(writing.operations(number)))) for number in (0, 4)
    )
    assert first["reduce_scatter"] == first["all_gather"] == 3
    assert second["reduce_scatter"] == second["all_gather"] == 1
    assert bucket_size(8) == 40_000_000
    assert bucket_size(1024) == 1_024_000_000


def test_megatron_gathers_the_next_bucket_when_one_is_used_and_reduces_early() -> None:
    layers = made(4, 1000)
    own = rank()
    operations = step(DistributedOptimizer(own, layers, bucket_size=2000), own, layers, 2)
    names = [operation.name for operation in operations]
    assert calls(operations) == [("all_gather", 4096)] * 2 + [("reduce_scatter", 8192)] * 2
    assert names.index("layer 0, micro-batch 0") > names.index("all-gather of parameters")
    reduced = names.index("reduce-scatter of gradients")
    # after the last two layers' backward of the last micro-batch, before that of the first two
    after = [operation.name for operation in operations[reduced:] if operation.name.startswith("layer")]
    assert after == ["layer 1, micro-batch 1", "layer 0, micro-batch 1"]


@given(
    st.sampled_from([1, 2, 4]), st.sampled_from([None, "bfloat16"]), st.booleans(),
    st.sampled_from([{}, {"pp": 2}, {"tp": 2, "sequence_parallel": True}]),
)  # fmt: skip
def test_megatron_without_its_distributed_optimizer_sums_all_and_updates_all(
    data: int, dtype: str | None, early: bool, words: dict[str, int]
) -> None:
    """On one rank both strategies are the same; on several, copies are whole, or dealt out."""
    ranks = data * words.get("pp", 1) * words.get("tp", 1)
    whole, dealt_out = (
        job(one, ranks=ranks, reduce_dtype=dtype, overlap_grad_reduce=early, **words) for one in MEGATRON
    )
    count, size = pools(whole)["parameters"] // 2, 2 if dtype else 4
    assert pools(whole) == {"parameters": 2 * count, "gradients": size * count, "float32 copies": 4 * count,
                            "optimizer": 8 * count}  # fmt: skip
    if data == 1:
        assert repr(whole.operations(0)) == repr(dealt_out.operations(0))
    else:
        along = whole.job.mesh.together(0, "replicate")
        summed = [
            (call.collective.kind, call.collective.nbytes) for operation in whole.operations(0)
            if isinstance(call := operation.action, Call) and call.group.ranks == along
        ]  # fmt: skip
        assert sum(nbytes for _, nbytes in summed) == size * count
        assert {kind for kind, _ in summed} == {"all_reduce"}
        assert pools(dealt_out)["optimizer"] == pytest.approx(8 * count / data, rel=1e-4)


def test_megatron_in_float32_has_no_copies() -> None:
    writing = job("megatron_ddp")
    count = pools(writing)["parameters"] // 2
    found = pools(Writing(replace(writing.job, precision="float32")))
    assert found == {"parameters": 4 * count, "gradients": 4 * count, "optimizer": 8 * count}


@given(st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2]), st.booleans())
def test_instances_of_the_distributed_optimizer_divide_it_within_and_sum_across(
    shard: int, context: int, early: bool
) -> None:
    words = {"shard": shard, "cp": context, "overlap_grad_reduce": early}
    writing = job("distributed_optimizer", ranks=8 * context, **words)
    held, own = pools(writing), shard * context
    count = held["parameters"] // 2
    padded = held["optimizer"] * own // 8
    assert count <= padded <= count + 8 * 128 * own
    by_group = Counter[tuple[str, int]]()
    for operation in writing.operations(0):
        if isinstance(operation.action, Call) and operation.action.collective.nbytes > 1000:
            collective = operation.action.collective
            by_group[collective.kind, len(operation.action.group.ranks)] += collective.nbytes
    exchanged = {
        key: nbytes for key, nbytes in by_group.items() if key[0] in ("reduce_scatter", "all_reduce")
    }
    wanted = {("reduce_scatter", own): 4 * padded} if own > 1 else {}
    if shard < 8:
        wanted["all_reduce", 8 // shard] = 4 * padded // own
    assert exchanged == wanted
    kinds = [one.category for one in writing.operations(0)]
    if own > 1 and shard < 8:
        assert kinds.index("reduce_scatter") < kinds.index("all_reduce") < kinds.index("all_gather")


def test_a_stage_s_buckets_are_gathered_ahead_of_stages_behind_the_next() -> None:
    """Of several stages on a rank the first two begin with the step, each other one with the one before."""
    writing = job(
        "distributed_optimizer", decoder=replace(SMALL, layers=8), pp=2, schedule="interleaved1f1b",
        virtual=4, micro_batch=1, batch=4, overlap_grad_reduce=True, overlap_param_gather=True,
    )  # fmt: skip
    operations = list(writing.operations(4))
    kinds = [one.category for one in operations]
    computed = kinds.index("forward")
    assert kinds[:computed].count("all_gather") == 2
    assert kinds.count("all_gather") == 4


def test_stages_send_parts_of_tensors_and_gather_them_with_megatron_of_2021() -> None:
    whole, parts = (
        StepTime(
            model="gpt2-medium:1024", cluster="dgx-a100:1", stack=stack, strategy="megatron_ddp", tp=2, pp=4,
            precision="fp16", dtype="fp16", batch=4, micro_batch=1,
        ).job
        for stack in ("te", "megatron")
    )  # fmt: skip
    assert [2 * one for one in parts.between_nbytes] == list(whole.between_nbytes)
    assert whole.receives(1) == ((), ())
    gathered = [
        [part.collective.nbytes for made in parts.receives(stage) for part in made] for stage in range(4)
    ]
    nbytes = whole.between_nbytes[0]
    assert gathered == [[nbytes], [nbytes] * 2, [nbytes] * 2, [nbytes]]


def test_megatron_moves_gradients_and_parameters_around_its_optimizer() -> None:
    assert Moved.by(100, 10, "float32", "bfloat16") == Moved(0, 0, 60, 400)
    assert Moved.by(100, 10, "float16", "float16") == Moved(60, 80, 60, 200)
    assert Moved.by(100, 100, "float32", "float32") == Moved(0, 0, 0, 400)
