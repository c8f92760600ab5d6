"""The fair network against stored answers of SimGrid's fluid model."""

import json

import pytest

from ringside.sim.engine.events import simulate
from ringside.sim.proof import prove
from tests.sim.network.cases import GOLDEN, cases, crossing_rings

CASES = {name: (plan, graph) for name, plan, graph in cases()}
TIMES = json.loads(GOLDEN.read_text())["time_s"]


def test_there_are_enough_cases() -> None:
    assert CASES.keys() == TIMES.keys()
    assert len(TIMES) >= 30


@pytest.mark.parametrize("name", CASES)
def test_simgrid_says_the_same(name: str) -> None:
    plan, graph = CASES[name]
    assert simulate(plan, graph, network="fair").time_s == pytest.approx(TIMES[name], rel=1e-6)


def test_the_crossing_rings_are_an_all_reduce() -> None:
    prove(crossing_rings(16, 4, 1 << 20))
