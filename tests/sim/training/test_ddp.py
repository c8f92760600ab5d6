import json
import os
from itertools import pairwise
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringside.sim.collective import Collective
from ringside.sim.libraries.library import LawError
from ringside.sim.libraries.rules import GLOO
from ringside.sim.program.groups import SimulatedGroup, TimedGroup
from ringside.sim.training.ddp.buckets import Bucketing, layout
from ringside.sim.training.ddp.job import Costs, DataParallel
from ringside.sim.training.ddp.simulate import simulate_step
from ringside.sim.training.ddp.step import TrainingStep
from ringside.sim.workload.workload import Layer, Tensor, Workload
from ringside.topologies import star
from tests.processes import python

HALF_MIB = 131072

EXACT = 1e-9


def linear(ranks: int = 4, alpha: float = 1e-3, beta: float = 1e-8, workers: int = 1) -> TimedGroup:
    return TimedGroup(ranks, lambda collective: alpha + beta * collective.nbytes, workers)


def sleeping(layers: int = 16, forward_s: float = 4e-3, backward_s: float = 25e-3) -> Workload:
    return Workload(
        "sleeping",
        tuple(Tensor(f"layer{i}.weight", HALF_MIB) for i in range(layers)),
        tuple(Layer(f"layer{i}", (i,), forward_s, backward_s) for i in reversed(range(layers))),
    )


@st.composite
def workloads(draw: st.DrawFn, buffers: bool = True) -> Workload:
    times = st.just(0.0) | st.floats(1e-9, 0.01)  # shorter ones round to no tick at all
    layers: list[Layer] = []
    parameters: list[Tensor] = []
    for number in range(draw(st.integers(1, 12))):
        own = draw(st.integers(0, 3))
        indices = range(len(parameters), len(parameters) + own)
        parameters += [
            Tensor(f"p{i}", draw(st.integers(0, 2**20)), draw(st.sampled_from(["float32", "bfloat16"])))
            for i in indices
        ]
        layers.append(Layer(f"layer{number}", tuple(indices)[::-1], draw(times), draw(times)))
    if not parameters:
        parameters.append(Tensor("p", 1))
        layers.append(Layer("last", (0,), draw(times), draw(times)))
    buffer = (Tensor("mean", draw(st.integers(0, 1000))),) if buffers and draw(st.booleans()) else ()
    return Workload("drawn", tuple(parameters), tuple(reversed(layers)), buffer, batch=3)


caps = st.one_of(st.none(), st.sampled_from([0.0, 0.01, 0.5, 1.0, 5.0, 25.0]))


@st.composite
def jobs(draw: st.DrawFn) -> DataParallel:
    return DataParallel(
        bucketing=Bucketing(draw(caps), draw(st.booleans()), draw(st.booleans()), draw(st.booleans())),
        gradient_as_bucket_view=draw(st.booleans()),
        broadcast_buffers=draw(st.booleans()),
        comm_hook=draw(st.sampled_from([None, "fp16_compress", "bf16_compress"])),
        accumulation=draw(st.integers(1, 3)),
        iteration=draw(st.integers(1, 4)),
    )


@st.composite
def costs(draw: st.DrawFn) -> Costs:
    return Costs(
        launch_s=draw(st.sampled_from([0.0, 2e-5, 3e-3])),
        memory_bandwidth=draw(st.sampled_from([inf, 1e12, 1e9])),
        contention=draw(st.sampled_from([0.0, 0.1, 0.5])),
        optimizer_s=draw(st.sampled_from([0.0, 2e-3])),
        slowdown=draw(st.dictionaries(st.integers(0, 3), st.floats(0.5, 2), max_size=3)),
    )


def fifo(workload: Workload, cap: float | None, group: TimedGroup, launch_s: float) -> list[float]:
    clock = sum(layer.forward_s for layer in reversed(workload.layers))
    arrived: dict[int, float] = {}
    for layer in workload.layers:
        clock += layer.backward_s
        arrived |= dict.fromkeys(layer.gradients, clock)
    launch, end, ends = 0.0, 0.0, []
    for bucket in layout(workload, Bucketing(cap), 3):
        launch = max(launch, *(arrived[index] for index in bucket.parameters))
        start = max(launch + launch_s, end)
        end = start + group.time(Collective("all_reduce", group.ranks, bucket.nbytes))
        ends.append(end)
    return [*ends, max(end, clock)]


@given(workloads(buffers=False), caps, st.sampled_from([0.0, 1e-4, 5e-3]))
def test_one_stream_without_contention_is_the_closed_form(
    workload: Workload, cap: float | None, launch_s: float
) -> None:
    group = linear()
    step = simulate_step(workload, group, DataParallel(bucketing=Bucketing(cap)), Costs(launch_s=launch_s))
    assert [*(bucket.finish_s for bucket in step.buckets), step.step_s] == pytest.approx(
        fifo(workload, cap, group, launch_s), rel=EXACT
    )


@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize("cap", [1, 5, 25])
def test_simulated_transfers_agree_with_the_closed_form_of_the_ring(ranks: int, cap: float) -> None:
    alpha, bandwidth = 1e-4, 12.5e6
    closed = TimedGroup(
        ranks, lambda c: 2 * (ranks - 1) * (alpha + c.nbytes / ranks / bandwidth) if c.nbytes else 0.0
    )
    simulated = SimulatedGroup(star(ranks, bandwidth=bandwidth, latency=alpha), ranks, "ideal", "ring")
    job = DataParallel(bucketing=Bucketing(cap))
    ours, theirs = (simulate_step(sleeping(), group, job) for group in (simulated, closed))
    assert [b.end_s for b in ours.buckets] == pytest.approx([b.end_s for b in theirs.buckets], rel=EXACT)
    assert ours.step_s == pytest.approx(theirs.step_s, rel=EXACT)


def test_exposed_communication_is_what_outlasts_backward() -> None:
    step = simulate_step(sleeping(), linear(beta=5e-8), DataParallel(bucketing=Bucketing(1)))
    assert step.exposed_s == pytest.approx(step.buckets[-1].end_s - 16 * 29e-3, rel=EXACT)
    assert step.overlap_efficiency == pytest.approx(1 - step.exposed_s / step.communication_s)
    assert step.step_s == pytest.approx(step.compute_s + step.exposed_s, rel=EXACT)


@given(workloads(), jobs(), costs(), st.integers(1, 3))
def test_laws_hold_on_every_step(workload: Workload, ddp: DataParallel, costs: Costs, workers: int) -> None:
    step = simulate_step(workload, linear(beta=2e-9, workers=workers), ddp, costs)
    assert step.step_s >= step.lower_s * (1 - EXACT)
    assert step.step_s <= step.upper_s * (1 + EXACT)
    assert 0 <= step.exposed_s <= step.step_s
    assert step.samples == 3 * ddp.accumulation * 4
    for run in (*step.buckets, *step.others):
        assert 0 <= run.ready_s <= run.launch_s <= run.start_s <= run.end_s <= run.finish_s <= step.step_s
    launches = [bucket.launch_s for bucket in step.buckets]
    assert launches == sorted(launches)
    for pace in step.paces:
        for earlier, later in pairwise(pace.spans):
            assert earlier.end <= later.start


@settings(max_examples=25)
@given(workloads(buffers=False), caps, st.integers(1, 5))
def test_laws_hold_with_simulated_transfers(workload: Workload, cap: float | None, ranks: int) -> None:
    group = SimulatedGroup(star(ranks, bandwidth=1e9, latency=1e-5), ranks, "gloo", workers=GLOO.workers)
    step = simulate_step(workload, group, DataParallel(bucketing=Bucketing(cap)))
    assert step.lower_s * (1 - EXACT) <= step.step_s <= step.upper_s * (1 + EXACT)


def test_a_process_group_quicker_than_its_own_bound_is_refused() -> None:
    class Impossible(TimedGroup):
        def bound(self, collective: Collective) -> float:
            return 2 * self.time(collective)

    with pytest.raises(LawError, match="below the traffic bound"):
        simulate_step(sleeping(), Impossible(4, lambda _: 1e-3))


def gloo(cap: float, workers: int) -> TrainingStep:
    group = SimulatedGroup(star(4, bandwidth=12.5e6, latency=1e-4), 4, "gloo", workers=workers)
    return simulate_step(sleeping(), group, DataParallel(bucketing=Bucketing(cap)))


def test_two_workers_carry_two_buckets_at_once_and_share_the_links() -> None:
    one, two = gloo(1, 1), gloo(1, GLOO.workers)
    assert all(
        later.start_s >= earlier.end_s for earlier, later in zip(one.buckets, one.buckets[1:], strict=False)
    )
    assert two.buckets[1].start_s == two.buckets[1].ready_s < two.buckets[0].end_s
    assert two.buckets[2].start_s >= min(two.buckets[0].end_s, two.buckets[1].end_s)
    alone = one.buckets[0].end_s - one.buckets[0].start_s
    assert two.buckets[0].end_s - two.buckets[0].start_s > 1.4 * alone
    assert two.step_s == pytest.approx(one.step_s, rel=0.01)


def test_a_straggler_holds_up_every_bucket() -> None:
    even = simulate_step(sleeping(), linear())
    slow = simulate_step(sleeping(), linear(), costs=Costs(slowdown={2: 1.5}))
    assert slow.compute_s == pytest.approx(1.5 * even.compute_s)
    assert [b.ready_s for b in slow.buckets] == pytest.approx([1.5 * b.ready_s for b in even.buckets])
    waiting = {pace.label: pace.total("wait") for pace in slow.paces}
    assert waiting["ranks 0-1, 3 alike"] > waiting["rank 2"]
    assert slow.exposed_s == waiting["rank 2"]


def test_contention_stretches_compute_only_while_a_collective_runs() -> None:
    free = simulate_step(sleeping(), linear(), DataParallel(bucketing=Bucketing(1)))
    step = simulate_step(sleeping(), linear(), DataParallel(bucketing=Bucketing(1)), Costs(contention=0.2))
    hidden = step.communication_s - step.exposed_s
    assert step.contention_s == pytest.approx(0.2 * hidden, rel=EXACT)
    assert step.forward_s == pytest.approx(free.forward_s, rel=EXACT)
    assert step.backward_s == pytest.approx(free.backward_s + step.contention_s, rel=EXACT)


SCRIPT = """
from ringside.sim.training.ddp.simulate import simulate_step
from ringside.sim.training.ddp.job import Costs, DataParallel
from ringside.sim.training.ddp.buckets import Bucketing
from ringside.sim.program.groups import SimulatedGroup
from ringside.sim.workload.workload import Layer, Tensor, Workload
from ringside.topologies import star
work = Workload("w", tuple(Tensor(f"p{i}", 40000 + i) for i in range(9)),
                tuple(Layer(f"l{i}", (i,), 1e-3, 2e-3) for i in reversed(range(9))))
group = SimulatedGroup(star(3, bandwidth=1e8, latency=1e-4), 3, "gloo", workers=2)
costs = Costs(contention=0.3, slowdown={1: 1.25}, launch_s=1e-4, memory_bandwidth=1e9)
print(simulate_step(work, group, DataParallel(bucketing=Bucketing(0.2)), costs).dumps(), end="")
"""


@pytest.mark.slow
def test_traces_are_the_same_under_different_hash_seeds() -> None:
    traces = {python("-c", SCRIPT, env=os.environ | {"PYTHONHASHSEED": seed}).stdout for seed in "12"}
    assert len(traces) == 1
    events = json.loads(traces.pop())["traceEvents"]
    tracks = {(e["pid"], e["args"]["name"]) for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    assert tracks == {
        (pid, name) for pid in (0, 1) for name in ("compute", "communication 0", "communication 1")
    }
