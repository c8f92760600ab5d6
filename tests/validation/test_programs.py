"""Programs on emulated networks take as long as was predicted from ping-pong alone."""

import pytest

pytest.importorskip("torch")
from benchmarks.programs import networks
from real.emulate import available
from validation.emulated.programs import MEDIAN, WORST, Compared, errors, judge

pytestmark = [
    pytest.mark.netadmin,
    pytest.mark.skipif(available() is not None, reason=f"no emulated network: {available()}"),
]


def _judged(names: set[str] | None, iterations: int) -> list[Compared]:
    found: list[Compared] = []
    for _, graph, cases in networks():
        chosen = [case for case in cases if names is None or case.script.stem in names]
        if chosen:
            judge(graph, chosen, found.append, iterations)
    return found


def test_a_few_programs_take_as_long_as_predicted() -> None:
    found = _judged({"halo_line", "two_groups"}, 3)
    assert errors(found)[1] <= WORST


@pytest.mark.proof
def test_all_programs_take_as_long_as_predicted() -> None:
    found = _judged(None, 5)
    median, worst = errors(found)
    assert len(found) >= 12
    assert median <= MEDIAN
    assert worst <= WORST
