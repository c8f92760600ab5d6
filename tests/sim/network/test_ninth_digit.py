"""On the ``fair`` network the ninth digit of a figure has no large effect on any answer."""

import random
from dataclasses import replace

import pytest

from ringside.sim.collective import Collective
from ringside.sim.engine.events import simulate
from ringside.sim.schedule import Schedule
from ringside.topologies import Topology, star
from ringside.topologies.fabrics import leaf_spine, torus
from tests.sim.engine.beginnings import BUILDS
from tests.sim.network.test_shared_links import noisy


def question(seed: int) -> tuple[Schedule, Topology, float]:
    """Draw a collective, a network, and the seconds to add a byte."""
    draw = random.Random(seed)
    latency = draw.choice([0.0, 1e-6, 5e-6])
    graph = draw.choice([
        star(draw.randint(2, 16), latency=latency),
        leaf_spine(
            draw.randint(2, 4), draw.randint(1, 4), latency=latency, oversubscription=draw.randint(1, 4)
        ),
        torus(draw.randint(4, 12), latency=latency),
    ])  # fmt: skip
    if draw.random() < 0.2:
        graph.graph["window"] = draw.choice([5000, 100_000])
    ranks = sum(data["kind"] == "gpu" for _, data in graph.nodes(data=True))
    # whoever takes over what others had adds what comes from two of them at once
    pair = draw.choice([*sorted(BUILDS), *[("recursive_doubling", "all_reduce")] * 10])
    nbytes = draw.choice([draw.randint(1, 1 << 20), draw.randint(1, 1 << 24), 1 << draw.randint(0, 24)])
    plan = BUILDS[pair](Collective(pair[1], ranks, nbytes))
    return replace(plan, credits=draw.choice([1, 2, plan.credits])), graph, draw.choice([0.0, 1e-10, 1e-9])


@pytest.mark.parametrize("count", [60, pytest.param(1000, marks=pytest.mark.proof)])
def test_the_ninth_digit_of_a_figure_does_not_decide_what_is_added_first(count: int) -> None:
    for seed in range(count):
        plan, graph, gamma = question(seed)
        exact = simulate(plan, graph, gamma, network="fair").time_s
        for number in range(2):
            found = simulate(plan, noisy(graph, number), gamma, network="fair").time_s
            assert found == pytest.approx(exact, rel=1e-6, abs=0), seed
