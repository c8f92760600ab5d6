from dataclasses import replace

import pytest

from ringside.sim.libraries.find import find_library
from ringside.sim.libraries.nccl.graph.system import SYSTEMS, system_of_graph
from ringside.topologies import TopologyError, make, star
from ringside.topologies.file import dumps, loads
from ringside.topologies.graph import CPUS


def test_a_machine_changed_by_hand_is_derived():
    graph = make("dgx-a100", 2)
    for _, _, link in graph.edges(data=True):
        if link["kind"] == "ib":
            link["bandwidth"] = 10e9
    assert find_library("nccl", graph).comm.system.nic == 10e9


def test_a_dump_gives_the_answer_of_the_settings_it_was_made_with(written):
    path = written(dumps(make("dgx-a100", 2, {"nic": "10GB/s"})), "dump.yaml")
    by_file = find_library("nccl", str(path)).comm.system
    by_name = find_library("nccl", "dgx-a100:2", {"nic": "10GB/s"}).comm.system
    assert replace(by_file, name="", socket=0) == replace(by_name, name="", socket=0)


def test_cables_tell_how_many_nvlinks_join_two_gpus():
    cube, summit = SYSTEMS["dgx1-v100"], SYSTEMS["summit-v100"]
    assert sum(links for *_, links in cube.mesh) == sum(links for *_, links in cube.cabling) == 8 * 6 / 2
    assert (len(summit.mesh), {links for *_, links in summit.mesh}, summit.cpu_links) == (6, {2}, 2)
    pairs = system_of_graph(loads("{machine: nvlink_pairs, gpu: a100, gpus: 4}", "mine"))
    assert (pairs.mesh, pairs.nvlink, pairs.nvswitch) == (((0, 1, 12), (2, 3, 12)), 240e9, False)


def test_amds_gpus_are_refused():
    with pytest.raises(TopologyError, match="RCCL runs on AMD's GPUs"):
        system_of_graph(make("mi300x", 1))


def test_a_network_without_gpus_says_what_to_add():
    with pytest.raises(TopologyError, match="add for example device: a100"):
        system_of_graph(star(4))


def test_an_unknown_cpu_is_refused():
    graph = make("dgx-a100", 1)
    graph.graph["cpu"] = "z80"
    with pytest.raises(TopologyError, match="CPUs of z80 are unknown"):
        system_of_graph(graph)


@pytest.mark.parametrize("cpu", CPUS)
def test_every_cpu_has_its_constants(cpu):
    text = f"{{machine: pcie-server, cpu: {cpu}, socket: 20GB/s}}"
    assert system_of_graph(loads(text, "mine")).socket == 20e9


def test_machines_that_are_not_alike_are_refused():
    graph = make("dgx-a100", 2)
    graph.graph["nodes"] = 4
    with pytest.raises(TopologyError, match="machines: 4, but its 16 GPUs are on 2"):
        system_of_graph(graph)
