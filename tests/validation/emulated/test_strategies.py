"""Steps of FSDP, pipelines and tensor parallelism on emulated networks: predicted, then really run."""

import pytest

pytest.importorskip("torch")
from ringside.real.emulate import available
from ringside.validation.cases import only
from ringside.validation.emulated.strategies import CASES, SHORT, WORST, StrategyCase, checks, judge
from ringside.validation.training.compare import ComparedTraining

pytestmark = [
    pytest.mark.netadmin,
    pytest.mark.skipif(available() is not None, reason=f"no emulated network: {available()}"),
]


def _judged(cases: tuple[StrategyCase, ...]) -> list[ComparedTraining]:
    found: list[ComparedTraining] = []
    judge(cases, lambda _, one: found.append(one))
    return found


@pytest.mark.slow
def test_a_step_of_fsdp_says_and_takes_what_was_predicted() -> None:
    (found,) = _judged(only(SHORT, ["fsdp"]))
    assert not found.differences
    assert found.error is not None
    assert abs(found.error) <= WORST


@pytest.mark.proof
def test_all_strategies_say_and_take_what_was_predicted() -> None:
    assert [check for check in checks(_judged(CASES)) if not check.passed] == []
