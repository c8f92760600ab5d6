"""``ringside train``: its output, its sums, and its error messages."""

import json
import re

import pytest

from ringside.sim.program.groups import TimedGroup
from ringside.sim.training.ddp.simulate import simulate_step
from ringside.sim.workload.devices import MEMORY_EFFICIENCY
from ringside.sim.workload.file import read
from tests.made_up import ddp_record
from tests.ringside.workloads import EVEN

STAR = ("--model", "even.yaml", "--cluster", "star:4", "--set", "bandwidth=1GB/s", "--set", "latency=0s")


@pytest.fixture(autouse=True)
def workload(tmp_path):
    (tmp_path / "even.yaml").write_text(EVEN)


def rows(out):
    content = json.loads(out)
    assert content["schema"] == "ringside.train/1"
    return content["rows"]


def test_a_step_worked_out_by_hand(train):
    (row,) = rows(train(*STAR, "--optimizer", "sgd", "--bucket-cap-mb", "1", "--json"))
    ring = 2 * 3 / 4 * 8 * 2**20 / 1e9
    copied = 2 * 2 * 8 * 2**20 / (2039e9 * MEMORY_EFFICIENCY)
    optimizer = 3 * 16 * 2**20 / (2039e9 * MEMORY_EFFICIENCY)
    assert row["compute_s"] == pytest.approx(0.06 + optimizer)
    assert row["communication_s"] == pytest.approx(2 * ring)
    assert row["exposed_s"] == pytest.approx(ring, rel=1e-2)
    assert row["step_s"] == pytest.approx(0.06 + optimizer + copied + ring, rel=1e-3)
    assert row["lower_s"] <= row["step_s"] <= row["upper_s"]
    assert row["overlap_efficiency"] == pytest.approx(0.5, abs=0.01)
    assert row["throughput"] == pytest.approx(32 / row["step_s"])
    alone = 0.06 + optimizer
    assert row["weak_efficiency"] == pytest.approx(alone / row["step_s"], rel=1e-3)
    assert row["strong_efficiency"] == pytest.approx((4 * alone) / (4 * row["step_s"]), rel=1e-2)


def test_what_is_measured_on_one_gpu_holds_on_many_machines(train):
    words = ("--model", "resnet50", "--cluster", "dgx-h100:2", "--measured", "2616img/s@1", "--json")
    (row,) = rows(train(*words))
    assert 0.9 * 16 * 2616 < row["throughput"] < 16 * 2616
    (alone,) = rows(train("--model", "resnet50", "--cluster", "star:1", "--measured", "2616@1", "--json"))
    assert alone["throughput"] == pytest.approx(2616, rel=1e-6)
    assert alone["copy_s"] == 0


def test_a_throughput_beyond_the_peak_is_refused(train):
    words = ("--model", "resnet50", "--cluster", "dgx-a100:1", "--measured")
    forward = 4.089e9  # products of an image, each a multiplication and an addition
    first = 0.118e9  # of its first convolution, whose input needs no gradient
    most = 156e12 / (2 * (3 * forward - first))
    message = train(*words, f"{0.97 * most:g}img/s@1")
    assert "float32 on a100, gradients" in " ".join(message.split())
    assert "measured on 1 rank," in " ".join(message.split())
    with pytest.raises(ValueError, match=r"on 8 ranks is 1\.03 times the peak of a100 in float32"):
        train(*words, f"{8 * 1.03 * most:g}img/s@8")


def test_a_global_batch_is_of_strong_scaling_alone(train):
    words = ("--model", "resnet50", "--cluster", "dgx-a100:1")
    message = train(*words, "--global-batch", "64").replace("#", "")
    assert "alone; strong alone is of --global-batch 64" in " ".join(message.split())
    assert "--global-batch" not in train(*words)


def test_the_time_comes_first_and_its_bounds_are_notes(train):
    out = train(*STAR)
    assert re.match(r"# [\d.]+ ms a step, \d+ samples/s: ddp of even on 4 ranks of star:4", out)
    assert "if everything overlaps, " in out
    assert [line.split()[:3] for line in out.splitlines() if line[0] != "#"] == [["1", "4", "default"]]


def test_a_sweep_of_caps_recommends_one(train):
    out = train(*STAR, "--sweep", "bucket-cap-mb=1,25,1000", "--plot", "sweep.svg", "--json")
    answer = json.loads(out)
    assert [row["bucket_cap_mb"] for row in answer["rows"]] == [1, 25, 1000]
    assert answer["recommended_bucket_cap_mb"] == 1
    assert answer["rows"][0]["step_s"] < answer["rows"][1]["step_s"]


def test_a_sweep_of_nodes_loses_efficiency_faster_when_the_batch_is_shared(train):
    found = rows(train("--model", "resnet50", "--cluster", "dgx-h100", "--sweep", "nodes=1,2,4", "--json"))
    assert [row["ranks"] for row in found] == [8, 16, 32]
    weak = [row["weak_efficiency"] for row in found]
    assert 1 > weak[0] >= weak[-1] > 0.5
    assert found[-1]["strong_efficiency"] <= weak[-1]


def test_pictures_and_traces_are_written(train, tmp_path):
    train(*STAR, "--plot", "step.svg", "--trace", "step.json", "--library", "gloo")
    assert "bucket" in (tmp_path / "step.svg").read_text()
    events = json.loads((tmp_path / "step.json").read_text())["traceEvents"]
    assert {"compute", "communication 0"} <= {e["args"]["name"] for e in events if e["name"] == "thread_name"}


def test_settings_reach_nccls_reckoning(train):
    words = ("--model", "vgg16", "--cluster", "dgx-h100:4", "--json")
    (fast,), (slow,) = rows(train(*words)), rows(train(*words, "--set", "nic=100Gb/s"))
    assert slow["communication_s"] > 2 * fast["communication_s"]


def test_memory_holds_what_adam_keeps(train):
    held = json.loads(train(*STAR, "--json"))["memory_bytes"]
    weights = 16 * 2**20
    assert held["total"] == 5 * weights
    assert held["optimizer"] == 2 * weights


def test_a_module_of_ones_own_takes_no_memory_and_costs_what_its_shapes_say(train, tmp_path):
    (tmp_path / "big.py").write_text(
        "import torch\n"
        "def layer():\n"
        "    return torch.nn.Linear(65536, 65536, bias=False), torch.randn(16, 65536)\n"
    )
    words = ("--model", "big.py:layer", "--cluster", "star:4", "--optimizer", "sgd", "--json")
    (row,) = rows(train(*words))
    assert [bucket["nbytes"] for bucket in row["buckets"]] == [4 * 65536**2]
    assert row["compute_s"] > 0


def test_measured_steps_are_a_workload_too(train, tmp_path):
    work = read(tmp_path / "even.yaml")
    step = simulate_step(work, TimedGroup(2, lambda _: 1e-3))
    (tmp_path / "steps.json").write_text(ddp_record(work, 2, step).dumps())
    words = ("--cluster", "star:4", "--json")
    assert rows(train("--model", "steps.json", *words)) == rows(train("--model", "even.yaml", *words))


def test_powersgd_says_what_it_compresses_and_what_its_first_steps_take(json_of):
    words = ["train", "--model", "bert-base:64", "--cluster", "dgx-a100:1"]
    answer = json_of(*words, "--comm-hook", "powersgd:rank=2,start=10")
    assert answer["inputs"]["comm_hook"] == "powersgd:rank=2,start=10"
    assert any("first 10 steps PowerSGD averages uncompressed gradients" in note for note in answer["notes"])
    names = [bucket["name"] for bucket in answer["rows"][0]["buckets"]]
    assert {"bucket 1", "bucket 1 P", "bucket 1 Q"} <= set(names)
    held, plain = answer["memory_bytes"], json_of(*words)["memory_bytes"]
    assert held["total"] - plain["total"] == held["compression"] > plain["gradients"]


def test_a_cap_for_each_bucket_cuts_them_in_turn(json_of):
    answer = json_of("train --model resnet50 --cluster dgx-a100:1 --bucket-cap-mb-list 1,5,50")
    sizes = [bucket["nbytes"] for bucket in answer["rows"][0]["buckets"]]
    assert [size >= cap * 2**20 for size, cap in zip(sizes, (1, 5, 50), strict=False)] == [True] * 3


def test_a_file_that_says_nothing_of_activations_is_said_to(train, tmp_path):
    message = "memory excludes activations, which even.yaml does not state"
    assert message in train(*STAR)
    assert json.loads(train(*STAR, "--json"))["notes"] == [message]
    whole = EVEN.replace("gradients: [b]}", "gradients: [b], activation: 4MiB}")
    (tmp_path / "even.yaml").write_text(whole)
    assert "without activations" not in train(*STAR)
