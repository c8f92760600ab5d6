"""Golden answers of every command; `questions` describes how to change one."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from tests.golden.questions import ANSWERS, ROOT, ask, questions

GOLDEN = json.loads(ANSWERS.read_text(encoding="utf-8"))


@pytest.mark.parametrize("question", questions())
def test_the_answer_is_as_it_was(question: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    found, golden = json.loads(json.dumps(ask(question))), GOLDEN[question.replace(f"{ROOT}/", "")]
    if question.startswith("calibrate"):
        # a fit and its bootstrap end where the linear algebra of the machine at hand ends
        assert [fit["parameters"] for fit in found] == [
            pytest.approx(fit["parameters"], rel=0.01) for fit in golden
        ]
    else:
        assert said(found, golden) == golden


def said(found: Any, golden: Any) -> Any:
    """Return ``found`` with numbers as in ``golden`` where they differ only in the last digits.

    Last digits depend on the alignment of numpy's arrays and on the processor; an error near zero is a
    difference of nearly equal times, so more of its digits do.
    """
    match found, golden:
        case float(), float():
            return golden if math.isclose(found, golden, rel_tol=1e-12, abs_tol=1e-13) else found
        case list(), list() if len(found) == len(golden):
            return [said(*both) for both in zip(found, golden, strict=True)]
        case dict(), dict():
            return {key: said(value, golden.get(key)) for key, value in found.items()}
    return found


def test_no_answer_is_left_over() -> None:
    assert {question.replace(f"{ROOT}/", "") for question in questions()} == set(GOLDEN)
