import time
from collections.abc import Iterable
from dataclasses import replace

import pytest

from ringside.sim.compute.prices import StackOnGpu, prices_on
from ringside.sim.libraries import nccl
from ringside.sim.libraries.nccl.library import Nccl
from ringside.sim.program.groups import ProcessGroup, TimedGroup, process_group
from ringside.sim.training.ddp.job import Costs, DataParallel
from ringside.sim.training.ddp.scaling import memory, recommended_cap, share_of
from ringside.sim.training.ddp.simulate import simulate_step
from ringside.sim.training.ddp.step import TrainingStep
from ringside.sim.training.memory.optimizers import OPTIMIZERS, find_optimizer
from ringside.sim.training.tensor.decoder import decoder_workload
from ringside.sim.workload.architecture import workload
from ringside.sim.workload.decoder import Decoder
from ringside.sim.workload.devices import device
from ringside.sim.workload.models import find_model
from ringside.sim.workload.workload import Layer, Tensor, Workload

CAPS = (1, 5, 10, 25, 50, 100, 200, 400)
LAYERS = 32
MODEL = Workload(
    "even",
    tuple(Tensor(f"p{i}", 2**18) for i in range(LAYERS)),
    tuple(Layer(f"l{i}", (i,), 1e-3, 2e-3, 1000) for i in reversed(range(LAYERS))),
    buffers=(Tensor("mean", 10),),
    batch=8,
)


def sweep_buckets(
    workload: Workload, group: ProcessGroup, caps_mb: Iterable[float], costs: Costs | None = None
) -> dict[float, TrainingStep]:
    plain = DataParallel()
    return {
        cap: simulate_step(
            workload, group, replace(plain, bucketing=replace(plain.bucketing, bucket_cap_mb=cap)), costs
        )
        for cap in caps_mb
    }


@pytest.mark.parametrize(
    ("model", "machine", "gpu", "nodes", "batch"),
    [("resnet50", "dgx-a100", "a100", 128, 64), ("gpt2-xl", "dgx-h100", "h100", 512, 4)],
)
def test_a_bucket_sweep_over_thousands_of_gpus_takes_seconds(
    model: str, machine: str, gpu: str, nodes: int, batch: int
) -> None:
    began = time.process_time()
    found = find_model(model)
    if isinstance(found, Decoder):
        work = decoder_workload(found, StackOnGpu(prices_on(device(gpu), "bf16")), batch, "float32")
    else:
        work = workload(found, device(gpu), batch, "bfloat16")
    many = process_group(Nccl(nccl.communicator(machine, nodes)))
    sweep = sweep_buckets(work, many, CAPS, costs=Costs(contention=0.1, memory_bandwidth=2e12))
    assert time.process_time() - began < 20
    assert recommended_cap(sweep) in CAPS
    assert all(step.ranks == 8 * nodes for step in sweep.values())


def test_small_buckets_pay_for_their_latency_and_one_bucket_hides_nothing() -> None:
    latency = TimedGroup(8, lambda c: 1e-2 + c.nbytes * 1e-9)
    sweep = sweep_buckets(MODEL, latency, (1, 4, 8, 1000))
    assert sweep[1].step_s > sweep[8].step_s < sweep[1000].step_s
    assert len(sweep[1000].buckets) == 1
    assert recommended_cap(sweep) in (4, 8)


def test_the_recommendation_stays_with_the_default_where_nothing_is_gained() -> None:
    free = TimedGroup(8, lambda c: 0.0)
    assert recommended_cap(sweep_buckets(MODEL, free, CAPS)) == 25
    with pytest.raises(ValueError, match="no bucket sizes"):
        recommended_cap({})


def test_ranks_share_a_batch_evenly_or_not_at_all() -> None:
    assert share_of(128, 8, 2) == 8
    with pytest.raises(ValueError, match="a batch of 100 on 8 ranks"):
        share_of(100, 8, 1)


def test_memory_of_one_gpu() -> None:
    adam = find_optimizer("adam")
    plain = memory(MODEL, DataParallel(), adam)
    viewed = memory(MODEL, DataParallel(gradient_as_bucket_view=True), adam)
    weights = LAYERS * 2**20
    assert (plain.parameters, plain.gradients, plain.buckets) == (weights, weights, weights)
    assert (plain.optimizer, plain.buffers, plain.activations) == (2 * weights, 40, LAYERS * 1000)
    assert plain.total == 5 * weights + 40 + LAYERS * 1000
    assert plain.total - viewed.total == weights
    assert adam.seconds(weights, 1e12) == pytest.approx(7 * weights / 1e12)
    assert [OPTIMIZERS[name].seconds(weights, 1e12) for name in ("sgd", "momentum")] == pytest.approx(
        [3 * weights / 1e12, 5 * weights / 1e12]
    )
    lamb = find_optimizer("lamb")
    assert (lamb.states, lamb.seconds(weights, 1e12)) == (2, pytest.approx(13 * weights / 1e12))
    with pytest.raises(ValueError, match="write one of sgd, momentum, adam, lamb"):
        find_optimizer("lion")
