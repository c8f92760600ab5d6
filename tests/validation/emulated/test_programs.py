"""Programs on emulated networks take as long as was predicted from ping-pong alone."""

import pytest

pytest.importorskip("torch")
from benchmarks.programs import networks
from ringside.real.emulate import available
from ringside.validation.emulated.programs import MEDIAN, WORST, ComparedProgram, errors, judge

pytestmark = [
    pytest.mark.netadmin,
    pytest.mark.skipif(available() is not None, reason=f"no emulated network: {available()}"),
]


@pytest.mark.proof
def test_all_programs_take_as_long_as_predicted() -> None:
    found: list[ComparedProgram] = []
    for _, graph, cases in networks():
        judge(graph, cases, found.append, 5)
    median, worst = errors(found)
    assert len(found) >= 12
    assert median <= MEDIAN
    assert worst <= WORST
