from dataclasses import replace

import pytest

from sim.libraries.find import find_library
from sim.libraries.nccl.graph.derive import system_of_graph
from sim.libraries.nccl.graph.system import SYSTEMS
from topologies import TopologyError, make, star
from topologies.file import dumps, loads


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_machine_of_the_catalogue_is_derived_from_its_graph(name):
    graph, known = make(name, 2), SYSTEMS[name]
    found = system_of_graph(graph)
    if all(link["kind"] != "upi" for *_, link in graph.edges(data=True)):
        known = replace(known, socket=found.socket)  # no link between CPUs is drawn
    if name == "h100-1gpu":
        known = replace(known, nvlink=0)  # one GPU alone has nobody to link to
    assert replace(found, nvlink=known.nvlink) == known
    assert found.nvlink == pytest.approx(known.nvlink)


def test_a_machine_changed_by_hand_is_derived():
    graph = make("dgx-a100", 2)
    for _, _, link in graph.edges(data=True):
        if link["kind"] == "ib":
            link["bandwidth"] = 10e9
    assert find_library("nccl", graph).comm.system.nic == 10e9


def test_a_dump_gives_the_answer_of_the_settings_it_was_made_with(tmp_path):
    path = tmp_path / "dump.yaml"
    path.write_text(dumps(make("dgx-a100", 2, {"nic": "10GB/s"})), encoding="utf-8")
    by_file = find_library("nccl", str(path)).comm.system
    by_name = find_library("nccl", "dgx-a100:2", {"nic": "10GB/s"}).comm.system
    assert replace(by_file, name="", socket=0) == replace(by_name, name="", socket=0)


def test_pairs_of_nvlinks_do_not_count_as_nvlink():
    system = system_of_graph(loads("{machine: nvlink_pairs, gpu: a100, gpus: 4}", "mine"))
    assert (system.nvlink, system.nvswitch, system.nics) == (0, False, 1)
    assert system_of_graph(loads("{machine: nvlink_pairs, gpu: a100, gpus: 2}", "mine")).nvlink == 240e9


def test_a_network_without_gpus_says_what_to_add():
    with pytest.raises(TopologyError, match="add for example device: a100"):
        system_of_graph(star(4))


def test_an_unknown_cpu_is_refused():
    with pytest.raises(TopologyError, match="CPUs of other are not known"):
        system_of_graph(loads("{machine: pcie-server, cpu: other}", "mine"))


def test_machines_that_are_not_alike_are_refused():
    graph = make("dgx-a100", 2)
    graph.graph["nodes"] = 4
    with pytest.raises(TopologyError, match="machines: 4, but its 16 GPUs sit on 2"):
        system_of_graph(graph)
