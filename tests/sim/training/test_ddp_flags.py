from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringside.sim.libraries import nccl
from ringside.sim.libraries.nccl.library import LAUNCH_S, Nccl
from ringside.sim.program.groups import SimulatedGroup, TimedGroup, library_time
from ringside.sim.training.ddp.buckets import Bucketing
from ringside.sim.training.ddp.job import Costs, DataParallel, expected_maximum
from ringside.sim.training.ddp.simulate import simulate_step
from ringside.sim.training.ddp.step import TrainingStep
from ringside.sim.workload.workload import Layer, Tensor, Workload
from ringside.topologies import star

MIB = 2**20
SIXTEEN_LINEARS = Workload(  # 16 x Linear(1024, 1024): weight defined first, bias arrives first
    "linears",
    tuple(t for i in range(16) for t in (Tensor(f"{i}.weight", MIB), Tensor(f"{i}.bias", 1024))),
    tuple(Layer(f"{i}", (2 * i + 1, 2 * i), 1e-3, 2e-3) for i in reversed(range(16))),
    batch=8,
)
FORWARD_S, BACKWARD_S = 16e-3, 32e-3


def run(
    job: DataParallel | None = None, costs: Costs | None = None, workload: Workload = SIXTEEN_LINEARS
) -> TrainingStep:
    return simulate_step(workload, TimedGroup(4, lambda c: 1e-3 + c.nbytes * 1e-10), job, costs)


def sizes(step: TrainingStep) -> list[int]:
    return [bucket.nbytes for bucket in step.buckets]


def test_the_first_iteration_reduces_everything_at_once() -> None:
    step = run(DataParallel(iteration=1))
    assert sizes(step) == [67_174_400]
    assert step.buckets[0].ready_s == pytest.approx(FORWARD_S + BACKWARD_S)
    assert step.exposed_s == pytest.approx(step.communication_s)
    assert step.overlap_efficiency == pytest.approx(0)


def test_the_second_iteration_broadcasts_the_new_layout_first() -> None:
    second, third = run(DataParallel(iteration=2)), run(DataParallel(iteration=3))
    assert sizes(second) == sizes(third) == [4_198_400, 29_388_800, 29_388_800, 4_198_400]
    assert [(o.kind, o.nbytes) for o in second.others] == [("broadcast", 4 * 33), ("broadcast", 4 * 4)]
    assert third.others == ()
    assert second.step_s == pytest.approx(third.step_s + 2e-3 + 148e-10)


def test_a_static_graph_rebuilds_one_iteration_later_and_delays_the_first() -> None:
    jobs = [DataParallel(bucketing=Bucketing(static_graph=True), iteration=i) for i in (1, 2, 3, 4)]
    steps = [run(job, Costs(memory_bandwidth=1e12)) for job in jobs]
    assert [len(step.buckets) for step in steps] == [1, 1, 4, 4]
    kinds = [span.kind for span in steps[0].paces[0].spans]
    assert kinds.index("copy") > max(i for i, kind in enumerate(kinds) if kind == "backward")
    assert steps[0].step_s == pytest.approx(steps[1].step_s)
    assert len(steps[2].others) == 2


def test_unused_parameters_cost_one_more_all_reduce_and_the_small_bucket_comes_last() -> None:
    step = run(DataParallel(bucketing=Bucketing(find_unused_parameters=True)))
    assert sizes(step) == [4_202_496, 29_388_800, 29_388_800, 4_194_304]
    assert [(other.kind, other.nbytes) for other in step.others] == [("all_reduce", 4 * 32)]
    assert step.others[0].launch_s == step.buckets[-1].launch_s
    assert step.others[0].start_s >= step.buckets[-1].end_s
    assert step.step_s == step.others[0].end_s


def test_a_parameter_without_a_gradient_needs_a_flag() -> None:
    layers = tuple(replace(layer, gradients=layer.gradients[:1]) for layer in SIXTEEN_LINEARS.layers)
    partly = replace(SIXTEEN_LINEARS, layers=layers)
    for iteration in (1, 3):
        with pytest.raises(ValueError, match=r"no gradient arrives for 0\.weight.*find_unused_parameters"):
            run(DataParallel(iteration=iteration), workload=partly)
    for bucketing in (Bucketing(find_unused_parameters=True), Bucketing(static_graph=True)):
        step = run(DataParallel(bucketing=bucketing), workload=partly)
        assert sum(sizes(step)) == SIXTEEN_LINEARS.totals.nbytes


def test_an_early_bucket_waits_for_its_turn() -> None:
    work = Workload(
        "crossed",
        (Tensor("a", MIB), Tensor("b", MIB)),
        (Layer("la", (0,), 0.0, 1e-3), Layer("lb", (1,), 0.0, 1e-3)),
    )
    step = run(DataParallel(bucketing=Bucketing(1, find_unused_parameters=True)), workload=work)
    assert step.buckets[1].ready_s == pytest.approx(1e-3)
    assert step.buckets[1].launch_s == step.buckets[0].launch_s == pytest.approx(2e-3)


def test_no_sync_reduces_the_same_bytes_once() -> None:
    once, thrice = run(), run(DataParallel(accumulation=3, no_sync=True))
    assert sizes(once) == sizes(thrice)
    assert thrice.samples == 3 * once.samples == 3 * 8 * 4
    assert thrice.step_s == pytest.approx(once.step_s + 2 * (FORWARD_S + BACKWARD_S))


def test_buffers_are_broadcast_before_forward_and_once_a_step() -> None:
    work = replace(SIXTEEN_LINEARS, buffers=(Tensor("mean", MIB), Tensor("count", 1, "int64")))
    quiet = run(workload=work, job=DataParallel(broadcast_buffers=False, accumulation=2, no_sync=True))
    step = run(workload=work, job=DataParallel(accumulation=2, no_sync=True))
    assert [(o.kind, o.nbytes) for o in step.others] == [("broadcast", 4 * MIB), ("broadcast", 8)]
    assert quiet.others == ()
    assert step.step_s == pytest.approx(quiet.step_s + step.others[-1].end_s)


@given(st.integers(1, 4), st.booleans(), st.booleans(), st.sampled_from([None, 25.0, 1.0]))
@settings(max_examples=30)
def test_unless_told_otherwise_a_step_is_its_passes_one_after_another(
    passes: int, unused: bool, views: bool, cap: float | None
) -> None:
    """Each backward reduces all gradients and ends when they are there, as torch has it without no_sync."""
    work = replace(SIXTEEN_LINEARS, buffers=(Tensor("mean", MIB),))
    bucketing = Bucketing(cap, find_unused_parameters=unused)
    one, many = (
        run(
            DataParallel(bucketing=bucketing, gradient_as_bucket_view=views, accumulation=count),
            Costs(memory_bandwidth=1e12, contention=0.1, launch_s=1e-5), workload=work,
        )
        for count in (1, passes)
    )  # fmt: skip
    assert many.step_s == pytest.approx(passes * one.step_s)
    assert sizes(many) == passes * sizes(one)
    assert many.copy_s == pytest.approx(passes * one.copy_s)
    assert len(many.others) == passes * len(one.others)
    assert len({run.name for run in (*many.buckets, *many.others)}) == passes * len(
        (*one.buckets, *one.others)
    )
    assert many.samples == passes * one.samples


def test_at_most_two_chunks_of_buffers_are_on_their_way() -> None:
    work = replace(SIXTEEN_LINEARS, buffers=tuple(Tensor(f"b{i}", 70 * MIB) for i in range(4)))
    group = TimedGroup(4, lambda c: 1.0 if c.kind == "broadcast" else 1e-3, workers=4)
    starts = [other.start_s for other in simulate_step(work, group).others]
    assert starts == [0.0, 0.0, 1.0, 1.0]


@pytest.mark.parametrize("hook", ["fp16_compress", "bf16_compress"])
def test_compression_hooks_halve_the_bytes_and_pay_for_casts(hook: str) -> None:
    plain, step = run(), run(DataParallel(comm_hook=hook))
    assert [2 * nbytes for nbytes in sizes(step)] == sizes(plain)
    assert step.communication_s < plain.communication_s
    slow = run(DataParallel(comm_hook=hook), Costs(memory_bandwidth=1e11))
    packing = 67_174_400 * (1 + 0.5 + 1) / 1e11  # read 4, write 2, then read and write 2 bytes an element
    unpacking = 67_174_400 * (0.5 + 1) / 1e11
    copies = 67_174_400 * 4 / 1e11
    assert slow.copy_s == pytest.approx(packing + copies)
    assert slow.overhead_s == pytest.approx(packing + copies + unpacking)
    assert all(bucket.finish_s > bucket.end_s for bucket in slow.buckets)


def test_casting_to_the_dtype_that_gradients_have_is_free() -> None:
    half = replace(
        SIXTEEN_LINEARS,
        parameters=tuple(replace(tensor, dtype="bfloat16") for tensor in SIXTEEN_LINEARS.parameters),
    )
    job, costs = DataParallel(comm_hook="bf16_compress"), Costs(memory_bandwidth=1e11)
    assert run(job, costs, half).copy_s == pytest.approx(half.totals.nbytes * (2 + 2 + 2) / 1e11)


def test_views_of_the_bucket_spare_the_copy_back_and_with_a_hook_the_copy_in() -> None:
    costs = Costs(memory_bandwidth=1e11)
    copied, viewed = run(costs=costs), run(DataParallel(gradient_as_bucket_view=True), costs)
    assert copied.copy_s == pytest.approx(2 * viewed.copy_s) == pytest.approx(67_174_400 * 4 / 1e11)
    anew = DataParallel(gradient_as_bucket_view=True, comm_hook="fp16_compress")
    assert run(anew, costs).copy_s == pytest.approx(67_174_400 * 4.5 / 1e11), "gradients are made anew"
    assert run(replace(anew, set_to_none=False), costs).copy_s == pytest.approx(67_174_400 * 2.5 / 1e11)


def test_a_hook_that_only_divides_goes_over_each_bucket_once_more() -> None:
    costs = Costs(memory_bandwidth=1e11)
    hooked = run(DataParallel(comm_hook="allreduce"), costs)
    assert hooked.copy_s == pytest.approx(67_174_400 * 6 / 1e11)
    assert [bucket.nbytes for bucket in hooked.buckets] == [bucket.nbytes for bucket in run().buckets]


def test_all_wait_for_the_slowest_of_many_that_are_alike() -> None:
    even, spread = run(), run(costs=Costs(spread=0.02))
    assert spread.compute_s == pytest.approx(even.compute_s * (1 + 0.02 * expected_maximum(even.ranks)))
    draws = np.random.default_rng(0).standard_normal((100_000, 8)).max(axis=1)
    assert expected_maximum(8) == pytest.approx(draws.mean(), rel=0.02)
    assert expected_maximum(1) == pytest.approx(0, abs=1e-12)


def test_launch_delays_the_collective_and_not_the_compute() -> None:
    quick, slow = run(), run(costs=Costs(launch_s=5e-3))
    assert slow.backward_s == quick.backward_s
    assert slow.buckets[0].start_s == pytest.approx(quick.buckets[0].start_s + 5e-3)


def test_the_optimizer_ends_the_step() -> None:
    step = run(costs=Costs(optimizer_s=7e-3))
    assert step.step_s == pytest.approx(run().step_s + 7e-3)
    assert step.optimizer_s == pytest.approx(7e-3)


def test_the_launch_of_a_library_is_part_of_each_collective() -> None:
    graph = star(4, bandwidth=1e9, latency=1e-5)
    bare, costly = (simulate_step(SIXTEEN_LINEARS, SimulatedGroup(graph, 4, launch_s=s)) for s in (0.0, 4e-3))
    took = [[b.end_s - b.start_s for b in step.buckets] for step in (bare, costly)]
    assert took[1] == pytest.approx([seconds + 4e-3 for seconds in took[0]])


def test_the_tuners_time_stands_in_for_nccl() -> None:
    comm = nccl.communicator("dgx-h100", 4)
    step = simulate_step(SIXTEEN_LINEARS, TimedGroup(32, library_time(Nccl(comm))))
    believed = nccl.cost_table(comm, "all_reduce").choose(29_388_800).time_us * 1e-6
    assert step.buckets[1].end_s - step.buckets[1].start_s == pytest.approx(believed + LAUNCH_S)
    with pytest.raises(ValueError, match="4 ranks on nccl of 32"):
        simulate_step(SIXTEEN_LINEARS, TimedGroup(4, library_time(Nccl(comm))))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DataParallel(comm_hook="powerSGD"), r"write powersgd \(known: allreduce, fp16_compress"),
        (lambda: DataParallel(accumulation=0), "write 1 to 10000"),
        (lambda: DataParallel(iteration=0), "counted from 1"),
        (lambda: Costs(launch_s=-1), "launch_s is -1 s"),
        (lambda: Costs(memory_bandwidth=0), "write more than 0"),
        (lambda: Costs(contention=1), "from 0 to below 1"),
        (lambda: Costs(slowdown={0: 0}), "slowdown of 0 for rank 0"),
        (lambda: run(costs=Costs(slowdown={4: 2})), "allowed: ranks 0 to 3"),
        (lambda: TimedGroup(0, lambda _: 0.0), "0 ranks"),
        (lambda: TimedGroup(2, lambda _: 0.0, workers=0), "0 workers"),
        (lambda: SimulatedGroup(star(2), 3), "3 ranks, but"),
        (lambda: run(workload=replace(SIXTEEN_LINEARS, layers=(Layer("l"),))), "nothing to reduce"),
    ],
)
def test_what_makes_no_sense_is_refused(make: object, message: str) -> None:
    assert callable(make)
    with pytest.raises(ValueError, match=message):
        make()
