"""Experts' exchanges behind another micro-batch's passes: the same work, and no longer a step."""

from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringside.sim.program import Call, Compute
from ringside.sim.training.layout import Layout, LayoutError
from ringside.sim.training.program import Writing
from ringside.validation.questions.step_time import StepTime

LAYOUTS = [
    {"ranks": 16},
    {"ranks": 16, "strategy": "megatron_ddp"},
    {"ranks": 16, "pp": 2, "schedule": "dualpipev"},
    {"ranks": 16, "pp": 2, "strategy": "distributed_optimizer", "schedule": "interleaved1f1b", "virtual": 2},
    {"ranks": 16, "pp": 4, "strategy": "distributed_optimizer", "schedule": "interleaved1f1b", "virtual": 2,
     "overlap_grad_reduce": True, "overlap_param_gather": True},
]  # fmt: skip


def training(overlaps: bool, micro_batches: int = 8, **words: object) -> StepTime:
    return StepTime(
        model="mixtral-8x7b:512,layers=8", cluster="dgx-h100:2", ep=4, micro_batch=1, batch=micro_batches,
        overlap_experts=overlaps, **words,
    )  # fmt: skip


def work(question: StepTime, rank: int) -> tuple[float, Counter[tuple[str, int, int]], Counter[str]]:
    """Return a rank's seconds of compute, its collectives, and what it allocates less what it frees."""
    seconds, calls, pools = 0.0, Counter[tuple[str, int, int]](), Counter[str]()
    for operation in Writing(question.job).operations(rank):
        action = operation.action
        if isinstance(action, Compute):
            seconds += action.seconds
        elif isinstance(action, Call):
            calls[action.collective.kind, len(action.group.ranks), action.collective.nbytes] += 1
        for pool, nbytes in operation.memory:
            pools[pool] += nbytes
    return seconds, calls, pools


@settings(max_examples=12)
@given(st.sampled_from(LAYOUTS), st.sampled_from([4, 8, 12]), st.sampled_from(["alltoall", "deepep"]))
def test_the_same_work_takes_no_longer(words, micro_batches, dispatcher) -> None:
    words = {**words, "dispatcher": dispatcher, "precision": "bf16"}
    plain, hidden = (training(overlaps, micro_batches, **words) for overlaps in (False, True))
    for rank in (0, 15):
        before, after = work(plain, rank), work(hidden, rank)
        assert after[0] == pytest.approx(before[0])
        assert after[1:] == before[1:]
    slow, fast = plain.step(), hidden.step()
    # in a pipeline a pair's messages leave at its end, and one more forward is ahead
    assert fast.step_s <= slow.step_s * (1.02 if "pp" in words else 1 + 1e-9)
    assert fast.step_s >= work(hidden, 0)[0]


@pytest.mark.parametrize("dispatcher", ["alltoall", "deepep"])
def test_most_exchanges_between_machines_hide_behind_as_much_compute(dispatcher: str) -> None:
    plain, hidden = (
        StepTime(
            model="deepseek-v2:4096,layers=4", cluster="dgx-h100:2", ep=16, dispatcher=dispatcher,
            strategy="distributed_optimizer", precision="bf16", micro_batch=1, batch=16, contention=0.0,
            overlap_experts=overlaps,
        ).step()
        for overlaps in (False, True)
    )  # fmt: skip
    assert hidden.exposed_s < plain.exposed_s / 2


def test_a_micro_batch_alone_hides_nothing() -> None:
    plain, hidden = (training(overlaps, 1, ranks=16).step() for overlaps in (False, True))
    assert hidden.step_s == pytest.approx(plain.step_s)


def test_tokens_leave_with_their_probabilities_and_counts_are_waited_for_at_once() -> None:
    """Each pass of a layer has two turns of another's compute: behind its dispatch, and its combine."""
    operations = Writing(training(True, 2, ranks=16, strategy="megatron_ddp").job).operations(0)
    for name in ("forward of layer 1, micro-batch 1", "backward of layer 1, micro-batch 0"):
        kinds = [(place, one.category) for place, one in enumerate(operations) if one.name == name]
        sends = [place for place, kind in kinds if kind == "all_to_all"]
        counts = [place for place, kind in kinds if kind == "all_gather"]
        gaps = sorted(second - first for first, second in pairwise(sends))
        assert len(sends) == 3
        assert gaps[0] == 1 < gaps[1]
        assert [operations[place + 1].name for place in counts] == [f"wait for {name}"] * len(counts)
        assert len(counts) == name.startswith("forward")


def test_the_all_gather_dispatcher_hides_nothing() -> None:
    with pytest.raises(LayoutError, match="write `dispatcher` alltoall or deepep"):
        Layout(ep=2, dispatcher="allgather", overlap_experts=True)
