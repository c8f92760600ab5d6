from collections.abc import Callable

import pytest

from ringside.topologies import Topology, check, dgx_a100, dgx_h100, num_machines, ranks

MACHINES = [(dgx_a100, 300e9, 25e9, 24e9, 2), (dgx_h100, 450e9, 50e9, 48e9, 1)]


@pytest.mark.parametrize(("maker", "nvlink", "nic", "pcie", "per_slot"), MACHINES)
@pytest.mark.parametrize("nodes", [1, 2, 5])
def test_a_machine_has_its_data_sheets_links(
    maker: Callable[..., Topology], nvlink: float, nic: float, pcie: float, per_slot: int, nodes: int
) -> None:
    graph = maker(nodes)
    check(graph)
    assert num_machines(graph) == nodes
    assert ranks(graph) == [f"node{n}/gpu{g}" for n in range(nodes) for g in range(8)]
    speeds = {(data["kind"], data["bandwidth"]) for *_, data in graph.edges(data=True)}
    assert speeds == {("nvlink", nvlink), ("pcie", pcie)} | ({("ib", nic)} if nodes > 1 else set())
    slots = [node for node, data in graph.nodes(data=True) if data["kind"] == "pcie"]
    cards = [node for node, data in graph.nodes(data=True) if data["kind"] == "nic"]
    assert len(slots) == nodes * 8 // per_slot
    assert len(cards) == nodes * 8


@pytest.mark.parametrize("maker", [dgx_a100, dgx_h100])
def test_one_switch_a_rail_joins_the_same_card_of_every_machine(maker: Callable[..., Topology]) -> None:
    graph = maker(3)
    for rail in range(8):
        assert set(graph.predecessors(f"rail{rail}")) == {f"node{n}/nic{rail}" for n in range(3)}
        assert set(graph.successors(f"rail{rail}")) == {f"node{n}/nic{rail}" for n in range(3)}


@pytest.mark.parametrize("maker", [dgx_a100, dgx_h100])
def test_one_machine_has_no_network_and_every_cable_is_full_duplex(maker: Callable[..., Topology]) -> None:
    assert not [node for node, data in maker(1).nodes(data=True) if data["kind"] == "switch"]
    graph = maker(2)
    for a, b, data in graph.edges(data=True):
        assert graph.edges[b, a] == data


def test_figures_can_be_changed_one_by_one() -> None:
    graph = dgx_h100(2, nic=25e9, network_latency=5e-6)
    assert graph.edges["node0/nic3", "rail3"] == {"kind": "ib", "bandwidth": 25e9, "latency": 2.5e-6}
    assert graph.edges["node0/gpu3", "node0/nvswitch"]["bandwidth"] == 450e9
