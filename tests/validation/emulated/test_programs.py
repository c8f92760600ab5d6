"""Programs on emulated networks take as long as was predicted from ping-pong alone."""

import math

import pytest

pytest.importorskip("torch")
from benchmarks.programs import networks
from ringside.real.emulate import available
from ringside.validation.emulated.programs import MEDIAN, WORST, ComparedProgram, errors, judge

pytestmark = [
    pytest.mark.netadmin,
    pytest.mark.skipif(available() is not None, reason=f"no emulated network: {available()}"),
]


def _judged(names: set[str] | None, iterations: int) -> list[ComparedProgram]:
    found: list[ComparedProgram] = []
    for _, graph, cases in networks():
        chosen = [case for case in cases if names is None or case.script.stem in names]
        if chosen:
            judge(graph, chosen, found.append, iterations)
    return found


@pytest.mark.slow
def test_a_few_programs_take_as_long_as_predicted() -> None:
    # what is measured beside other tests may be slowed by them; a model that is wrong is wrong every time
    worst = [math.inf]
    while len(worst) <= 3 and worst[-1] > WORST:
        worst.append(errors(_judged({"halo_line", "two_groups"}, 3))[1])
    assert worst[-1] <= WORST, worst[1:]


@pytest.mark.proof
def test_all_programs_take_as_long_as_predicted() -> None:
    found = _judged(None, 5)
    median, worst = errors(found)
    assert len(found) >= 12
    assert median <= MEDIAN
    assert worst <= WORST
