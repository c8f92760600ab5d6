"""The README: it is short, its two commands set everything up, and its links are valid."""

import re
from pathlib import Path

TOP = Path(__file__).parents[2]
README = (TOP / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"<!-- (\w+) -->\n```sh\n(.*?)```", README, re.DOTALL)


def test_there_are_the_two_commands_that_set_everything_up():
    assert [name for name, _ in BLOCKS] == ["demo", "tests"]
    assert BLOCKS[0][1].strip().endswith(".venv/bin/ringside demo")
    assert BLOCKS[1][1].strip().endswith(".venv/bin/pytest -n auto")


def test_it_is_read_in_some_minutes():
    assert len(README.splitlines()) < 120


def test_what_is_linked_is_there():
    for target in re.findall(r"\]\((?!http)([^)#]+)", README):
        assert (TOP / target).exists(), target
