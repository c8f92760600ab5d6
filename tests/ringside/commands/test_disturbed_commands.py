"""Disturbances: simulate, train and program answer in quantiles, and report which ranks wait for which."""

import json

import pytest

from ringside.sim.program.groups import SimulatedGroup
from ringside.sim.training.ddp.scaling import at_pace
from ringside.sim.training.ddp.simulate import simulate_step
from ringside.sim.workload.workload import Layer, Tensor, Workload
from ringside.topologies import star
from tests.made_up import ddp_record

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
def asked(json_of, tmp_path):
    """Run a command in a folder with a script; return its JSON."""

    def ask(words: str) -> dict:
        (tmp_path / "job.py").write_text(SCRIPT, encoding="utf-8")
        return json_of(words)

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


def test_words_picture_and_timeline_say_who_waits(printed, tmp_path):
    out = printed(*TRAIN.split(), *"--late 2=5ms --plot step.svg --trace step.json".split())
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
    steps = [simulate_step(at_pace(WORK, pace), group) for pace in (0.9, 1.0, 1.4)]
    record = ddp_record(WORK, 2, *steps, workers=1)
    assert sorted(set(record.jitter())) == pytest.approx([0.9, 1.0, 1.4])
    (tmp_path / "steps.json").write_text(record.dumps(), encoding="utf-8")
    found = asked(f"{PROGRAM} --jitter steps.json --draws 20")["disturbed"]
    computes = [seconds - found["undisturbed_s"] for seconds in (found["median_s"], found["p99_s"])]
    assert computes == pytest.approx([0.4 * 2e-3] * 2, rel=0.05)
