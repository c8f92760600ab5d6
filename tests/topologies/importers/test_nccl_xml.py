import random
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ringside.sim.libraries.nccl.files.topo_file import system_of
from ringside.sim.libraries.nccl.graph.system import SYSTEMS
from ringside.topologies import TopologyError, check, load, ranks
from ringside.topologies.file import dumps, read
from ringside.topologies.importers import nccl_xml
from tests.topologies.routes import edge, latency, path

PCI = (
    'vendor="0x10de" device="0x2330" subsystem_vendor="0x10de" subsystem_device="0x16c1" '
    'link_speed="32.0 GT/s PCIe" link_width="16"'
)
CPU = 'host_hash="0x0" affinity="ffff" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="143"'


def pci(busid: int, inside: str, link: str = PCI) -> str:
    return f'<pci busid="0000:{busid:02x}:00.0" class="0x060400" {link}>\n{inside}</pci>\n'


def gpu(
    rank: int, links: str = '<nvlink target="ffff:ff:ff.0" count="18" tclass="0x068000"/>', sm: int = 90
) -> str:
    return pci(0x40 + rank, f'<gpu dev="{rank}" sm="{sm}" rank="{rank}" gdr="1">{links}</gpu>\n')


def nic(dev: int, speed: int = 400000) -> str:
    net = f'<net name="mlx5_{dev}" dev="{dev}" latency="0" speed="{speed}" port="1" guid="0x1" gdr="1"/>'
    return pci(0x80 + dev, f"<nic>{net}</nic>\n")


def cpu(inside: str, numaid: int = 0, about: str = CPU) -> str:
    return f'<cpu numaid="{numaid}" {about}>\n{inside}</cpu>\n'


def system(inside: str) -> str:
    return f'<system version="1">\n{inside}</system>\n'


def dgx_h100() -> str:
    slots = [pci(0x10 + g, gpu(g) + nic(g)) for g in range(8)]
    return system(cpu("".join(slots[:4]), 0) + cpu("".join(slots[4:]), 1))


def dgx_a100() -> str:
    link = PCI.replace("32.0", "16.0")
    about = CPU.replace("GenuineIntel", "AuthenticAMD")
    switches = '<nvlink target="0000:c4:00.0" count="2" tclass="0x068000"/>' * 6

    def half(first: int) -> str:
        pair = "".join(gpu(g, switches, 80).replace("32.0", "16.0") for g in (first, first + 1))
        cards = "".join(nic(g, 200000).replace("32.0", "16.0") for g in (first, first + 1))
        nested = pci(0x20 + first, pair, link) + pci(0x30 + first, cards, link)
        return pci(0x10 + first, nested, link)

    return system("".join(cpu(half(first), first, about) for first in range(0, 8, 2)))


def test_a_dgx_h100_s_file_is_a_dgx_h100() -> None:
    graph = nccl_xml.topology(dgx_h100(), 2)
    check(graph)
    assert len(ranks(graph)) == 16
    assert edge(graph, "gpu3", "nvswitch") == ("nvlink", 450e9)
    assert edge(graph, "gpu3", "pcie3") == ("pcie", 48e9)
    assert edge(graph, "cpu0", "cpu1") == ("upi", 22e9)
    assert graph.edges["node0/nic3", "rail3"] == {"kind": "ib", "bandwidth": 50e9, "latency": 1.35e-6}
    assert path(graph, 3, 11)[1:4] == ["node0/pcie3", "node0/nic3", "rail3"]
    assert path(graph, 0, 7) == ["node0/gpu0", "node0/nvswitch", "node0/gpu7"]


@pytest.mark.parametrize(("text", "name"), [(dgx_h100(), "dgx-h100"), (dgx_a100(), "dgx-a100")])
def test_a_machines_file_gives_the_facts_from_which_nccl_chooses(text: str, name: str) -> None:
    found = system_of(text, name)
    assert replace(found, nodes=None) == replace(SYSTEMS[name], sockets=found.sockets)


def test_cards_behind_bridges_of_their_own_stay_near_their_gpus() -> None:
    graph = nccl_xml.topology(dgx_a100(), 2)
    check(graph)
    assert edge(graph, "gpu0", "nvswitch") == ("nvlink", 300e9)
    assert edge(graph, "gpu0", "pcie1") == edge(graph, "pcie0", "nic1") == ("pcie", 24e9)
    cards = {path(graph, gpu, 8 + gpu)[3] for gpu in (0, 1)}
    assert path(graph, 0, 8)[:3] == ["node0/gpu0", "node0/pcie1", "node0/pcie0"]
    assert cards == {"node0/nic0", "node0/nic1"}


def test_a_gpu_straight_on_a_cpu_and_a_bridge_with_one_gpu() -> None:
    graph = nccl_xml.topology(system(cpu(pci(0x0E, gpu(0) + nic(0)) + gpu(1))))
    check(graph)
    assert edge(graph, "gpu1", "cpu0") == edge(graph, "pcie0", "cpu0") == ("pcie", 48e9)
    assert graph.graph["nodes"] == 1
    assert not [node for node, data in graph.nodes(data=True) if data["kind"] == "switch"]


def test_nvlinks_between_gpus_are_cables_both_ways() -> None:
    there = '<nvlink target="0000:41:00.0" count="2" tclass="0x030200"/>'
    back = '<nvlink target="0000:40:00.0" count="2" tclass="0x030200"/>'
    gone = '<nvlink target="0000:99:00.0" count="1" tclass="0x030200"/>'
    graph = nccl_xml.topology(system(cpu(gpu(0, there + gone, 70) + gpu(1, back, 70))))
    check(graph)
    assert edge(graph, "gpu0", "gpu1") == edge(graph, "gpu1", "gpu0") == ("nvlink", 50e9)
    assert path(graph, 0, 1) == ["node0/gpu0", "node0/gpu1"]


def test_a_grace_s_c2c_is_a_link_to_the_cpu() -> None:
    links = '<nvlink target="ffff:ff:ff.0" count="18" tclass="0x068000"/><c2c bw="44712" count="10"/>'
    text = system(cpu(gpu(0, links, 100) + gpu(1, links, 100) + nic(0), about='arch="arm64" affinity="f"'))
    graph = nccl_xml.topology(text)
    check(graph)
    assert edge(graph, "gpu0", "nvswitch") == ("nvlink", 900e9)
    assert graph.edges["node0/gpu0", "node0/cpu0"]["bandwidth"] > 0
    facts = system_of(text)
    assert (facts.cpu, facts.compute_capability, facts.socket) == ("arm", 100, 6e9)


def test_without_nvlink_gpus_meet_at_the_cpus_and_cards_in_one_network() -> None:
    text = system(cpu(gpu(0, "") + gpu(1, "") + nic(0)) + cpu(gpu(2, "") + gpu(3, ""), 1))
    graph = nccl_xml.topology(text, 2)
    check(graph)
    assert path(graph, 0, 3) == ["node0/gpu0", "node0/cpu0", "node0/cpu1", "node0/gpu3"]
    assert path(graph, 0, 4)[2:5] == ["node0/nic0", "network", "node1/nic0"]
    assert latency(graph, 0, 4) == pytest.approx(2.7e-6)


@pytest.mark.parametrize(
    ("speed", "bandwidth"), [("16 GT/s", 24e9), ("8.0 GT/s PCIe", 12e9), ("", 12e9), ("Unknown", 12e9)]
)
def test_pcie_speeds_are_read_as_nccl_reads_them(speed: str, bandwidth: float) -> None:
    text = system(cpu(gpu(0).replace("32.0 GT/s PCIe", speed).replace('width="16"', 'width=""')))
    assert edge(nccl_xml.topology(text), "gpu0", "cpu0") == ("pcie", bandwidth)


@pytest.mark.parametrize(("speed", "bandwidth"), [(-1, 1.25e9), (0, 1.25e9), (100000, 12.5e9)])
def test_a_card_that_does_not_tell_its_speed_has_10_gigabits(speed: int, bandwidth: float) -> None:
    assert nccl_xml.read(system(cpu(gpu(0) + nic(0, speed)))).ports == {"nic0": bandwidth}


def test_ranks_follow_the_file_and_files_without_ranks_the_order_of_devices() -> None:
    text = system(cpu(gpu(1, sm=90) + gpu(0, sm=80)))
    assert system_of(text).compute_capability == 80
    graph = nccl_xml.topology(text)
    assert edge(graph, "gpu0", "nvswitch") == ("nvlink", 450e9)
    assert len(ranks(nccl_xml.topology(text.replace('rank="', 'name="')))) == 2


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("</system>", "", 16, "not XML: no element found"),
        ("system", "graphs", 1, "the root is 'graphs'"),
        ('sm="90"', 'sm="ninety"', 5, "sm is 'ninety', not a number"),
        ('sm="90"', "", 5, "gpu has no sm"),
        ('count="18"', "", 5, "nvlink has no count"),
        ('count="18"', 'count="-1"', 5, "count is '-1'; allowed: 0 or more"),
        ('rank="1"', 'rank="0"', 12, "a second gpu has rank 0"),
        ('speed="400000"', 'speed="fast"', 8, "speed is 'fast', not a number"),
        ('arch="x86_64"', 'arch="sparc"', 2, "arch is 'sparc'; allowed: arm64, aarch64, ppc64"),
        ('modelid="143"', "", 2, "cpu has no modelid"),
        ("<gpu", "<gpv", 5, "mismatched tag"),
        ("32.0 GT/s", "3.2.0 GT/s", 3, "link_speed is '3.2.0 GT/s PCIe'"),
    ],
)
def test_a_broken_file_is_refused_with_its_line(old: str, new: str, line: int, message: str) -> None:
    text = system(cpu(pci(0x0E, gpu(0) + nic(0)) + gpu(1)))
    with pytest.raises(TopologyError, match=message) as caught:
        nccl_xml.topology(text.replace(old, new))
    assert f"topology file, line {line}:" in str(caught.value)
    assert "NCCL_TOPO_DUMP_FILE" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (system(cpu(nic(0))), "no gpu element"),
        (system(gpu(0)), "no cpu element"),
        ("<system>" + "<pci>" * 5000, "more than 64 elements inside one another"),
        ("<", "not XML"),
    ],
)
def test_a_file_that_is_no_machine_is_refused(text: str, message: str) -> None:
    with pytest.raises(TopologyError, match=message):
        nccl_xml.topology(text)


def test_a_file_damaged_anywhere_is_read_or_refused_in_words() -> None:
    whole, chance = system(cpu(pci(0x0E, gpu(0) + nic(0)) + gpu(1))), random.Random(1)
    for _ in range(300):
        text = list(whole)
        for _ in range(chance.choice((1, 2, 40))):
            text[chance.randrange(len(text))] = chance.choice('<>"0-x \n/9')
        with suppress(TopologyError):
            graph = nccl_xml.topology("".join(text))
            check(graph)


@pytest.mark.parametrize(
    ("vendor", "maker", "socket"), [("  Shanghai  ", "zhaoxin", 6e9), ("HygonGenuine", "other", 5e12)]
)
def test_other_makers_cpus_are_reckoned_with_as_nccl_does(vendor: str, maker: str, socket: float) -> None:
    found = system_of(system(cpu(gpu(0) + gpu(1), about=CPU.replace("GenuineIntel", vendor))))
    assert (found.cpu, found.socket) == (maker, socket)


def test_a_file_is_known_by_its_content_wherever_a_cluster_is_named(written: Any) -> None:
    file = written(dgx_h100(), "mine")
    assert len(ranks(load(str(file)))) == 8
    four = load(f"{file}:4", {"network_latency": "5us"})
    assert (len(ranks(four)), four.graph["name"]) == (32, "mine")
    assert four.edges["node0/nic0", "rail0"]["latency"] == 2.5e-6
    assert len(ranks(load(str(file), nodes=2))) == 16
    yaml = written(dumps(four), "mine.yaml")
    again = read(yaml)
    assert dict(again.nodes) == dict(four.nodes)
    assert {hop: again.edges[hop] for hop in again.edges} == {hop: four.edges[hop] for hop in four.edges}


@pytest.mark.parametrize(
    ("cluster", "values", "message"),
    [
        ("mine:0", {}, "'0' is not a count"),
        ("mine:many", {}, "'many' is not a count"),
        ("mine", {"nic": "1GB/s"}, "nic: is not known; allowed: nodes, gpus, nvlink_latency"),
        ("mine", {"network_latency": "fast"}, "network_latency: 'fast' is not a duration"),
        ("lonely:2", {}, "no network card, so 2 machines cannot be joined"),
        ("mine.yaml:2", {}, "a file of nodes and cables .* holds all its machines"),
        ("mine.yaml", {"bandwidth": "1GB/s"}, "a file of nodes and cables has no settings"),
    ],
)
def test_what_a_file_cannot_be_asked_is_refused(
    cluster: str, values: dict[str, str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine").write_text(dgx_h100())
    Path("lonely").write_text(system(cpu(gpu(0) + gpu(1))))
    Path("mine.yaml").write_text("nodes: {a: {kind: gpu, rank: 0}}\ncables: []\n")
    with pytest.raises(TopologyError, match=message):
        load(cluster, values)
