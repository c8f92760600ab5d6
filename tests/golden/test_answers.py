"""Every door gives the answer that it gave; see `questions` for how an answer is changed."""

import json
from pathlib import Path

import pytest

from tests.golden.questions import ANSWERS, ROOT, ask, questions

GOLDEN = json.loads(ANSWERS.read_text(encoding="utf-8"))


@pytest.mark.parametrize("question", questions())
def test_the_answer_is_as_it_was(question: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    found = json.loads(json.dumps(ask(question)))
    assert found == GOLDEN[question.replace(f"{ROOT}/", "")]


def test_no_answer_is_left_over() -> None:
    assert {question.replace(f"{ROOT}/", "") for question in questions()} == set(GOLDEN)
