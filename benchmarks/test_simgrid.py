"""The fair network beside SimGrid on the same machine: the same times, in no more seconds."""

import time

import pytest

from ringside.sim.engine.events import simulate
from ringside.sim.jit import available
from ringside.sim.network import maxmin
from ringside.sim.schedule import Schedule
from ringside.topologies import Routes, Topology
from tests.sim.network.cases import cases, has_simgrid, in_simgrid

pytestmark = [
    pytest.mark.benchmark,
    pytest.mark.skipif(
        not has_simgrid(), reason="needs SimGrid's Python module: apt install python3-simgrid"
    ),
]

ROUNDS = 2


def quickest(plan: Schedule, graph: Topology) -> tuple[float, float]:
    """The simulated time, and the seconds that it takes to simulate, routes known."""
    routes, seconds = Routes(graph), []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        found = simulate(plan, graph, routes=routes, network="fair").time_s
        seconds.append(time.perf_counter() - begin)
    return found, min(seconds)


def test_the_fair_network_is_simgrids_and_no_slower(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maxmin, "MUCH", -1)  # compiled from the first flow on, where Numba is here
    quickest(*next(cases())[1:])
    print("compiled" if available() else "not compiled")
    ours, theirs = 0.0, 0.0
    for name, plan, graph in cases():
        found, seconds = quickest(plan, graph)
        runs = [in_simgrid(plan, graph) for _ in range(ROUNDS)]
        least = min(run["seconds"] for run in runs)
        print(f"{name}: {found / runs[0]['time_s'] - 1:+.1e}, {seconds:.3f} s, SimGrid {least:.3f} s")
        assert found == pytest.approx(runs[0]["time_s"], rel=0.01)
        ours, theirs = ours + seconds, theirs + least
    print(f"in all {ours:.2f} s, SimGrid {theirs:.2f} s")
    assert ours <= theirs
