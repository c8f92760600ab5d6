from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook

from ringside.real.model.architecture import architecture
from ringside.sim.program.groups import TimedGroup
from ringside.sim.training.ddp.buckets import Bucket, Bucketing, PowerSGD, compression
from ringside.sim.training.ddp.job import Costs, DataParallel
from ringside.sim.training.ddp.scaling import compression_nbytes, memory
from ringside.sim.training.ddp.simulate import HangError, simulate_step
from ringside.sim.training.ddp.step import TrainingStep
from ringside.sim.training.memory.optimizers import find_optimizer
from ringside.sim.workload.workload import Layer, Tensor, Workload

MODEL = nn.Sequential(nn.Linear(256, 256), nn.Linear(256, 64), nn.Linear(64, 8))
"""Whose single bucket torch's hook was seen to reduce as 328, 656 and 1152 elements at rank 2."""


def compressing(powersgd: PowerSGD, iteration: int | None = None, **caps: Any) -> DataParallel:
    return DataParallel(
        bucketing=Bucketing(**caps), comm_hook="powersgd", powersgd=powersgd, iteration=iteration
    )


def small() -> Workload:
    found = architecture(MODEL)
    layers = tuple(Layer(f"layer {index}", (index,), 1e-3, 2e-3) for index in reversed(range(6)))
    return Workload("small", found.parameters, layers)


def a_millisecond(ranks: int = 4, workers: int = 1) -> TimedGroup:
    return TimedGroup(ranks, lambda _: 1e-3, workers)


def run(ddp: DataParallel, costs: Costs | None = None, workers: int = 1) -> TrainingStep:
    return simulate_step(small(), a_millisecond(workers=workers), ddp, costs)


class Asked:
    """A group that keeps how much it was asked to sum, and has summed it already."""

    def __init__(self) -> None:
        self.counts: list[int] = []

    def size(self) -> int:
        return 2

    def allreduce(self, tensors: Sequence[torch.Tensor], options: Any) -> "Asked":
        self.counts.append(tensors[0].numel())
        self.done: torch.futures.Future[Any] = torch.futures.Future()
        self.done.set_result(list(tensors))
        return self

    def get_future(self) -> torch.futures.Future[Any]:
        return self.done


class Given:
    """A bucket of gradients of these shapes."""

    def __init__(self, shapes: Sequence[tuple[int, ...]]) -> None:
        tensors = [torch.randn(shape) for shape in shapes]
        self.data = torch.cat([tensor.reshape(-1) for tensor in tensors])
        parts = self.data.split([tensor.numel() for tensor in tensors])
        self.parts = [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]

    def index(self) -> int:
        return 0

    def is_last(self) -> bool:
        return True

    def buffer(self) -> torch.Tensor:
        return self.data

    def gradients(self) -> list[torch.Tensor]:
        return self.parts


def torchs_own(shapes: Sequence[tuple[int, ...]], powersgd: PowerSGD) -> tuple[list[int], int]:
    """Return the collectives of torch's hook in its third compressed step, and the bytes that it keeps."""
    group: Any = Asked()
    state = PowerSGDState(
        group, powersgd.rank, 2, powersgd.min_rate, powersgd.error_feedback, powersgd.warm_start, 1e-8,
        batch_tensors_with_same_shape=powersgd.batched,
    )  # fmt: skip
    state.iter = 2
    for _ in range(3):
        group.counts.clear()
        bucket: Any = Given(shapes)
        powerSGD_hook(state, bucket).wait()
    kept = (*state.error_dict.values(), *state.p_memory_dict.values(), *state.q_memory_dict.values())
    return group.counts, sum(tensor.nbytes for tensor in kept)


SHAPES = st.lists(
    st.one_of(
        st.tuples(st.integers(1, 40)),
        st.tuples(st.integers(1, 40), st.integers(1, 40)),
        st.tuples(st.integers(1, 24), st.integers(1, 8), st.integers(1, 3), st.integers(1, 3)),
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=60)
@given(SHAPES, st.integers(1, 6), st.sampled_from([0.5, 1.0, 2.0, 5.0]), *[st.booleans()] * 3)
def test_a_bucket_is_compressed_as_by_torch(
    shapes: list[tuple[int, ...]], rank: int, min_rate: float, feedback: bool, warm: bool, batched: bool
) -> None:
    powersgd = PowerSGD(
        rank=rank, min_rate=min_rate, error_feedback=feedback, warm_start=warm, batched=batched
    )
    counts, kept = torchs_own(shapes, powersgd)
    tensors = [
        Tensor(str(index), torch.Size(shape).numel(), rows=shape[0]) for index, shape in enumerate(shapes)
    ]
    bucket = Bucket(tuple(range(len(tensors))), sum(tensor.nbytes for tensor in tensors), "float32")
    found = compression(bucket, tensors, powersgd)
    assert [found.uncompressed, found.left, found.right] == counts
    assert found.kept_nbytes == kept


def test_a_step_reduces_what_torch_was_seen_to_reduce() -> None:
    powersgd = PowerSGD(rank=2, start=2)
    before = run(compressing(powersgd, iteration=2, bucket_cap_mb=25))
    assert [one.nbytes for one in before.buckets] == [82760 * 4]
    for iteration in (3, None):
        step = run(compressing(powersgd, iteration, bucket_cap_mb=25))
        assert [(one.name, one.nbytes // 4) for one in step.buckets] == [
            ("bucket 0", 328),
            ("bucket 0 P", 656),
            ("bucket 0 Q", 1152),
        ]


def test_nccl_waits_for_each_buckets_third_all_reduce_before_backward_goes_on() -> None:
    step = run(compressing(PowerSGD(), bucket_cap_mb=0.02))
    assert len(step.buckets) == 6
    assert step.exposed_s == pytest.approx(6e-3)
    assert step.step_s == pytest.approx(step.compute_s + 6e-3)
    plain = run(DataParallel(bucketing=Bucketing(0.02)))
    assert plain.exposed_s == pytest.approx(1e-3)


def test_gloo_goes_on_beside_the_third_all_reduce() -> None:
    step = run(compressing(PowerSGD(), bucket_cap_mb=25), workers=2)
    assert step.step_s == pytest.approx(step.compute_s + 3e-3)
    first, second, third = step.buckets
    assert (first.end_s, second.end_s) == pytest.approx((second.start_s, third.start_s))


def test_a_bucket_that_comes_while_another_needs_gloos_threads_hangs() -> None:
    ddp = compressing(PowerSGD(), bucket_cap_mb=0.02)
    slow = TimedGroup(4, lambda _: 5e-3, 2)
    with pytest.raises(HangError, match=r"hangs at bucket 1.*Gloo's 2.*write a larger `bucket_cap_mb`"):
        simulate_step(small(), slow, ddp)
    assert len(run(ddp, workers=2).buckets) == 6
    assert len(simulate_step(small(), TimedGroup(4, lambda _: 5e-3, 3), ddp).buckets) == 6


def test_an_all_reduce_of_nothing_is_none() -> None:
    biases = Workload("biases", (Tensor("a", 8), Tensor("b", 8)), (Layer("all", (1, 0), 1e-3, 1e-3),))
    step = simulate_step(biases, a_millisecond(), compressing(PowerSGD()))
    assert [one.name for one in step.buckets] == ["bucket 0"]


def test_more_rank_takes_more_operators_and_batches_fewer() -> None:
    costs = Costs(operator_s=1e-5)
    alike = Workload(
        "alike",
        tuple(Tensor(f"w{index}", 2**16, rows=2**8) for index in range(8)),
        tuple(Layer(f"l{index}", (index,), 1e-3, 1e-3) for index in reversed(range(8))),
    )

    def copy_s(**arguments: Any) -> float:
        ddp = compressing(PowerSGD(**arguments), bucket_cap_mb=25)
        return simulate_step(alike, a_millisecond(), ddp, costs).overhead_s

    assert copy_s(rank=1) < copy_s(rank=2) < copy_s(rank=4) < copy_s(rank=8)
    assert copy_s(rank=4, batched=True) < copy_s(rank=4) / 4
    assert copy_s(warm_start=False) > copy_s()
    assert copy_s(error_feedback=False) < copy_s()


def test_measured_stretches_take_the_place_of_reckoned_ones() -> None:
    costs = Costs(operator_s=1.0, hook_s=((1e-3, 2e-3, 3e-3, 4e-3),))
    step = run(compressing(PowerSGD(), bucket_cap_mb=25), costs)
    assert step.step_s == pytest.approx(step.compute_s + 3e-3 + 10e-3)


def test_memory_holds_the_errors_p_q_and_what_the_largest_bucket_needs() -> None:
    work, ddp = small(), compressing(PowerSGD(rank=2), bucket_cap_mb=25)
    found = compression_nbytes(work, ddp)
    assert found == (82760 + 656 + 1152) * 4 + (328 + 2 * 82760) * 4
    assert (
        memory(work, ddp, find_optimizer("sgd")).total
        - memory(work, DataParallel(bucketing=ddp.bucketing), find_optimizer("sgd")).total
        == found
    )
    assert compression_nbytes(work, compressing(PowerSGD(start=10), iteration=10)) == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"rank": 0}, "rank 0; write 1 or more"),
        ({"start": 1}, "iteration 1; write 2 or more, after buckets"),
        ({"start": -1, "error_feedback": False, "warm_start": False}, "write 0 or more"),
        ({"min_rate": 0}, "write more than 0"),
        ({"min_rate": float("nan")}, "write more than 0"),
    ],
)
def test_what_torch_refuses_is_refused(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        PowerSGD(**arguments)


@pytest.mark.parametrize(
    ("tensor", "words"), [(Tensor("a", 8, sparse=True), "a is sparse"), (Tensor("a", 0), "a has no elements")]
)
def test_gradients_that_are_no_matrices_are_refused(tensor: Tensor, words: str) -> None:
    work = Workload("odd", (tensor,), (Layer("all", (0,), 1e-3, 1e-3),))
    with pytest.raises(ValueError, match=words):
        simulate_step(work, a_millisecond(), compressing(PowerSGD()))
