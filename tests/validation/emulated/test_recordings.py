"""Recorded scripts take as long on an emulated network as was predicted from ping-pong alone."""

import pytest

pytest.importorskip("torch")
from ringside.real.emulate import available
from ringside.validation.emulated.recordings import CASES, SHORT, WORST, ComparedScript, checks, judge

pytestmark = [
    pytest.mark.netadmin,
    pytest.mark.skipif(available() is not None, reason=f"no emulated network: {available()}"),
]


def _judged(cases) -> list[ComparedScript]:
    judged: list[ComparedScript] = []
    judge(cases, lambda _, one: judged.append(one))
    return judged


@pytest.mark.proof
def test_two_scripts_take_what_was_predicted() -> None:
    judged = _judged(SHORT)
    assert len(judged) == 2
    assert max(abs(one.error) for one in judged) <= WORST


@pytest.mark.proof
def test_all_scripts_take_what_was_predicted() -> None:
    assert [check for check in checks(_judged(CASES)) if not check.passed] == []
