"""Links count their traffic, without effect on times."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringside.sim.algorithms import algorithms_for, schedule
from ringside.sim.collective import Collective
from ringside.sim.engine.events import simulate
from ringside.sim.network.load import counted
from ringside.topologies import Routes, make, star


@given(
    st.sampled_from(sorted(algorithms_for("all_reduce"))),
    st.integers(2, 9),
    st.sampled_from([0, 1, 1 << 10, 100_003, 1 << 20]),
    st.sampled_from(["leaf-spine", "torus", "fat-tree"]),
)
@settings(max_examples=40)
def test_links_carry_what_their_routes_bring(algorithm: str, ranks: int, nbytes: int, name: str) -> None:
    graph = make(name, ranks)
    plan = schedule(algorithm, Collective("all_reduce", ranks, nbytes))
    plain = simulate(plan, graph)
    with counted() as loads:
        run = simulate(plan, graph)
    (load,) = loads
    assert run.time_s == plain.time_s
    expected: dict[str, int] = {}
    routes = Routes(graph)
    for step in plan.steps():
        for src, dst, size in zip(step.src, step.dst, plan.nbytes(step), strict=True):
            for a, b in routes.route(int(src), int(dst)):
                expected[f"{a} -> {b}"] = expected.get(f"{a} -> {b}", 0) + int(size)
    found = load.links()
    assert {one.link: one.nbytes for one in found} == expected
    assert all(0 <= one.busy <= 1 + 1e-9 and 0 <= one.wait_mean_s <= one.wait_max_s for one in found)
    assert [round(one.busy, 9) for one in found] == sorted(
        (round(one.busy, 9) for one in found), reverse=True
    )
    assert load.time_s <= run.time_s * (1 + 1e-12)


def test_those_that_come_together_wait_for_one_another() -> None:
    graph = star(5, bandwidth=1e9, latency=0.0)
    with counted() as loads:
        simulate(schedule("direct", Collective("gather", 5, 5_000_000)), graph)
    (into,) = (one for one in loads[0].links() if one.link == "switch -> gpu0")
    assert (into.nbytes, into.messages) == (4_000_000, 4)
    assert into.busy == pytest.approx(1.0)
    assert into.wait_max_s == pytest.approx(3e-3)  # behind three messages of a millisecond each
    assert into.wait_mean_s == pytest.approx(1.5e-3)


def test_nobody_counts_unless_asked() -> None:
    with counted() as loads:
        pass
    simulate(schedule("ring", Collective("all_reduce", 4, 1024)), star(4))
    assert loads == []
