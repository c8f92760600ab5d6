from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._utils import _take_tensors

import ringside
from ringside.sim.program import Call
from ringside.sim.program.libraries import Libraries
from ringside.sim.training.ddp.data_parallel import CHUNK, broadcast_chunks, reduce_chunks
from ringside.sim.training.ddp.job import Costs
from ringside.sim.training.job import ParallelJob, workload_on_rank
from ringside.sim.training.layout import Layout, LayoutError
from ringside.sim.training.layout_mesh import mesh_of
from ringside.sim.training.memory.optimizers import find_optimizer
from ringside.sim.training.parallel import simulate_parallel
from ringside.sim.training.program import Writing
from ringside.sim.training.step import ParallelStep
from ringside.sim.workload.architecture import workload
from ringside.sim.workload.devices import device
from ringside.sim.workload.models import architecture
from ringside.sim.workload.workload import Tensor

COUNTS = st.lists(
    st.tuples(st.integers(1, 6_000_000), st.sampled_from(["float32", "float64"])), min_size=1, max_size=12
)


def tensors(counts: list[tuple[int, str]]) -> list[Tensor]:
    return [Tensor(str(index), count, dtype) for index, (count, dtype) in enumerate(counts)]


@settings(max_examples=60)
@given(COUNTS)
def test_gradients_are_summed_in_torchs_own_chunks(counts: list[tuple[int, str]]) -> None:
    light = [torch.empty(1, dtype=getattr(torch, dtype)).expand(count) for count, dtype in counts]
    own = [sum(one.numel() * one.element_size() for one in chunk) for chunk in _take_tensors(light, CHUNK)]
    assert sorted(nbytes for nbytes, _ in reduce_chunks(tensors(counts))) == sorted(own)


@settings(max_examples=60)
@given(COUNTS)
def test_parameters_are_broadcast_once_each_in_chunks_of_one_type(counts: list[tuple[int, str]]) -> None:
    found = list(broadcast_chunks(tensors(counts)))
    for dtype in ("float32", "float64"):
        nbytes = sum(one.nbytes for one in tensors(counts) if one.dtype == dtype)
        assert sum(size for size, of in found if of == dtype) == nbytes
    largest = max(one.nbytes for one in tensors(counts))
    assert all(nbytes < CHUNK + largest for nbytes, _ in found)


def test_a_chunk_is_closed_when_another_tensor_like_its_last_would_fill_it() -> None:
    third = CHUNK // 12 + 1
    assert [nbytes for nbytes, _ in broadcast_chunks(tensors([(third, "float32")] * 5))] == [
        2 * 4 * third, 2 * 4 * third, 4 * third,
    ]  # fmt: skip
    large = [nbytes for nbytes, _ in broadcast_chunks(tensors([(10, "float32"), (CHUNK, "float32")]))]
    assert large == [40 + 4 * CHUNK]


def job(strategy: str, ranks: int, model: str = "bert-base:64", operator_s: float = 0.0) -> ParallelJob:
    gpu = device("v100")
    layout = Layout(strategy=strategy, micro_batch=8)
    on_rank = workload_on_rank(workload(architecture(model), gpu, 8, "float16"), units=strategy == "fsdp")
    return ParallelJob(
        model=on_rank, layout=layout, mesh=mesh_of(layout, ranks, 8), batch=8,
        optimizer=find_optimizer("adam"), costs=Costs(memory_bandwidth=gpu.streaming, operator_s=operator_s),
    )  # fmt: skip


def simulated(strategy: str, ranks: int = 4, operator_s: float = 0.0) -> ParallelStep:
    libraries = Libraries("nccl", "dgx1-v100", {}, ranks)
    return simulate_parallel(job(strategy, ranks, operator_s=operator_s), libraries)


def test_a_step_broadcasts_passes_gathers_and_reduces() -> None:
    calls = [one for one in Writing(job("data_parallel", 4)).operations(0) if isinstance(one.action, Call)]
    kinds = [one.category for one in calls]
    assert list(dict.fromkeys(kinds)) == ["broadcast", "gather", "reduce"]
    assert kinds == sorted(kinds)
    own = job("data_parallel", 4).model
    sums = Counter[str]()
    for one in calls:
        assert isinstance(one.action, Call)
        sums[one.category] += one.action.collective.nbytes
    nbytes = 4 * own.num_parameters
    logits = 8 * 64 * 30522 * 2
    assert sums == {"broadcast": nbytes, "gather": 4 * logits, "reduce": nbytes}


def test_nothing_is_hidden_and_gpu_0_holds_the_outputs() -> None:
    step = simulated("data_parallel")
    (stage,) = step.stages
    assert stage.exposed_s == pytest.approx(stage.communication_s)
    assert stage.peak.by_pool["outputs"] == 4 * 8 * 64 * 30522 * 2


def test_it_is_slower_than_a_process_each_and_than_dealing_out() -> None:
    for ranks in (2, 4):
        ddp, fsdp, own = (simulated(one, ranks).step_s for one in ("ddp", "fsdp", "data_parallel"))
        assert max(ddp, fsdp) < own


def test_threads_under_one_lock_are_slower_the_more_they_are() -> None:
    free, locked = simulated("data_parallel").step_s, simulated("data_parallel", operator_s=5e-5).step_s
    assert locked > free
    more = simulated("data_parallel", 8, 5e-5).step_s - simulated("data_parallel", 8).step_s
    assert more > locked - free


def test_one_gpu_has_nothing_to_exchange() -> None:
    assert simulated("data_parallel", 1).step_s == simulated("ddp", 1).step_s


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"tp": 2}, "one process that copies a whole model; leave `tp` and `pp` out"),
        ({"pp": 2}, "one process that copies a whole model"),
        ({"no_sync": True}, "and FSDP, and `strategy` is data_parallel; leave it out"),
        ({"shard": 2}, "`shard` applies to hsdp"),
    ],
)
def test_what_it_cannot_do_is_refused(words: dict[str, int], message: str) -> None:
    with pytest.raises(LayoutError, match=message):
        ringside.train("resnet50", "dgx1-v100", strategy="data_parallel", **words)  # type: ignore[call-overload]


def test_several_machines_and_cpus_are_refused() -> None:
    with pytest.raises(LayoutError, match=r"one process, and 16 ranks are on machines of 8; write -g 8"):
        ringside.train("resnet50", "dgx1-v100:2", strategy="data_parallel")
    with pytest.raises(LayoutError, match="runs on GPUs, but Gloo on CPUs"):
        ringside.train("resnet50", "dgx1-v100", strategy="data_parallel", library="gloo")


@pytest.mark.slow
def test_a_whole_batch_passes_at_once_unless_told() -> None:
    whole = ringside.train("resnet50", "dgx1-v100", strategy="data_parallel", batch=16)
    halves = ringside.train("resnet50", "dgx1-v100", strategy="data_parallel", batch=16, micro_batch=8)
    assert (whole.micro_batches, halves.micro_batches) == (1, 2)
    assert halves.step_s > whole.step_s
