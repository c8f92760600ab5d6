"""``ringside train --model job.json``: the step that a script was recorded doing."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ringside import train as ask
from ringside.sim.recorded.file import read_job, write_job
from ringside.topologies import load
from ringside.topologies.file import write
from ringside.validation.questions.step_time import StepTime
from tests.sim.recorded.test_program import DDP, two_roles

Train = Callable[..., str]

ON = ("--model", str(DDP), "--cluster", "dgx-h100:2")


def test_a_recorded_step_is_answered_with_its_memory(train: Train) -> None:
    answer = json.loads(train(*ON, "--json"))
    assert (answer["ranks"], answer["samples"], answer["verdict"]) == (16, 128, "fits")
    assert answer["throughput"] == pytest.approx(128 / answer["step_s"])
    assert answer["memory_bytes"]["pools"]["optimizer"] == 134217728
    assert "torch.compile recorded eager" in answer["notes"]
    (row,) = answer["rows"]
    assert set(row["communication_by_s"]) == {"world"}
    parts = ("compute_s", "contention_s", "exposed_s", "waiting_s")
    assert sum(row[name] for name in parts) == pytest.approx(answer["step_s"])
    assert "train.py as recorded on dgx-h100:2: 16 ranks, 128 samples a step" in train(*ON, "--all")


def test_options_of_the_machine_work_as_for_models(train: Train) -> None:
    def step_s(*more: str) -> float:
        return json.loads(train(*ON, "--json", *more))["step_s"]

    usual = step_s()
    assert step_s("--set", "nic=5GB/s") > usual
    assert step_s("--device", "b200") < usual < step_s("--device", "a100")
    assert step_s("--compute-efficiency", "0.1") > usual
    assert step_s("--library", "gloo") > usual
    assert step_s("--calibration", "none") != usual
    assert step_s("--measured", "1000samples/s@16") == pytest.approx(0.128, rel=1e-4)
    assert step_s("--spread", "0", "--contention", "0") < usual
    drawn = json.loads(train(*ON, "--json", "--straggler", "3=2"))["disturbed"]
    assert drawn["mean_s"] > usual


def test_without_a_known_gpu_communication_and_memory_are_left(train: Train, tmp_path: Path) -> None:
    network = load("star:16")
    del network.graph["recipe"]
    network.graph["device"] = "z1000"
    write(network, tmp_path / "own.yaml")
    job = ("--model", str(DDP), "--cluster", str(tmp_path / "own.yaml"))
    answer = json.loads(train(*job, "--json"))
    (row,) = answer["rows"]
    assert (row["compute_s"], answer["verdict"], answer["inputs"]["device"]) == (0, None, None)
    assert answer["step_s"] == pytest.approx(row["exposed_s"]) == pytest.approx(row["communication_s"])
    assert answer["memory_bytes"]["total"] == 320 << 20
    assert "communication alone" in train(*job)
    assert json.loads(train(*job, "--json", "--device", "h100"))["rows"][0]["compute_s"]


def test_pictures_traces_and_pages_are_written(train: Train, tmp_path: Path) -> None:
    names = {"--plot": "step.svg", "--plot-memory": "memory.svg", "--trace": "trace.json", "--html": "p.html"}
    text = train(
        *ON, "--memory", *(word for option, name in names.items() for word in (option, tmp_path / name))
    )
    assert "memory of a GPU at the peak of each role" in text
    assert all((tmp_path / name).stat().st_size > 1000 for name in names.values())
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert {event["name"] for event in events} >= {"mm", "all_reduce", "_fused_adamw_", "memory (GiB)"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--tp 8", f"--tp is not an option of {DDP}, a recorded step"),
        ("--strategy fsdp", "--strategy is not an option"),
        ("--batch 4", "--batch is not an option"),
        ("--seq 512", "--seq is not an option"),
        ("--bucket-cap-mb 4", "--bucket-cap-mb is not an option"),
        ("--precision bf16", "--precision is not an option"),
        ("--global-batch 8", "--global-batch is not an option"),
        ("--search", "is as it was recorded"),
        ("--sweep nodes=1,2", "--sweep applies to plain"),
        ("--measured 10tok/s@16", "have none"),
        ("--measured 10samples/s@8", "recorded on 16"),
    ],
)
def test_what_a_recording_decides_is_refused(refused: Callable[..., str], words: str, message: str) -> None:
    assert message in refused("train", *ON, *words.split())


def test_a_job_that_hangs_says_who_waits(ringside: Callable[..., tuple], tmp_path: Path) -> None:
    write_job(two_roles(("a", "b"), ("a",), ranks=16), tmp_path / "job.json")
    code, _, said = ringside("train", "--model", tmp_path / "job.json", "--cluster", "dgx-h100:2")
    assert code == 1
    assert "train.py hangs: rank 0 waits in all_reduce" in said


def test_every_question_about_a_model_takes_it(json_of: Callable[..., dict]) -> None:
    rows = json_of("whatif", DDP, "--cluster", "dgx-h100:2", "--try", "nic=0.5x")["rows"]
    assert rows[1]["time_s"] > rows[0]["time_s"]
    proof = json_of("program", DDP, "--check")
    assert (proof["verdict"], proof["inputs"]["library"]) == ("proved", "nccl")
    program = json_of("program", DDP, "--cluster", "dgx-h100:2", "--library", "nccl")
    assert 0 < program["makespan_s"] < rows[0]["time_s"]


def test_python_asks_the_same(tmp_path: Path) -> None:
    step = ask(str(DDP), "dgx-h100:2")
    answer = StepTime(model=str(DDP), cluster="dgx-h100:2").ask()
    assert step.step_s == answer.totals["step_s"]
    write_job(read_job(DDP), tmp_path / "again.json")
    assert ask(str(tmp_path / "again.json"), "dgx-h100:2").step_s == step.step_s
