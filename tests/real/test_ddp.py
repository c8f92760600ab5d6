import json

import pytest

from ringside.real.ddp.job import DdpJob
from ringside.real.ddp.measure import measure_ddp, step_of
from ringside.real.launch.follow import MeasureError
from ringside.sim.program.groups import TimedGroup
from ringside.sim.training.ddp.buckets import Bucketing, PowerSGD, layout
from ringside.sim.training.ddp.job import Costs, DataParallel
from ringside.sim.training.ddp.simulate import simulate_step
from ringside.sim.workload.workload import Layer, Tensor, Workload
from tests.tiers import slow_or_proof

LAYERS = 6
WORKLOAD = Workload(
    "six layers",
    tuple(Tensor(f"p{i}", 2**17) for i in range(LAYERS)),
    tuple(Layer(f"l{i}", (i,), 2e-3, 10e-3) for i in reversed(range(LAYERS))),
    batch=3,
)


def seen(begin, ready, launch, finish, end):
    buckets = [
        {"parameters": [i], "nbytes": 4, "ready": r, "launch": a, "finish": f}
        for i, (r, a, f) in enumerate(zip(ready, launch, finish, strict=True))
    ]
    spans = [
        [begin, begin + 1, "forward", "l"],
        [begin + 1, begin + 3, "backward", "l"],
        [begin + 3, end, "wait", "w"],
    ]
    return {"begin": begin, "end": end, "spans": spans, "buckets": buckets}


def test_a_bucket_is_as_late_as_on_its_last_rank_and_starts_when_a_worker_is_free():
    everybody = [seen(10, [11, 12], [11, 12], [14, 15], 15.5), seen(10.5, [12, 12], [12.5, 13], [14, 16], 16)]
    one = step_of(WORKLOAD, everybody, workers=1)
    assert [(b.ready_s, b.launch_s, b.start_s, b.end_s) for b in one.buckets] == [
        (2, 2.5, 2.5, 4),
        (2, 3, 4, 6),
    ]
    assert (one.step_s, one.compute_s, one.exposed_s, one.communication_s) == (6, 3, 2.5, 3.5)
    assert one.samples == 6
    two = step_of(WORKLOAD, everybody, workers=2)
    assert [b.start_s for b in two.buckets] == [2.5, 3]


@pytest.mark.gloo
@pytest.mark.parametrize("workers", slow_or_proof([2, 1]))
def test_real_ddp_under_torchrun_has_the_buckets_and_the_trace_that_simulated_steps_have(workers):
    bucketing = Bucketing(1)
    measured = measure_ddp(WORKLOAD, DdpJob(bucketing=bucketing, workers=workers, iterations=2), 2)
    assert [set(b.parameters) for b in measured.buckets] == [
        set(b.parameters) for b in layout(WORKLOAD, bucketing, 3)
    ]
    assert len(measured.steps) == 2
    step = measured.median
    assert step.compute_s == pytest.approx(LAYERS * 12e-3, rel=1e-6)
    assert step.step_s >= step.compute_s
    for bucket in step.buckets:
        assert 0 < bucket.ready_s <= bucket.launch_s <= bucket.start_s <= bucket.finish_s <= step.step_s
    events = json.loads(step.dumps())["traceEvents"]
    assert {event["cat"] for event in events if event["ph"] == "X"} == {
        "forward", "backward", "wait", "all_reduce"
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.gloo
def test_ranks_that_fail_are_reported_with_what_they_wrote():
    job = DdpJob(bucketing=Bucketing(1), timeout_s=5)
    unused = Workload("no gradients", (Tensor("p", 4), Tensor("q", 4)), (Layer("l", (0,)),))
    with pytest.raises(MeasureError, match="rank 0 wrote:\na gradient is not the average"):
        measure_ddp(unused, job, 2)


@pytest.mark.slow
@pytest.mark.gloo
def test_a_model_with_an_unused_parameter_is_told_which_flag_it_needs(tmp_path):
    file = tmp_path / "idle.py"
    file.write_text(
        "import torch\n"
        "class Idle(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.used, self.idle = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)\n"
        "    def forward(self, x):\n        return self.used(x)\n"
        "def model():\n    return Idle(), torch.ones(2, 4)\n"
    )
    with pytest.raises(
        MeasureError, match=r"no gradient arrives for idle\.weight, idle\.bias.*write `find_un"
    ):
        measure_ddp(f"{file}:model", DdpJob(timeout_s=20), 2)


def test_one_rank_is_refused():
    with pytest.raises(ValueError, match="1 ranks share no gradients"):
        measure_ddp(WORKLOAD, DdpJob(), 1)


@pytest.mark.slow
@pytest.mark.gloo
def test_real_powersgd_asks_for_what_its_simulation_does_and_loses_no_gradient():
    workload = Workload(
        "two matrices",
        (Tensor("w", 2**16, rows=2**8), Tensor("v", 2**16, rows=2**10), Tensor("b", 2**10)),
        (Layer("all", (2, 1, 0), 1e-3, 10e-3),),
    )
    powersgd = PowerSGD(rank=4, start=2)
    job = DdpJob(comm_hook="powersgd", powersgd=powersgd, iterations=2)
    measured = measure_ddp(workload, job, 2)
    ddp = DataParallel(comm_hook="powersgd", powersgd=powersgd)
    planned = simulate_step(workload, TimedGroup(2, lambda _: 1e-3, 2), ddp, Costs(hook_s=measured.hook_s))
    assert [len(stretches) for stretches in measured.hook_s] == [4]
    for step in measured.steps:
        assert [(b.name, b.nbytes) for b in step.buckets] == [(b.name, b.nbytes) for b in planned.buckets]
        assert [b.launch_s for b in step.buckets] == sorted(b.launch_s for b in step.buckets)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"comm_hook": "allreduce", "iterations": 0}, "write 1 to 1000000 after 2"),
        ({"comm_hook": "allreduce", "workers": 0}, "write 1, or 2"),
        ({"workers": 1}, "hangs with one worker.*write 2 or more"),
        ({"backend": "nccl"}, "measured over Gloo"),
        ({"powersgd": PowerSGD()}, "after 1000 steps, which would all be run first; write powersgd:start=2"),
        ({"comm_hook": "fp16_compress"}, "cannot be measured; write one of allreduce, powersgd"),
    ],
)
def test_jobs_that_cannot_be_measured_are_refused(words, message):
    with pytest.raises(ValueError, match=message):
        DdpJob(**{"comm_hook": "powersgd", "powersgd": PowerSGD(start=2), **words})
