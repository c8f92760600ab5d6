"""Disturbances: simulate, train and program answer in quantiles, and report which ranks wait for which."""

import json
import shlex

import pytest

from ringside.sim.program.groups import SimulatedGroup
from ringside.sim.training.ddp.job import DataParallel
from ringside.sim.training.ddp.record import DdpRecord, MeasuredNetwork
from ringside.sim.training.ddp.scaling import at_pace
from ringside.sim.training.ddp.simulate import simulate_step
from ringside.sim.workload.workload import Layer, Tensor, Workload
from ringside.topologies import star
from ringside.topologies.file import dumps

WORK = Workload(
    name="one layer", parameters=(Tensor("weight", 2**10),), layers=(Layer("layer", (0,), 0.01, 0.02),)
)

SCRIPT = """\
def main(dist):
    dist.compute(2e-3)
    dist.all_reduce(1 * MiB)
"""

SIMULATE = "simulate all_reduce --cluster star:4 --size 1M --algorithm ring"
TRAIN = "train --model gpt2:64 --batch 1 --cluster star:4 --device a100"
LAID_OUT = "train --model gpt2:64 --cluster dgx-a100:1 -g 4 --strategy fsdp --batch 4"
PROGRAM = "program job.py -g 4 --cluster star:4"


@pytest.fixture
def asked(ringside, tmp_path):
    """Run a command in a folder with a script; return its JSON."""

    def ask(words: str) -> dict:
        (tmp_path / "job.py").write_text(SCRIPT, encoding="utf-8")
        code, out, err = ringside(*shlex.split(words), "--json")
        assert code == 0, err
        return json.loads(out)

    return ask


@pytest.mark.slow
@pytest.mark.parametrize("question", [SIMULATE, TRAIN, LAID_OUT, PROGRAM])
def test_a_late_rank_is_waited_for(asked, question):
    found = asked(f"{question} --late 2=500ms")["disturbed"]
    assert found["said"] == "--late 2=500ms"
    assert found["draws"] == 1
    assert found["undisturbed_s"] < 0.5 < found["median_s"] <= 0.5 + 2 * found["undisturbed_s"]
    assert found["median_s"] == found["p95_s"] == found["p99_s"] == found["mean_s"]
    late = {wait["rank"]: wait["seconds"] for wait in found["waits"] if wait["for_rank"] == 2}
    assert 2 not in late
    assert {0, 1, 3} <= set(late)
    assert max(late.values()) == pytest.approx(0.5, rel=0.1)


@pytest.mark.parametrize("question", [SIMULATE, TRAIN, LAID_OUT, PROGRAM])
def test_jitter_is_drawn_by_its_seed_and_answered_in_quantiles(asked, question):
    words = f"{question} --jitter lognormal:0.2 --draws 4"
    first, other = (asked(f"{words} --seed {seed}")["disturbed"] for seed in (3, 4))
    assert first["median_s"] != other["median_s"]
    assert first["draws"] == 4
    assert 0 < first["median_s"] < first["p95_s"] <= first["p99_s"]


def test_a_slow_link_slows_what_crosses_it(asked):
    slow = asked(f"{SIMULATE} --slow-link gpu1-switch=4")["disturbed"]
    one_way = asked(f"{SIMULATE} --slow-link 'gpu1->switch=4'")["disturbed"]
    assert slow["median_s"] == pytest.approx(one_way["median_s"], rel=0.2)
    assert slow["median_s"] > 2 * slow["undisturbed_s"]
    step = asked(f"{TRAIN} --slow-link gpu1-switch=400")["disturbed"]
    assert step["median_s"] > 2 * step["undisturbed_s"]
    job = asked(f"{PROGRAM} --slow-link gpu1-switch=400")["disturbed"]
    assert job["median_s"] > 2 * job["undisturbed_s"]


def test_a_straggler_of_a_layout_is_as_slow_as_it_is(asked):
    found = asked(f"{LAID_OUT} --straggler 3=2")["disturbed"]
    assert 1.05 < found["median_s"] / found["undisturbed_s"] < 2.01
    assert {wait["for_rank"] for wait in found["waits"]} == {3}


def test_words_picture_and_timeline_say_who_waits(ringside, tmp_path):
    code, out, err = ringside(*TRAIN.split(), *"--late 2=5ms --plot step.svg --trace step.json".split())
    assert code == 0, err
    assert "# disturbed (--late 2=5ms; nothing random): " in out
    assert "# 3 ranks wait for rank 2, " in out
    picture = (tmp_path / "step.svg").read_text(encoding="utf-8")
    assert "3 ranks wait for rank 2" in picture or "<path" in picture
    events = json.loads((tmp_path / "step.json").read_text(encoding="utf-8"))["traceEvents"]
    waited = {
        event["args"]["waits_for_rank"] for event in events if "waits_for_rank" in event.get("args", {})
    }
    assert waited == {2}


def test_measured_steps_are_a_jitter(asked, tmp_path):
    group = SimulatedGroup(star(2), 2)
    wires = MeasuredNetwork(topology=dumps(star(2)), library="ideal", launch_s=0.0)
    steps = tuple(simulate_step(at_pace(WORK, pace), group) for pace in (0.9, 1.0, 1.4))
    record = DdpRecord(
        workload=WORK, ranks=2, ddp=DataParallel(), workers=1, wires=wires, memory_bandwidth=None,
        steps=steps, fingerprint={},
    )  # fmt: skip
    assert sorted(set(record.jitter())) == pytest.approx([0.9, 1.0, 1.4])
    (tmp_path / "steps.json").write_text(record.dumps(), encoding="utf-8")
    found = asked(f"{PROGRAM} --jitter steps.json --draws 20")["disturbed"]
    computes = [seconds - found["undisturbed_s"] for seconds in (found["median_s"], found["p99_s"])]
    assert computes == pytest.approx([0.4 * 2e-3] * 2, rel=0.05)


REFUSED = [
    (f"{SIMULATE} --late 9=1s", "rank 9 is late; allowed: ranks 0 to 3"),
    (f"{SIMULATE} --late 1", "write RANK=DURATION, for example 3=20us"),
    (f"{SIMULATE} --late 1=5", "write RANK=DURATION"),
    (f"{SIMULATE} --late 1=5s --late 1=6s", "twice; write only --late 1=6s"),
    (f"{SIMULATE} --late 1=5s --engine fast", "write --engine simpy"),
    (f"{SIMULATE} --straggler 4=2", "rank 4 is slow; allowed: ranks 0 to 3"),
    (f"{SIMULATE} --straggler 1=nan", "write 0.000001 to 1,000,000"),
    (f"{SIMULATE} --slow-link gpu1=2", "write A-B=FACTOR"),
    (f"{SIMULATE} --slow-link gpu1-switch", "write A-B=FACTOR"),
    (f"{SIMULATE} --slow-link gpu1-gpu2=2", "star has no link gpu1-gpu2; write another"),
    (f"{SIMULATE} --slow-link gpu1-switch=inf", "write 0.000001 to 1,000,000"),
    (f"{SIMULATE} --slow-link gpu1-switch=2 --slow-link switch-gpu1=2", "slow twice"),
    (f"{SIMULATE} --jitter 0.1", "write lognormal:SIGMA"),
    (f"{SIMULATE} --jitter normal:0.1", "write lognormal:SIGMA"),
    (f"{SIMULATE} --jitter lognormal", "write lognormal:SIGMA"),
    (f"{SIMULATE} --jitter lognormal:x", "write lognormal:SIGMA"),
    (f"{SIMULATE} --jitter lognormal:9", "3 at the most"),
    (f"{SIMULATE} --jitter nowhere.json", "nowhere.json"),
    (f"{SIMULATE} --os-noise 1ms=25us", "use ringside train or program"),
    (f"{SIMULATE} --jitter lognormal:0.1 --draws 0", "write 1 to 100,000"),
    (f"{SIMULATE} --jitter lognormal:0.1 --seed -1", "write 0 or more"),
    (f"{SIMULATE} --draws 5", "nothing is random"),
    (f"{SIMULATE} --late 1=5s --seed 5", "nothing is random"),
    (f"{SIMULATE} --late 1=5s --trace t.json", "remove one of them"),
    ("simulate all_reduce --cluster star:4 --late 1=5s", "add --size"),
    ("simulate all_reduce --cluster dgx-h100:2 --size 1M --late 1=5s", "write --library ideal or gloo"),
    (
        "simulate all_reduce --cluster mare-nostrum:2 --library mpi --size 1M --late 1=5s",
        "write --library ideal",
    ),
    (f"{TRAIN} --os-noise 1ms", "write PERIOD=DURATION"),
    (f"{TRAIN} --os-noise 1ms=2ms", "1ms=25us"),
    (f"{TRAIN} --late 1=5s --sweep bucket-cap-mb=1,5", "not to a sweep"),
    (f"{LAID_OUT} --slow-link rail0-nic0=2", "write --library ideal or gloo"),
    (f"{LAID_OUT} --straggler 99=2", "allowed: ranks 0 to 3"),
    ("program job.py -g 4 --late 1=5s", "add --cluster"),
    ("program --job job.py:2 --job job.py:2 --cluster star:4 --late 1=5s", "applies to one job"),
]


@pytest.mark.parametrize(("words", "says"), REFUSED)
def test_what_means_nothing_is_refused_with_what_to_write(ringside, tmp_path, words, says):
    (tmp_path / "job.py").write_text(SCRIPT, encoding="utf-8")
    code, out, err = ringside(*shlex.split(words))
    assert code == 2, (out, err)
    assert says in err
    assert not out
