from dataclasses import replace

import pytest

from ringside.real.collective.links import MeasuredLink, as_measured
from ringside.real.emulate import available
from ringside.topologies import ranks
from ringside.topologies.placement import interleaved
from ringside.validation.emulated.collectives import QUIET, MeasuredCase, ValidationResult, validate, verdicts
from ringside.validation.emulated.plan import (
    FULL,
    MBIT,
    MIB,
    SHORT,
    TOLERANCES,
    CollectiveCase,
    NetworkCase,
    num_cells,
    of_families,
)
from tests.made_up import CELL


def cells(*errors: float, family: str = "leaf-spine", spread: float = 0.01) -> list[MeasuredCase]:
    made = replace(CELL, family=family, spread=spread, measured_s=1.0)
    return [replace(made, predicted_s=1 + error) for error in errors]


def test_a_family_passes_within_all_its_tolerances() -> None:
    (verdict,) = verdicts(cells(0.01, -0.02, 0.06))
    assert verdict.passed
    assert (verdict.median_error, verdict.worst_error) == (pytest.approx(0.02), pytest.approx(0.06))
    assert not verdicts(cells(0.01, 0.01, -0.08))[0].passed  # the worst
    assert not verdicts(cells(0.04, 0.04, 0.01))[0].passed  # the median
    tree = cells(*[0.01] * 8, 0.2, 0.2, family="tree")
    assert not verdicts(tree)[0].passed  # the 90th percentile


def test_noisy_cells_are_counted_and_do_not_decide_until_they_are_most() -> None:
    noisy = cells(0.5, spread=QUIET + 0.01)
    (verdict,) = verdicts([*cells(0.01, 0.01), *noisy])
    assert (verdict.cells, verdict.noisy, verdict.passed) == (3, 1, True)
    assert verdict.worst_error == pytest.approx(0.01)
    assert not verdicts([*cells(0.01), *noisy, *noisy])[0].passed
    (hopeless,) = verdicts(noisy)
    assert not hopeless.passed
    assert hopeless.worst_error == pytest.approx(0.5)


def test_a_validation_passes_if_every_family_does() -> None:
    found = verdicts([*cells(0.01), *cells(0.01, family="ring")])
    assert [verdict.family for verdict in found] == ["ring", "leaf-spine"]
    assert ValidationResult(cells=(), verdicts=found, seconds=1.0).passed
    found = verdicts([*cells(0.01), *cells(0.03, family="ring")])
    assert not ValidationResult(cells=(), verdicts=found, seconds=1.0).passed


@pytest.mark.parametrize("plan", [SHORT, FULL])
def test_every_trial_of_a_plan_has_a_tolerance_and_steps_that_are_long_enough(
    plan: tuple[NetworkCase, ...],
) -> None:
    for scene in plan:
        assert len(ranks(scene.graph)) == scene.hosts
        for trial in scene.trials:
            assert trial.family in TOLERANCES
            assert trial.ranks <= scene.hosts
            assert min(trial.sizes) / trial.ranks >= 128 * 1024
    families = {trial.family for scene in FULL for trial in scene.trials}
    assert families == set(TOLERANCES)
    assert num_cells(SHORT) < num_cells(FULL)


def test_a_slow_host_has_both_its_directions_slowed() -> None:
    graph = NetworkCase(hosts=3, bandwidth=8.0, slow=1, slowdown=4.0, trials=()).graph
    assert [graph.edges[hop]["bandwidth"] for hop in (("gpu1", "switch"), ("switch", "gpu1"))] == [2.0, 2.0]
    assert graph.edges["gpu0", "switch"]["bandwidth"] == 8.0


def test_a_network_as_measured_keeps_its_proportions_and_has_latency_at_its_hosts() -> None:
    scene = NetworkCase(hosts=4, leaves=2, bandwidth=100.0, oversubscription=4.0, trials=())
    network = as_measured(scene.graph, interleaved(scene.graph), MeasuredLink(100.0, 0.9), 1e-3)
    assert ranks(network) == ["gpu0", "gpu2", "gpu1", "gpu3"]
    assert network.edges["gpu0", "leaf0"] == {"kind": "ethernet", "bandwidth": 90.0, "latency": 5e-4}
    assert network.edges["leaf0", "spine"] == {"kind": "ethernet", "bandwidth": 45.0, "latency": 0.0}
    assert network.graph["window"] >= network.graph["segment"] > 0


@pytest.mark.proof
@pytest.mark.netadmin
def test_a_small_plan_is_predicted_from_ping_pong_and_measured() -> None:
    pytest.importorskip("torch")
    if reason := available():
        pytest.skip(reason)
    trial = CollectiveCase(family="ring", ranks=3, sizes=(MIB,))
    seen: list[MeasuredCase] = []
    result = validate((NetworkCase(hosts=3, bandwidth=200 * MBIT, trials=(trial,)),), seen.append)
    (cell,) = result.cells
    assert seen == [cell]
    assert (cell.ranks, cell.size_bytes, cell.repeats, cell.placement) == (3, MIB, 5, "natural")
    assert 0.85 < cell.efficiency < 1
    assert cell.measured_s >= 4 / 3 * MIB / (200 * MBIT)
    assert cell.predicted_s == pytest.approx(4 / 3 * MIB / (200 * MBIT * cell.efficiency), rel=0.05)


def test_a_plan_can_be_cut_to_some_families() -> None:
    cut = of_families(FULL, ["shared uplinks"])
    assert {trial.family for scene in cut for trial in scene.trials} == {"shared uplinks"}
    assert [scene.oversubscription for scene in cut] == [1, 2, 4]
    assert num_cells(cut) == 18
    assert of_families(FULL, []) == FULL
    with pytest.raises(ValueError, match="'spines' is not a family of this plan; write "):
        of_families(FULL, ["spines"])
