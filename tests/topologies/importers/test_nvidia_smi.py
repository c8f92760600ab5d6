import random
from contextlib import suppress
from typing import Any

import pytest

from ringside.topologies import TopologyError, check, load, make, ranks
from ringside.topologies.importers import nvidia_smi
from tests.topologies.routes import edge, path

LEGEND = """
Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  NV#  = Connection traversing a bonded set of # NVLinks

NIC Legend:

  NIC0: mlx5_0
"""

DGX1 = """\
$ nvidia-smi topo -m
        GPU0    GPU1    GPU2    GPU3    GPU4    GPU5    GPU6    GPU7    mlx5_0  mlx5_1  mlx5_2  mlx5_3  CPU Affinity
GPU0     X      NV1     NV1     NV2     NV2     SYS     SYS     SYS     PIX     PHB     SYS     SYS     0-19,40-59
GPU1    NV1      X      NV2     NV1     SYS     NV2     SYS     SYS     PIX     PHB     SYS     SYS     0-19,40-59
GPU2    NV1     NV2      X      NV2     SYS     SYS     NV1     SYS     PHB     PIX     SYS     SYS     0-19,40-59
GPU3    NV2     NV1     NV2      X      SYS     SYS     SYS     NV1     PHB     PIX     SYS     SYS     0-19,40-59
GPU4    NV2     SYS     SYS     SYS      X      NV1     NV1     NV2     SYS     SYS     PIX     PHB     20-39,60-79
GPU5    SYS     NV2     SYS     SYS     NV1      X      NV2     NV1     SYS     SYS     PIX     PHB     20-39,60-79
GPU6    SYS     SYS     NV1     SYS     NV1     NV2      X      NV2     SYS     SYS     PHB     PIX     20-39,60-79
GPU7    SYS     SYS     SYS     NV1     NV2     NV1     NV2      X      SYS     SYS     PHB     PIX     20-39,60-79
mlx5_0  PIX     PIX     PHB     PHB     SYS     SYS     SYS     SYS      X      PHB     SYS     SYS
mlx5_1  PHB     PHB     PIX     PIX     SYS     SYS     SYS     SYS     PHB      X      SYS     SYS
mlx5_2  SYS     SYS     SYS     SYS     PIX     PIX     PHB     PHB     SYS     SYS      X      PHB
mlx5_3  SYS     SYS     SYS     SYS     PHB     PHB     PIX     PIX     SYS     SYS     PHB      X
"""  # noqa: E501

PCIE4 = """\
\tGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID
GPU0\t X \tNODE\tSYS\tSYS\tNODE\tSYS\t0-31\t0\t\tN/A
GPU1\tNODE\t X \tSYS\tSYS\tNODE\tSYS\t0-31\t0\t\tN/A
GPU2\tSYS\tSYS\t X \tNODE\tSYS\tNODE\t32-63\t1\t\tN/A
GPU3\tSYS\tSYS\tNODE\t X \tSYS\tNODE\t32-63\t1\t\tN/A
NIC0\tNODE\tNODE\tSYS\tSYS\t X \tSYS
NIC1\tSYS\tSYS\tNODE\tNODE\tSYS\t X
"""


def hgx(links: int, gpus: int = 8) -> str:
    """Return the table of a machine with NVSwitch and a card per GPU, as on an interactive terminal."""
    header = "".join(f"\t\x1b[4mGPU{g}" for g in range(gpus)) + "".join(f"\tNIC{g}" for g in range(gpus))
    rows = [header + "\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m"]

    def far(a: int, b: int) -> str:
        return "PIX" if a == b else "NODE" if a // 4 == b // 4 else "SYS"

    for a in range(gpus):
        cells = [" X " if a == b else f"NV{links}" for b in range(gpus)] + [far(a, b) for b in range(gpus)]
        rows.append("\t".join([f"GPU{a}", *cells, "0-55", str(a // 4), "N/A"]))
    for a in range(gpus):
        cells = [far(a, b) for b in range(gpus)] + [" X " if a == b else far(a, b) for b in range(gpus)]
        rows.append("\t".join([f"NIC{a}", *cells]))
    return "\n".join(rows) + "\n" + LEGEND


@pytest.mark.parametrize("links", [12, 18])
def test_counts_that_no_gpu_has_ports_for_mean_nvswitch(links: int) -> None:
    graph = nvidia_smi.topology(hgx(links), 2, nic=50e9)
    check(graph)
    assert len(ranks(graph)) == 16
    assert edge(graph, "gpu5", "nvswitch") == ("nvlink", links * 25e9)
    assert path(graph, 0, 7) == ["node0/gpu0", "node0/nvswitch", "node0/gpu7"]
    assert path(graph, 3, 11)[1:4] == ["node0/pcie3", "node0/nic3", "rail3"]
    assert graph.edges["node0/nic3", "rail3"]["bandwidth"] == 50e9
    assert ("node0/cpu0", "node0/pcie3") in graph.edges
    assert ("node0/cpu1", "node0/pcie4") in graph.edges


def test_four_gpus_with_few_links_a_pair_are_cabled_to_each_other() -> None:
    graph = nvidia_smi.topology(hgx(4, 4))
    check(graph)
    assert edge(graph, "gpu0", "gpu3") == ("nvlink", 100e9)
    assert path(graph, 0, 3) == ["node0/gpu0", "node0/gpu3"]


def test_a_dgx1_s_table_is_the_dgx1_of_the_catalogue() -> None:
    found, named = nvidia_smi.topology(DGX1, nic=12.5e9, pcie=12e9, socket=6e9), make("dgx1-v100", 1)
    check(found)
    assert {hop: found.edges[hop] for hop in found.edges} == {hop: named.edges[hop] for hop in named.edges}


def test_pcie_alone_is_a_tree_of_switches_and_cpus() -> None:
    switched = PCIE4.replace("NODE", "PXB")
    found, named = nvidia_smi.topology(switched, 2, nic=12.5e9), make("a100-pcie4", 2)
    check(found)
    assert {hop: found.edges[hop] for hop in found.edges} == {hop: named.edges[hop] for hop in named.edges}


def test_devices_under_one_switch_share_it() -> None:
    table = "  GPU0 GPU1 NIC0\nGPU0 X PXB PIX\nGPU1 PXB X PXB\nNIC0 PIX PXB X\n"
    graph = nvidia_smi.topology(table)
    check(graph)
    assert path(graph, 0, 1) == ["node0/gpu0", "node0/pcie0", "node0/gpu1"]
    assert edge(graph, "pcie0", "nic0") == ("pcie", 24e9)


def test_one_gpu_is_a_machine_too() -> None:
    graph = nvidia_smi.topology("\tGPU0\tCPU Affinity\nGPU0\t X \t0-7\n")
    check(graph)
    assert ranks(graph) == ["node0/gpu0"]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("GPU2\tSYS", "GPU9\tSYS", "line 4: a row of 'GPU9', which the header does not name"),
        ("\tGPU2\tGPU3", "\tGPU2", "line 5: a row of 'GPU3', which"),
        ("GPU1\tNODE", "GPU1\tNEAR", "line 3: GPU1 to GPU0 is 'NEAR'; allowed: NV and a count, PSB, PIX"),
        ("GPU1\tNODE", "GPU1\tCNS", "line 3: GPU1 to GPU0 is 'CNS', which nvidia-smi topo -p2p prints"),
        ("GPU1\tNODE", "GPU1\tX", "line 3: GPU1 to GPU0 is 'X'"),
        ("GPU0\t X \tNODE", "GPU0\t X \tNV19", "line 2: NV19 links; allowed: 1 to 18"),
        ("GPU0\t X \tNODE", "GPU0\t X \tNV0", "line 2: NV0 links; allowed: 1 to 18"),
        ("GPU0\t X \tNODE", "GPU0\t X \tPIX", "line 2: gpu0 to gpu1 is PIX, but gpu1 to gpu0 is NODE"),
        ("GPU0\t X ", "GPU0\tPIX", "line 2: GPU0 to GPU0 is 'PIX'"),
        ("\tGPU0\tGPU1\tGPU2", "\tGPU0\tGPU1\tGPU1", "line 1: the columns are not GPUs, then cards"),
        ("GPU", "gpu", "no line that begins with GPU0"),
    ],
)
def test_a_broken_table_is_refused_with_its_line(old: str, new: str, message: str) -> None:
    with pytest.raises(TopologyError, match=message) as caught:
        nvidia_smi.topology(PCIE4.replace(old, new))
    assert "nvidia-smi topo -m" in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("NIC1\tSYS\tSYS\tNODE\tNODE\tSYS\t X", ""),
        ("NIC1\tSYS\tSYS\tNODE\tNODE\tSYS\t X", "NIC1\tSYS"),
        ("NIC0\tNODE\tNODE\tSYS\tSYS\t X \tSYS\nNIC1\tSYS\tSYS\tNODE\tNODE\tSYS\t X", "```\n# more"),
        ("GPU1\tNODE\t X \tSYS\tSYS\tNODE\tSYS\t0-31\t0\t\tN/A", ""),
        ("\t0-31\t0\t\tN/A", ""),
        ("\n", "\r\n\r\n"),
        ("\n", "\n    "),
        ("\n", "\n> "),
        ("\t", " | "),
        ("\tGPU0\tGPU1", "\ufeff\t\x1b[1;4mGPU0\tGPU1\x1b(B"),
        ("\tGPU0\tGPU1", "\t[4mGPU0\tGPU1"),
        ("SYS", "SOC"),
    ],
)
def test_a_table_pasted_from_anywhere_reads_the_same(old: str, new: str) -> None:
    assert old in PCIE4
    found, clean = nvidia_smi.topology(PCIE4.replace(old, new)), nvidia_smi.topology(PCIE4)
    assert {hop: found.edges[hop] for hop in found.edges} == {hop: clean.edges[hop] for hop in clean.edges}


def test_a_table_without_a_cell_for_a_pair_is_cut_off() -> None:
    rows = PCIE4.splitlines()
    with pytest.raises(TopologyError, match="line 5: the table is cut off: no cell says how GPU3 and NIC1"):
        nvidia_smi.topology("\n".join([*rows[:4], rows[4].removesuffix("\tNODE\t32-63\t1\t\tN/A")]))


def test_gpus_of_which_nothing_but_nvlinks_is_told_share_a_cpu() -> None:
    graph = nvidia_smi.topology("  GPU0 GPU1\nGPU0 X NV4\nGPU1 NV4 X\n")
    assert [node for node, data in graph.nodes(data=True) if data["kind"] == "cpu"] == ["node0/cpu0"]


def test_two_gpus_of_one_board_meet_at_a_switch() -> None:
    graph = nvidia_smi.topology("  GPU0 GPU1\nGPU0 X PSB\nGPU1 PSB X\n")
    assert path(graph, 0, 1) == ["node0/gpu0", "node0/pcie0", "node0/gpu1"]


@pytest.mark.parametrize("table", [PCIE4, DGX1])
def test_a_table_damaged_anywhere_is_read_or_refused_in_words(table: str) -> None:
    chance = random.Random(1)
    for _ in range(300):
        text = list(table)
        for _ in range(chance.choice((1, 2, 40))):
            text[chance.randrange(len(text))] = chance.choice("\t \nXNVS09P²")
        with suppress(TopologyError):
            check(nvidia_smi.topology("".join(text)))


def test_a_table_is_known_by_its_content_wherever_a_cluster_is_named(written: Any) -> None:
    file = written(hgx(18), "topo.txt")
    graph = load(f"{file}:2", {"nvlink": "900GB/s", "nic": "400Gb/s"})
    assert edge(graph, "gpu0", "nvswitch") == ("nvlink", 900e9)
    assert graph.edges["node0/nic0", "rail0"]["bandwidth"] == 50e9
    with pytest.raises(TopologyError, match="nvlink: '50' "):
        load(str(file), {"nvlink": "50"})
