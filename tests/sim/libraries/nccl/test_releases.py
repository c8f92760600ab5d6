import re
from dataclasses import replace

import pytest

from ringside.sim.libraries.nccl import SYSTEMS, Settings, communicator, cost_table
from ringside.sim.libraries.nccl.names import ALGORITHMS, PROTOCOLS
from ringside.sim.libraries.nccl.releases import (
    DEFAULT_VERSION,
    OLDEST,
    RELEASES,
    is_older,
    release_of,
    stand_in,
)

GB = 1e9


@pytest.mark.parametrize(
    ("version", "release"),
    [
        *((release, release) for release in RELEASES),
        ("2.30.7", "2.30"),
        ("2.21.5+cuda12.4", "2.21"),
        ("v2.22.3-1", "2.21"),
        ("2.27.7", "2.26"),
        ("2.12.12", "2.10"),
        ("2.8.4-1", "2.8"),
        ("2.3", "2.8"),
        ("1.3.4", "2.8"),
        ("2.99.2", DEFAULT_VERSION),
        ("3.0", DEFAULT_VERSION),
        ("2.29.2 (log header nccl-library=22902; the page calls it 2.18.3)", "2.29"),
        ("22902", "2.29"),
        ("2804", "2.8"),
    ],
)
def test_the_nearest_older_release_stands_for_a_version(version, release):
    assert release_of(version) == release
    assert Settings(version).version == version


def test_the_answer_says_which_release_stands_for_another():
    assert stand_in("2.21.5+cuda12.4") == stand_in("22105") == ""
    assert stand_in("2.22.3") == "NCCL 2.22.3 is not modelled; 2.21 is used instead"
    assert communicator("dgx-a100", settings=Settings("2.4.8")).notes == (
        "NCCL 2.4.8 is not modelled; 2.8 is used instead",
    )
    assert communicator("dgx-a100").notes == ()
    assert (is_older("2.7.8"), is_older(OLDEST), is_older("2.10.3")) == (True, False, False)


@pytest.mark.parametrize("version", ["", "newest", "2", "x.y"])
def test_what_is_no_version_is_refused(version):
    example = re.escape(f"; write for example {DEFAULT_VERSION} or 2.21.5")
    with pytest.raises(ValueError, match=f"unknown NCCL version .*{example}"):
        Settings(version)


def cell(version, machine, nodes, algorithm, protocol, kind="all_reduce"):
    table = cost_table(communicator(machine, nodes, settings=Settings(version)), kind)
    place = list(ALGORITHMS).index(algorithm), list(PROTOCOLS).index(protocol)
    return float(table.latency_us[place]), float(table.bandwidth[place]) / GB


@pytest.mark.parametrize(
    ("version", "expected"),
    # two nodes of 8: 2 x (7 hops inside + 1 between) after the base
    [
        ("2.8", 0 + 2 * (7 * 28 + 28)),
        ("2.10", 0 + 2 * (7 * 28 + 28)),
        ("2.18", 0 + 2 * (7 * 4 + 14)),
        ("2.21", 0 + 2 * (7 * 28 + 28)),
        ("2.23", 8.4 + 2 * (7 * 4 + 14)),
        ("2.30", 8.4 + 2 * (7 * 4 + 14)),
    ],
)
def test_a_simple_trees_hops_by_release(version, expected):
    assert cell(version, "dgx-a100", 2, "tree", "simple")[0] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("version", "latency", "bus"),
    # 14 hops of a ring of 8; LL leaves a quarter or a half of 12 x 21 (at most 235) or 12 x 20 GB/s
    [
        ("2.8", 3.6 + 14 * 0.47, 235 / 4),
        ("2.18", 6.6 + 14 * 0.6, 240 / 4),
        ("2.20", 6.6 + 14 * 0.6, 240 / 4),
        ("2.21", 6.6 + 14 * 0.6, 87.7),
        ("2.30", 6.6 + 14 * 0.6, 87.7),
    ],
)
def test_an_ll_rings_latency_and_what_ll_leaves_by_release(version, latency, bus):
    found = cell(version, "dgx-a100", 1, "ring", "ll")
    assert found == pytest.approx((latency, bus * 8 / 14))


def test_a_newer_release_is_one_entry_and_keeps_the_rules_of_the_one_before(monkeypatch):
    newest = RELEASES[DEFAULT_VERSION]
    volta, ampere, hopper, blackwell = newest.ring_ll128
    caps = (volta, ampere, tuple(0.9 * cap for cap in hopper), blackwell)
    monkeypatch.setitem(RELEASES, "2.98", replace(newest, release="2.98", ring_ll128=caps))
    latency, bus = cell(DEFAULT_VERSION, "dgx-h100", 2, "ring", "ll128")
    assert cell("2.98", "dgx-h100", 2, "ring", "ll128") == pytest.approx((latency, bus * 0.9))
    shared = communicator(replace(SYSTEMS["dgx-h100"], ranks_per_gpu=2), settings=Settings("2.98"))
    assert (shared.ranks, shared.notes) == (16, ())


def test_older_releases_know_fewer_algorithms():
    table = cost_table(communicator("dgx-h100", 2, settings=Settings("2.10")), "all_reduce")
    assert table.rate("nvls_tree", "simple") == 0
    assert cost_table(communicator("dgx-h100", 2), "all_reduce").rate("nvls_tree", "simple") > 0
    for version, known in (("2.21", False), ("2.23", True)):
        one = communicator("h100-1gpu", 4, settings=Settings(version))
        assert (cost_table(one, "all_gather").rate("pat", "simple") > 0) == known


def test_the_search_tries_other_speeds_by_release():
    trees = {v: communicator("dgx-b200", settings=Settings(v)).graphs.tree for v in ("2.28", "2.29", "2.30")}
    assert {v: (tree.channels, tree.bw_intra / GB) for v, tree in trees.items()} == {
        "2.28": (16, 40),
        "2.29": (16, 40),
        "2.30": (16, 45),
    }
    rings = {v: communicator("dgx-a100", settings=Settings(v)).graphs.ring for v in ("2.8", "2.10", "2.18")}
    assert {v: ring.bw_intra / GB for v, ring in rings.items()} == {"2.8": 21, "2.10": 22, "2.18": 20}


# what NCCL 2.29.2 printed on 4 H100 behind NVSwitch (github.com/waynehacking8/nccl-collectives-bench)
LOGGED = {
    ("tree", "ll"): (10.4, 43.6),
    ("tree", "ll128"): (21.5, 128.8),
    ("tree", "simple"): (32.4, 165.6),
    ("ring", "ll"): (10.2, 94.0),
    ("ring", "ll128"): (25.4, 220.8),
    ("ring", "simple"): (28.8, 240.0),
    ("nvls", "simple"): (25.0, 160.0),
}


def test_what_a_real_log_of_2_29_prints_for_4_h100():
    table = cost_table(communicator("dgx-h100", gpus=4, settings=Settings("2.29.2")), "all_reduce")
    for (algorithm, protocol), (latency, bandwidth) in LOGGED.items():
        place = list(ALGORITHMS).index(algorithm), list(PROTOCOLS).index(protocol)
        assert table.latency_us[place] == pytest.approx(latency, abs=0.051)
        assert table.bandwidth[place] / GB == pytest.approx(bandwidth, abs=0.051)
