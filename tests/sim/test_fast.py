from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sim.algorithms import ALGORITHMS, schedule
from sim.collective import Collective
from sim.engine import events, fast
from sim.libraries import gloo
from sim.schedule import Schedule
from tests.sim.networks import switch_trees
from topologies import Topology

pytest.importorskip("numba")

BUILDS = {
    **{(name, kind): build for name, builds in ALGORITHMS.items() for kind, build in builds.items()},
    **{("gloo", kind): build for kind, build in gloo.BUILDS.items()},
}


def agree(plan: Schedule, graph: Topology, gamma: float = 0.0) -> None:
    expected, found = events.simulate(plan, graph, gamma), fast.simulate(plan, graph, gamma)
    assert found.num_transfers == expected.num_transfers
    assert found.time_s == pytest.approx(expected.time_s, rel=1e-9)


def plan_of(pair: tuple[str, str], ranks: int, nbytes: int, root: int, credits: int) -> Schedule:
    plan = BUILDS[pair](Collective(pair[1], ranks, nbytes, root=root % ranks))
    return replace(plan, credits=credits) if credits else plan


@given(
    graph=switch_trees(32),
    pair=st.sampled_from(sorted(BUILDS)),
    nbytes=st.one_of(st.sampled_from([0, 1, 7]), st.integers(0, 4 << 20)),
    root=st.integers(0, 31),
    credits=st.integers(0, 9),
    gamma=st.sampled_from([0.0, 1e-10, 1e-9]),
)
@settings(deadline=None, max_examples=150)
def test_any_tree_of_switches_costs_what_simpy_says(
    graph: Topology, pair: tuple[str, str], nbytes: int, root: int, credits: int, gamma: float
) -> None:
    ranks = sum(data["kind"] == "gpu" for _, data in graph.nodes(data=True))
    agree(plan_of(pair, ranks, nbytes, root, credits), graph, gamma)


@given(
    graph=switch_trees(8),
    pair=st.sampled_from(sorted(BUILDS)),
    nbytes=st.integers(0, 200_000),
    credits=st.integers(0, 9),
    segment=st.integers(500, 9000),
    window=st.integers(1, 9),
    gamma=st.sampled_from([0.0, 1e-9]),
)
@settings(deadline=None, max_examples=60)
def test_segments_in_windows_cost_what_simpy_says(
    graph: Topology, pair: tuple[str, str], nbytes: int, credits: int, segment: int, window: int, gamma: float
) -> None:
    graph.graph.update(segment=segment, window=segment * window)
    ranks = sum(data["kind"] == "gpu" for _, data in graph.nodes(data=True))
    agree(plan_of(pair, ranks, nbytes, 0, credits), graph, gamma)
