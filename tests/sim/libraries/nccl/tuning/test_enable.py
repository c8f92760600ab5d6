from dataclasses import replace

import pytest

from ringside.sim.libraries.nccl import SYSTEMS, PathClass, Settings, communicator, cost_table
from ringside.sim.libraries.nccl.names import ALGORITHMS, PROTOCOLS


def pairs(comm, kind="all_reduce", dtype="float32", redop="sum"):
    table = cost_table(comm, kind, dtype, redop)
    return {(a, p) for a in ALGORITHMS for p in PROTOCOLS if table.rate(a, p)}


def algorithms(*arguments):
    return {algorithm for algorithm, _ in pairs(*arguments)}


@pytest.mark.parametrize(
    ("machine", "type_intra", "type_inter", "safe"),
    [
        ("dgx-a100", "NVL", "PIX", True),
        ("dgx-a100", "NVB", "PXB", True),
        ("dgx-a100", "NVL", "P2C", False),
        ("dgx-a100", "NVL", "PXN", False),
        ("dgx-a100", "C2C", "PIX", False),
        ("dgx-a100", "PIX", "PIX", False),
        ("dgx-h100", "NVL", "PXN", True),
        ("dgx-h100", "NVL", "P2C", True),
        ("dgx-h100", "NVL", "PHB", False),
        ("dgx-h100", "SYS", "PIX", False),
    ],
)
def test_ll128_needs_paths_that_keep_stores_in_order(machine, type_intra, type_inter, safe):
    comm = communicator(machine, 2)
    ring = replace(comm.graphs.ring, type_intra=PathClass[type_intra], type_inter=PathClass[type_inter])
    comm = replace(comm, graphs=replace(comm.graphs, ring=ring))
    assert (("ring", "ll128") in pairs(comm)) == safe
    assert ("tree", "ll128") in pairs(comm)


def test_ll128_needs_volta():
    pascal = replace(SYSTEMS["dgx1-v100"], name="pascal", compute_capability=60)
    assert ("ring", "ll128") not in pairs(communicator(pascal))
    assert ("ring", "ll128") in pairs(communicator("dgx1-v100"))


@pytest.mark.parametrize(
    ("machine", "nodes", "gpus", "expected"),
    [
        ("dgx-a100", 1, 8, {"tree", "ring"}),
        ("dgx-h100", 1, 8, {"tree", "ring", "nvls"}),
        ("dgx-h100", 2, 8, {"tree", "ring", "nvls_tree"}),
        ("dgx-h100", 2, 1, {"tree", "ring"}),
        ("dgx-h100", 1, 2, {"tree", "ring", "nvls"}),
        ("h100-1gpu", 2, 1, {"tree", "ring"}),
        ("gb200-nvl72", 1, 72, {"tree", "ring", "nvls"}),
    ],
)
def test_switch_reductions_need_hopper_nvswitch_and_two_gpus(machine, nodes, gpus, expected):
    assert algorithms(communicator(machine, nodes, gpus)) == expected


@pytest.mark.parametrize(
    ("dtype", "redop", "nvls"),
    [
        ("float32", "sum", True),
        ("float32", "max", False),
        ("float32", "avg", False),
        ("float64", "sum", True),
        ("bfloat16", "max", True),
        ("float16", "min", True),
        ("float16", "avg", False),
        ("int32", "min", True),
        ("uint64", "sum", True),
        ("int64", "prod", False),
        ("int8", "sum", False),
        ("float8_e5m2", "sum", False),
    ],
)
def test_what_the_switch_reduces(dtype, redop, nvls):
    assert ("nvls" in algorithms(communicator("dgx-h100"), "all_reduce", dtype, redop)) == nvls
    assert "nvls" in algorithms(communicator("dgx-h100"), "all_gather", dtype, redop)


@pytest.mark.slow
def test_no_more_than_32_gpus_gather_through_the_switch():
    assert "nvls" in algorithms(communicator("gb200-nvl72", 1, 32), "all_gather")
    assert "nvls" not in algorithms(communicator("gb200-nvl72", 1, 36), "all_gather")


@pytest.mark.parametrize(
    ("machine", "gpus", "kind", "redop", "pat", "expected"),
    [
        ("h100-1gpu", 1, "all_gather", "sum", None, True),
        ("h100-1gpu", 1, "reduce_scatter", "sum", None, True),
        ("h100-1gpu", 1, "reduce_scatter", "avg", None, False),
        ("h100-1gpu", 1, "all_gather", "avg", None, True),
        ("h100-1gpu", 1, "all_gather", "sum", False, False),
        ("h100-1gpu", 1, "all_reduce", "sum", True, False),
        ("dgx-h100", 8, "all_gather", "sum", None, False),
        ("dgx-h100", 8, "all_gather", "sum", True, True),
        ("dgx-h100", 1, "all_gather", "sum", None, True),
    ],
)
def test_pat_is_for_one_gpu_a_node(machine, gpus, kind, redop, pat, expected):
    comm = communicator(machine, 4, gpus, settings=Settings(pat=pat))
    assert (("pat", "simple") in pairs(comm, kind, "float32", redop)) == expected


def test_collnet_is_off_until_asked_for_and_enough_nodes():
    assert not {"collnet_direct", "collnet_chain", "nvls"} & algorithms(communicator("dgx-h100", 4))
    asked = communicator("dgx-h100", 4, settings=Settings(collnet=True))
    assert {"collnet_direct", "collnet_chain", "nvls"} <= algorithms(asked)
    few = communicator("dgx-h100", 4, settings=Settings(collnet=True, collnet_node_threshold=5))
    assert not {"collnet_direct", "collnet_chain", "nvls"} & algorithms(few)
    one = communicator("dgx-h100", 1, settings=Settings(collnet=True))
    assert not {"collnet_direct", "collnet_chain"} & algorithms(one)


def test_collnet_direct_needs_nvswitch_and_both_need_8_gpus_at_most():
    settings = Settings(collnet=True)
    assert algorithms(communicator("dgx1-v100", 4, settings=settings)) == {"tree", "ring", "collnet_chain"}
    assert algorithms(communicator("dgx2-v100", 4, settings=settings)) == {"tree", "ring"}


def test_gathering_through_the_network_needs_a_nic_for_every_gpu():
    settings = Settings(collnet=True)
    assert {"collnet_direct", "nvls"} <= algorithms(
        communicator("dgx-h100", 4, settings=settings), "all_gather"
    )
    poor = replace(SYSTEMS["dgx-h100"], name="poor", nics=4)
    assert algorithms(communicator(poor, 4, settings=settings), "all_gather") == {"ring"}
    assert "collnet_direct" in algorithms(communicator(poor, 4, settings=settings), "all_reduce")


def test_collnet_figures_follow_the_rules():
    table = cost_table(communicator("dgx-h100", 4, settings=Settings(collnet=True)), "all_reduce")
    graphs = table.comm.graphs
    assert table.rate("collnet_direct", "simple") == pytest.approx(8 * 48e9 * 0.85 / 2)
    assert table.rate("collnet_chain", "simple") == pytest.approx(8 * graphs.collnet_chain.bw_intra / 2)
    row = list(ALGORITHMS).index("collnet_direct")
    assert table.latency_us[row, 2] == pytest.approx(2 * (3.7 + 7 * 0.4) + 31)
    assert table.latency_us[row + 1, 2] == pytest.approx(2 * 7 * 2.8 + 30)
    gather = cost_table(table.comm, "all_gather")
    assert gather.rate("collnet_direct", "simple") == pytest.approx(8 * 0.9 * 48e9)


def test_nvls_can_be_switched_off():
    assert "nvls" not in algorithms(communicator("dgx-h100", settings=Settings(nvls=False)))
    assert communicator("dgx-h100", settings=Settings(nvls=False)).nvls_channels == 0
