from itertools import pairwise, permutations

import pytest

from ringside.sim.libraries.nccl.graph.system import SYSTEMS
from ringside.topologies import Routes, Topology, check, make, num_machines, ranks
from ringside.topologies.catalogue import settings
from ringside.topologies.hardware import nvlink_of
from ringside.topologies.units import parse_rate
from tests.topologies.routes import latency, path

MACHINES = tuple(SYSTEMS)
NVLINKED = [name for name in MACHINES if "nvlink" in settings(name)]
SLOWEST_INSIDE = {
    **{"dgx1-v100": 25e9, "a100-pcie4": 10e9, "rtx4090-pcie": 16e9, "summit-v100": 32e9},
    **{"dgx-h100": 450e9, "hgx-h800": 200e9, "gb200-nvl72": 900e9, "abci-v100": 50e9, "mn5-h100": 150e9},
}

# nvidia-smi topo -m on a DGX-1 with V100
DGX1 = """
X   NV1 NV1 NV2 NV2 SYS SYS SYS
NV1 X   NV2 NV1 SYS NV2 SYS SYS
NV1 NV2 X   NV2 SYS SYS NV1 SYS
NV2 NV1 NV2 X   SYS SYS SYS NV1
NV2 SYS SYS SYS X   NV1 NV1 NV2
SYS NV2 SYS SYS NV1 X   NV2 NV1
SYS SYS NV1 SYS NV1 NV2 X   NV2
SYS SYS SYS NV1 NV2 NV1 NV2 X
"""


def of_kind(graph: Topology, kind: str) -> list[str]:
    return [node for node, data in graph.nodes(data=True) if data["kind"] == kind]


def bottleneck(graph: Topology, src: int, dst: int) -> float:
    return min(graph.edges[hop]["bandwidth"] for hop in Routes(graph).route(src, dst))


@pytest.mark.parametrize("nodes", [1, 2, 3])
@pytest.mark.parametrize("name", MACHINES)
def test_a_machine_keeps_the_contract_and_every_pair_has_a_way(name: str, nodes: int) -> None:
    graph = make(name, nodes)
    check(graph)
    gpus = SYSTEMS[name].gpus
    assert num_machines(graph) == nodes
    assert ranks(graph) == [f"node{n}/gpu{g}" for n in range(nodes) for g in range(gpus)]
    routes = Routes(graph)
    for src in range(0, len(ranks(graph)), max(1, gpus // 8)):
        for dst in range(len(ranks(graph))):
            if src != dst:
                hops = routes.route(src, dst)
                assert all(first[1] == second[0] for first, second in pairwise(hops))
                on = {node.split("/")[0] for hop in hops for node in hop if "/" in node}
                assert on == {f"node{src // gpus}", f"node{dst // gpus}"}


@pytest.mark.parametrize("name", NVLINKED)
def test_a_gpus_nvlinks_add_up_to_its_figure_both_ways(name: str) -> None:
    graph, datasheet = make(name, 1), parse_rate(settings(name)["nvlink"])
    for gpu in ranks(graph):
        for edges in (graph.out_edges(gpu, data=True), graph.in_edges(gpu, data=True)):
            assert sum(d["bandwidth"] for *_, d in edges if d["kind"] == "nvlink") == pytest.approx(datasheet)
    if name != "hgx-h800":  # whose NVLinks are cut
        assert nvlink_of(graph.graph["device"]) in (datasheet, None)


@pytest.mark.parametrize(("name", "bandwidth"), SLOWEST_INSIDE.items())
def test_inside_a_machine_a_message_takes_the_fast_way(name: str, bandwidth: float) -> None:
    graph = make(name, 1)
    gpus = range(min(8, len(ranks(graph))))
    assert min(bottleneck(graph, *pair) for pair in permutations(gpus, 2)) == bandwidth


@pytest.mark.parametrize("name", MACHINES)
def test_between_machines_the_network_card_is_the_bottleneck_and_the_latency_is_paid_once(name: str) -> None:
    graph, gpus = make(name, 2), SYSTEMS[name].gpus
    for gpu in range(gpus):
        assert bottleneck(graph, gpu, gpus + gpu) == min(SYSTEMS[name].nic, SYSTEMS[name].pcie)
        assert latency(graph, gpu, gpus + gpu) == pytest.approx(2.7e-6)
        assert sum(node.endswith(f"/gpu{gpu}") for node in path(graph, gpu, gpus + gpu)) == 2


def test_a_dgx1_has_the_links_that_nvidia_smi_shows() -> None:
    rows = [line.split() for line in DGX1.strip().splitlines()]
    graph = make("dgx1-v100", 1)
    for a, row in enumerate(rows):
        for b, cell in enumerate(row):
            edge = graph.edges.get((f"node0/gpu{a}", f"node0/gpu{b}"), {"bandwidth": 0.0})
            assert edge["bandwidth"] == {"NV1": 25e9, "NV2": 50e9}.get(cell, 0.0)


def test_a_dgx1_pair_without_a_link_goes_through_a_gpu_that_both_have_one_to() -> None:
    graph = make("dgx1-v100", 1)
    for src, dst in permutations(range(8), 2):
        way = path(graph, src, dst)
        assert len(way) == (2 if graph.has_edge(f"node0/gpu{src}", f"node0/gpu{dst}") else 3)
        assert all(graph.edges[hop]["kind"] == "nvlink" for hop in Routes(graph).route(src, dst))


def test_a_dgx1_reaches_another_rail_over_nvlink_and_never_through_a_socket() -> None:
    graph = make("dgx1-v100", 2)
    assert path(graph, 0, 13)[:4] == ["node0/gpu0", "node0/gpu4", "node0/pcie2", "node0/nic2"]
    for src in range(8):
        for dst in range(8, 16):
            assert not [node for node in path(graph, src, dst) if "cpu" in node]


def test_without_nvlink_messages_go_through_the_cpus() -> None:
    graph = make("a100-pcie4", 2)
    assert path(graph, 0, 1) == ["node0/gpu0", "node0/pcie0", "node0/gpu1"]
    inside = ["node0/gpu0", "node0/pcie0", "node0/cpu0", "node0/cpu1", "node0/pcie1", "node0/gpu3"]
    assert path(graph, 0, 3) == inside
    assert latency(graph, 0, 3) == pytest.approx(1e-6)
    way = ["node0/gpu0", "node0/pcie0", "node0/nic0", "network", "node1/nic1", "node1/pcie1", "node1/gpu3"]
    assert path(graph, 0, 7) == way


def test_gpus_straight_on_their_cpus_meet_there() -> None:
    graph = make("rtx4090-pcie", 1)
    assert path(graph, 0, 3) == ["node0/gpu0", "node0/cpu0", "node0/gpu3"]
    assert path(graph, 0, 4) == ["node0/gpu0", "node0/cpu0", "node0/cpu1", "node0/gpu4"]


def test_a_power9s_gpus_reach_the_other_socket_through_their_cpus() -> None:
    graph = make("summit-v100", 1)
    assert path(graph, 0, 2) == ["node0/gpu0", "node0/gpu2"]
    assert path(graph, 0, 5) == ["node0/gpu0", "node0/cpu0", "node0/cpu1", "node0/gpu5"]


def test_mi300x_has_an_infinity_fabric_link_between_any_two_and_a_card_each() -> None:
    graph = make("mi300x", 2)
    check(graph)
    assert graph.edges["node0/gpu0", "node0/gpu7"]["kind"] == "xgmi"
    assert bottleneck(graph, 0, 7) == 64e9
    assert bottleneck(graph, 3, 11) == 48e9


def test_a_gb200_rack_is_one_nvlink_domain_with_a_grace_for_two_gpus() -> None:
    graph = make("gb200-nvl72", 2)
    assert path(graph, 0, 71) == ["node0/gpu0", "node0/nvswitch", "node0/gpu71"]
    assert len(of_kind(graph, "cpu")) == 2 * 36
    ways = {tuple(path(graph, gpu, 72 + gpu)[1:4]) for gpu in (70, 71)}
    assert ways == {("node0/cpu35", f"node0/nic{card}", f"rail{card}") for card in (70, 71)}


@pytest.mark.parametrize("name", MACHINES)
def test_settings_keep_their_names_and_change_what_they_say(name: str) -> None:
    assert {"nic", "pcie", "network_latency"} <= set(settings(name))
    graph = make(name, 2, {"nic": "1GB/s", "pcie": "2GB/s"})
    kinds = {(d["kind"], d["bandwidth"]) for *_, d in graph.edges(data=True) if d["kind"] in ("ib", "pcie")}
    assert kinds == {("ib", 1e9), ("pcie", 2e9)}
    if name in NVLINKED:
        slow = make(name, 1, {"nvlink": "600GB/s", "nvlink_latency": "3us"})
        out = slow.out_edges("node0/gpu0", data=True)
        assert sum(d["bandwidth"] for *_, d in out if d["kind"] == "nvlink") == pytest.approx(600e9)
        assert latency(slow, 0, 1) == pytest.approx(3e-6)
