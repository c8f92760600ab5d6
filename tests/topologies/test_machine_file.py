import inspect
import re
from pathlib import Path
from typing import get_args

import pytest

from ringside.topologies import (
    Routes,
    TopologyError,
    a100_pcie4,
    dgx1_v100,
    dgx_a100,
    h100_1gpu,
    load,
    num_machines,
    ranks,
)
from ringside.topologies.chassis import cpu_node
from ringside.topologies.file import dumps, loads
from ringside.topologies.graph import CPUS, check
from ringside.topologies.hardware import GPUS
from ringside.topologies.machine_file import EXAMPLE, Cpu, MachineFacts, cluster

DOCUMENT = Path(__file__).parents[2] / "docs" / "clusters.md"


@pytest.fixture
def file(written):
    return lambda text: str(written(text, "mine.yaml"))


def test_the_example_has_ten_lines_and_32_ranks():
    assert len(EXAMPLE.splitlines()) == 10
    graph = loads(EXAMPLE, "mine.yaml")
    assert (len(ranks(graph)), num_machines(graph), graph.graph["name"]) == (32, 4, "mine")
    assert graph.graph["device"] == "a100"
    assert sum(data["kind"] == "nic" for _, data in graph.nodes(data=True)) == 4


def test_described_words_make_the_catalogues_machine():
    text = "{machine: pcie-server, gpu: a100, gpus: 4, nics: 2, switches: 2, nodes: 3}"
    graph, listed = loads(text, "mine"), a100_pcie4(3)
    assert (graph.adj, graph.nodes) == (listed.adj, listed.nodes)


def test_nvlinks_go_where_the_machine_has_them():
    routes = Routes(loads("{machine: nvlink_pairs, gpus: 4}", "mine"))
    assert routes.route(0, 1) == (("node0/gpu0", "node0/gpu1"),)
    assert [b for _, b in routes.route(1, 2)][:2] == ["node0/cpu0", "node0/cpu1"]
    mesh = Routes(loads("{machine: nvlink_mesh, gpus: 4}", "mine"))
    assert all(len(mesh.route(a, b)) == 1 for a in range(4) for b in range(4) if a != b)
    switch = loads("{machine: nvlink_switch, gpu: h100}", "mine")
    assert [b for _, b in Routes(switch).route(0, 7)] == ["node0/nvswitch", "node0/gpu7"]
    assert switch.edges["node0/gpu0", "node0/nvswitch"]["bandwidth"] == 450e9


@pytest.mark.parametrize(("fabric", "switches"), [("star", {"network"}), ("rail", {"rail0", "rail1"})])
def test_a_fabric_is_one_switch_or_one_for_each_card(fabric, switches):
    graph = loads(f"{{machine: nvlink_switch, nics: 2, nodes: 2, fabric: {fabric}}}", "mine")
    assert {node for node, data in graph.nodes(data=True) if data["kind"] == "switch"} == switches


def test_pcie_switches_carry_gpus_and_cards():
    graph = loads("{machine: pcie-server, switches: 4, nics: 4}", "mine")
    assert graph.has_edge("node0/gpu1", "node0/pcie0")
    assert graph.has_edge("node0/pcie3", "node0/nic3")
    assert graph.has_edge("node0/pcie3", "node0/cpu1")


def test_a_count_and_settings_go_over_the_files_keys(file):
    path = file(EXAMPLE)
    graph = load(f"{path}:2", {"nic": "400Gb/s", "gpu": "h100"})
    assert num_machines(graph) == 2
    assert graph.edges["node0/nic0", "network"]["bandwidth"] == 50e9
    assert graph.graph["compute_capability"] == 90


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("machine: pcie", "machine: 'pcie': input should be 'pcie-server', 'nvlink_switch'"),
        ("machine: pcie-server\ngpu: rtx", "gpu: unknown GPU 'rtx'; write titan-rtx (known: a10, a100"),
        ("machine: pcie-server\ngpus: 0", "gpus: 0: input should be greater than 0"),
        ("machine: pcie-server\nnic: fast", "nic: 'fast' is not a rate"),
        ("machine: pcie-server\nnicc: 2", "nicc: is not known; allowed: nodes, machine, name, gpu"),
        ("machine: pcie-server\nnodes: 2\nnics: 0", "nics is 0, so several nodes cannot be joined"),
        ("machine: pcie-server\nnvlink: 300GB/s", "nvlink is given, but a pcie-server has none"),
        ("machine: nvlink_pairs\ngpus: 7", "gpus is 7; nvlink_pairs has an even number"),
        ("machine: nvlink_mesh\ngpus: 1", "gpus is 1; nvlink_mesh has 2 or more"),
        ("machine: nvlink_mesh\ngpus: 2\nlinks: [[0, 2, 1]]", "links has GPUs 0 and 2; write two of 0 to 1"),
        ("machine: nvlink_switch\nlinks: [[0, 1, 1]]", "links are given, but nvlink_switch has its own"),
        ("machine: nvlink_switch\ncpu_links: 2", "cpu_links is given; write links"),
        ("machine: nvlink_switch\nc2c: 450GB/s\nswitches: 8\nnics: 8", "leave switches and cpu_links out"),
        ("machine: nvlink_switch\nxgmi: 450GB/s", "xgmi is given, but nvlink_switch has none"),
        ("machine: nvlink_switch\ngpu: h20", "the pcie of h20 is unknown; write it"),
        ("machine: pcie-server\nsockets: 0", "sockets is 0, so nothing joins"),
        ("machine: nvlink_switch\nnccl: {sockts: 4}", "nccl.sockts: is not known"),
        ("machine: cpu-node\ngpus: 4", "gpus: is not known; allowed: nodes, machine, name, nics"),
        ("machine: pcie-server\nswitches: 3", "switches is 3; gpus (8) and nics (1) must be multiples"),
        ("machine: pcie-server\nsockets: 3", "sockets is 3; gpus (8) must be a multiple"),
        ("machine: pcie-server\nnodes: 9999999", "nodes is 9999999; allowed: 1 to"),
        ("machine: pcie-server\n3: 4", "keys must be text"),
        ("machine: pcie-server\ngpus: 4\ngpus: 4", "'gpus' is given twice"),
    ],
)
def test_nonsense_is_refused_by_key(file, text, complaint):
    with pytest.raises(TopologyError, match=re.escape(complaint)):
        load(file(text))


def test_machine_itself_is_no_setting(file):
    with pytest.raises(TopologyError, match="change it in the file"):
        load(file(EXAMPLE), {"machine": "nvlink_mesh"})


def test_the_document_lists_every_key_and_word():
    lines = DOCUMENT.read_text(encoding="utf-8").splitlines()
    rows = {line.split("`")[1]: line for line in lines if line.startswith("| `")}
    parameters = inspect.signature(cpu_node).parameters | inspect.signature(cluster).parameters
    assert set(rows) == {*parameters, *MachineFacts.model_fields}
    assert all(f"`{gpu}`" in rows["gpu"] for gpu in GPUS)
    for key, parameter in parameters.items():
        words = [word for word in get_args(parameter.annotation) if isinstance(word, str)]
        assert all(f"`{word}`" in rows[key] for word in words)


def test_words_are_those_of_the_graph():
    assert get_args(Cpu) == CPUS


@pytest.mark.parametrize("maker", [dgx1_v100, dgx_a100, a100_pcie4, h100_1gpu])
def test_hardware_survives_a_file(maker):
    graph = maker(2)
    again = loads(dumps(graph), "mine")
    assert again.graph == graph.graph
    assert {"device", "compute_capability", "cpu"} <= set(graph.graph)


@pytest.mark.parametrize(
    ("fact", "complaint"),
    [
        ({"device": ""}, "write a GPU's name"),
        ({"compute_capability": 9}, "write 10 to 999"),
        ({"compute_capability": True}, "write 10 to 999"),
        ({"compute_capability": 90}, "but that of a100 is 80"),
        ({"cpu": "z80"}, "allowed: intel, amd"),
    ],
)
def test_hardware_that_is_none_is_refused(fact, complaint):
    graph = dgx_a100(1)
    graph.graph.update(fact)
    with pytest.raises(TopologyError, match=complaint):
        check(graph)


@pytest.mark.parametrize("text", ["{machine: pcie-server, gpus: yes}", "{maker: star, ranks: true}"])
def test_true_is_no_number(text):
    with pytest.raises(TopologyError, match="True is neither a number nor text"):
        loads(text, "mine")
