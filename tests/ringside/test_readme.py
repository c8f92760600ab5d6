"""The README's commands are run, in order, in one folder, as they stand there."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

TOP = Path(__file__).parents[2]
README = (TOP / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"<!-- (\w+) -->\n```sh\n(.*?)```", README, re.DOTALL)


def test_there_are_the_two_commands_that_set_everything_up():
    assert [name for name, _ in BLOCKS[:2]] == ["demo", "tests"]
    assert BLOCKS[0][1].strip().endswith(".venv/bin/ringside demo")
    assert BLOCKS[1][1].strip().endswith(".venv/bin/pytest -n auto")


@pytest.mark.gloo
def test_every_command_runs(tmp_path):
    pytest.importorskip("torch")
    commands = [line for name, text in BLOCKS if name == "commands" for line in text.splitlines()]
    assert len(commands) >= 8
    for command in commands:
        program, *words = shlex.split(command)
        assert program == "ringside"
        done = subprocess.run(
            [sys.executable, "-m", "ringside", *words],
            cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.returncode == 0, (command, done.stderr)
        assert done.stdout
    written = {file.name for file in tmp_path.iterdir()}
    assert {"trace.json", "fit.jsonl", "here.yaml", "here.svg", "map.png", "tuner.csv", "tree.png"} <= written


def test_what_is_linked_is_there():
    for target in re.findall(r"\]\((?!http)([^)#]+)", README):
        assert (TOP / target).exists(), target
