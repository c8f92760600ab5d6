"""``ringside train --megatron``: a launch script of Megatron-LM, answered as its words would be."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ringside.validation.questions.step_time import StepTime

Train = Callable[..., str]

SCRIPT = Path(__file__).parents[3] / "examples/pretrain_gpt.sh"
WORDS = {
    "strategy": "distributed_optimizer", "tp": 2, "pp": 2, "sequence_parallel": True, "batch": 16,
    "overlap_grad_reduce": True, "overlap_param_gather": True, "precision": "bf16", "stack": "te",
    "attention_mask": True,
}  # fmt: skip
ON = ("--cluster", "dgx-h100:2")


def test_a_launch_is_the_training_that_its_words_say() -> None:
    launched = StepTime(megatron=SCRIPT, cluster="dgx-h100:2")
    said = StepTime(model="llama3-8b:8192", cluster="dgx-h100:2", **WORDS)
    assert launched.step().stages == said.step().stages
    assert launched.inputs()["model"] == "pretrain_gpt"


def test_what_is_not_modelled_or_understood_is_told(train: Train, tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text(SCRIPT.read_text().replace("--mock-data", "--mock-data --no-such-thing"))
    lines = train("--megatron", str(script), *ON).splitlines()
    assert "# not modelled: --no-rope-fusion" in lines
    assert "# not understood: --no-such-thing" in lines
    notes = json.loads(train("--megatron", str(SCRIPT), *ON, "--json"))["notes"]
    assert notes[0] == "not modelled: --no-rope-fusion"


def test_words_that_the_file_leaves_open_are_free(train: Train) -> None:
    launch = ("--megatron", str(SCRIPT), *ON, "--json")
    slow, usual = (json.loads(train(*launch, *more)) for more in (("--set", "nic=5GB/s"), ()))
    assert slow["step_s"] > usual["step_s"]
    assert json.loads(train(*launch, "--tp", "2"))["step_s"] == usual["step_s"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--tp 4", "--tp 4, and {script} has 2; leave --tp out, or change the file"),
        ("--tp 1", "--tp 1, and {script} has 2; leave it out, or change the file"),
        ("--precision fp8", "--precision fp8, and {script} has bf16"),
        ("--model gpt2", "--model gpt2, and {script} has pretrain_gpt"),
        ("--seq 2048", "--seq 2048, and {script} has 8192"),
        ("--search", "{script} has one layout, and --search has many"),
    ],
)
def test_a_word_that_the_file_has_otherwise_is_refused(
    refused: Callable[..., str], words: str, message: str
) -> None:
    error = refused("train", "--megatron", str(SCRIPT), *ON, *words.split())
    assert message.format(script=SCRIPT) in error


def test_a_training_needs_a_model_or_a_launch(refused: Callable[..., str], tmp_path: Path) -> None:
    assert "--model is missing; write a text, for example llama3-8b, or --megatron" in refused("train", *ON)
    missing = refused("train", "--megatron", str(tmp_path / "no.sh"), *ON)
    assert "no.sh: cannot be read" in missing
