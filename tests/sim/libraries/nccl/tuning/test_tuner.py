import csv
import math
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringside.sim.libraries.nccl import SYSTEMS, Pins, Settings, communicator, cost_table
from ringside.sim.libraries.nccl.names import ALGORITHMS, FUNCTIONS, PROTOCOLS

K, M, G = 2**10, 2**20, 2**30

# made by NCCL v2.30.7's own compiled tuner over described machines
DATA = Path(__file__).parents[1] / "data"
SAMPLE = list(csv.DictReader((DATA / "nccl_tuner_sample.csv").read_text("ascii").splitlines()))
MACHINES = {"dgx1v": "dgx1-v100", "dgxa100": "dgx-a100"}
KINDS = {name: kind for kind, name in FUNCTIONS.items()}


def pair(row):
    return list(ALGORITHMS.values()).index(row["algo"]), list(PROTOCOLS.values()).index(row["proto"])


def tables():
    grouped = {}
    for row in SAMPLE:
        grouped.setdefault((row["system"], int(row["nNodes"]), row["func"]), []).append(row)
    return grouped


@pytest.mark.parametrize(("machine", "nodes", "function"), tables())
def test_every_time_of_the_sample_within_1e_4_and_no_pair_more_and_every_choice(machine, nodes, function):
    rows = tables()[machine, nodes, function]
    table = cost_table(communicator(MACHINES[machine], nodes), KINDS[function])
    for nbytes in {int(row["nBytes"]) for row in rows}:
        expected = np.full((len(ALGORITHMS), len(PROTOCOLS)), np.inf)
        mine = [row for row in rows if int(row["nBytes"]) == nbytes]
        for row in mine:
            expected[pair(row)] = float(row["time_us"])
        np.testing.assert_allclose(table.times_us(nbytes), expected, rtol=1e-4)
        least = min(mine, key=lambda row: (float(row["time_us"]), pair(row)))
        choice = table.choose(nbytes)
        assert (ALGORITHMS[choice.algorithm], PROTOCOLS[choice.protocol]) == (least["algo"], least["proto"])


SWITCHES = [
    ("dgx1-v100", 1, "ring/ll 1M ring/ll128 16M ring/simple"),
    ("dgx1-v100", 2, "tree/ll 128K ring/ll 512K tree/ll128 512M tree/simple"),
    ("dgx1-v100", 16, "tree/ll 256K tree/ll128 32M ring/ll128 512M ring/simple"),
    ("dgx1-v100", 512, "tree/ll 256K tree/ll128 512M tree/simple 4G ring/ll128"),
    ("dgx-a100", 1, "ring/ll 4M ring/ll128 32M ring/simple"),
    ("dgx-a100", 2, "tree/ll 256K tree/ll128 16M ring/ll128 128M ring/simple"),
    ("dgx-a100", 16, "tree/ll 256K tree/ll128 256M ring/ll128 1G ring/simple"),
    ("dgx-a100", 512, "tree/ll 512K tree/ll128 512M tree/simple"),
    ("dgx-h100", 1, "ring/ll 2M nvls/simple"),
    ("dgx-h100", 2, "tree/ll 256K tree/ll128 2M nvls_tree/simple"),
    ("dgx-h100", 16, "tree/ll 256K tree/ll128 16M nvls_tree/simple"),
    ("dgx-h100", 512, "tree/ll 512K tree/ll128 64M nvls_tree/simple"),
    ("h100-1gpu", 2, "ring/ll 1M ring/ll128 16M ring/simple"),
    ("h100-1gpu", 16, "tree/ll 128K tree/ll128 16M ring/ll128 128M ring/simple"),
    ("h100-1gpu", 512, "tree/ll 256K tree/ll128 512M tree/simple 1G ring/ll128 4G ring/simple"),
]


@pytest.mark.parametrize(("machine", "nodes", "expected"), SWITCHES)
def test_all_reduce_changes_its_algorithm_where_nccl_does(machine, nodes, expected):
    table, words = cost_table(communicator(machine, nodes), "all_reduce"), []
    for power in range(10, 33):
        choice = table.choose(2**power)
        name = f"{choice.algorithm}/{choice.protocol}"
        if not words or name != words[-1]:
            unit, scale = next((u, s) for u, s in (("G", G), ("M", M), ("K", K)) if 2**power >= s)
            words += [f"{2**power // scale}{unit}", name]
    assert " ".join(words[1:]) == expected


@pytest.mark.parametrize(
    ("machine", "busbws"),
    [
        ("dgx1-v100", (119.9, 68.9, 47.4, 40.5)),
        ("dgx-a100", (239.6, 190.7, 181.8, 141.6)),
        ("dgx-h100", (475, 460, 361, 358)),
    ],
)
def test_4gib_all_reduce_bus_bandwidth(machine, busbws):
    for nodes, busbw in zip((1, 2, 16, 512), busbws, strict=True):
        comm = communicator(machine, nodes)
        time_us = cost_table(comm, "all_reduce").choose(4 * G).time_us
        found = 4 * G / time_us / 1e3 * 2 * (comm.ranks - 1) / comm.ranks
        assert found == pytest.approx(busbw, abs=0.5 if busbw > 300 else 0.05)


def test_4gib_all_gather_on_one_dgx_h100_stays_with_the_ring():
    choice = cost_table(communicator("dgx-h100"), "all_gather").choose(4 * G)
    assert choice.algorithm == "ring"
    assert 4 * G / choice.time_us / 1e3 * 7 / 8 == pytest.approx(358.9, abs=0.1)


def test_what_nccl_logs_for_all_reduce_on_two_dgx_h100():
    table = cost_table(communicator("dgx-h100", 2, settings=Settings("2.30")), "all_reduce")
    logged = {
        "tree": "25.2/16.6 48.5/124.8 92.4/140.8",
        "ring": "40.0/20.8 75.2/156.6 131.6/204.8",
        "nvls_tree": "0.0/0.0 0.0/0.0 66.8/246.2",
        "nvls": "0.0/0.0 0.0/0.0 0.0/0.0",
    }
    for algorithm, cells in logged.items():
        row = list(ALGORITHMS).index(algorithm)
        pairs = zip(table.latency_us[row], table.bandwidth[row], strict=True)
        assert " ".join(f"{latency:.1f}/{rate / 1e9:.1f}" for latency, rate in pairs) == cells


@pytest.mark.parametrize(("nodes", "end"), [(16, 16 * M), (512, G)])
def test_pat_wins_all_gather_up_to_a_size_with_one_gpu_a_node(nodes, end):
    table = cost_table(communicator("h100-1gpu", nodes), "all_gather")
    assert table.choose(64).algorithm == table.choose(end // 2).algorithm == "pat"
    assert table.choose(end).algorithm == "ring"


@pytest.mark.parametrize(
    ("version", "nodes", "algorithm", "protocol", "gbps"),
    [
        ("2.28", 1, "ring", "ll128", 16 * 45 * 0.92 * 8 / 14),
        ("2.29", 1, "ring", "ll128", 16 * 40 * 8 / 14),
        ("2.28", 2, "ring", "ll128", 8 * 34.6 * 16 / 30),
        ("2.30", 2, "ring", "ll128", 8 * 40 * 16 / 30),
        ("2.29", 4, "nvls_tree", "simple", 8 * 43.8 * 32 / 62),
        ("2.30.7", 4, "nvls_tree", "simple", 8 * 48 * 32 / 62),
    ],
)
def test_blackwell_differs_between_releases(version, nodes, algorithm, protocol, gbps):
    comm = communicator("dgx-b200", nodes, settings=Settings(version=version))
    assert cost_table(comm, "all_reduce").rate(algorithm, protocol) == pytest.approx(gbps * 1e9)


@pytest.mark.parametrize("machine", ["dgx1-v100", "dgx-a100", "dgx-h100"])
@pytest.mark.parametrize("nodes", [1, 2, 16])
def test_nothing_else_differs_between_releases(machine, nodes):
    for kind in FUNCTIONS:
        times = [
            cost_table(communicator(machine, nodes, settings=Settings(version=version)), kind).times_us(M)
            for version in ("2.28", "2.29", "2.30")
        ]
        np.testing.assert_array_equal(times[0], times[1])
        np.testing.assert_array_equal(times[0], times[2])


def test_nvls_trees_are_corrected_from_2_29_on_and_not_on_grace():
    def time_us(machine, version):
        comm = communicator(machine, 4, settings=Settings(version=version))
        table = cost_table(comm, "all_reduce")
        row = list(ALGORITHMS).index("nvls_tree")
        return table.times_us(M)[row, 2] - table.latency_us[row, 2], M / table.rate(
            "nvls_tree", "simple"
        ) * 1e6

    moving, ideal = time_us("dgx-b200", "2.29")
    assert moving == pytest.approx(ideal / 0.5)  # 1 MiB is step 14 of the Simple table
    for machine, version in (("dgx-b200", "2.28"), ("gb200-nvl72", "2.30")):
        moving, ideal = time_us(machine, version)
        assert moving == pytest.approx(ideal)


def test_trees_are_not_corrected_below_64_bytes_nor_from_512_mib_on():
    table = cost_table(communicator("dgx-a100", 2), "all_reduce")
    latency, rate = table.latency_us[0, 2], table.rate("tree", "simple")
    for nbytes, factor in ((63, 1), (64, 0.9), (512 * M - 1, 0.9), (512 * M, 1), (8 * G, 1)):
        assert table.times_us(nbytes)[0, 2] == pytest.approx(latency + nbytes / rate / factor * 1e6)


def test_collectives_in_a_group_repeat_the_latency():
    comm = communicator("dgx-a100")
    table = cost_table(comm, "all_reduce")
    ring, tree = list(ALGORITHMS).index("ring"), 0
    for queued, ring_times, tree_times in ((24, 1, 1), (25, 2, 1), (24 * 8, 8, 1), (24 * 8 + 1, 9, 2)):
        times = table.times_us(0, queued)[:, 0]
        assert times[ring] == pytest.approx(ring_times * table.latency_us[ring, 0])
        assert times[tree] == pytest.approx(tree_times * table.latency_us[tree, 0])


def test_float8_avoids_long_rings():
    comm = communicator("dgx-h100", 2)
    ring = list(ALGORITHMS).index("ring")
    times = [cost_table(comm, "all_reduce", dtype).times_us(M) for dtype in ("float32", "float8_e4m3fn")]
    assert times[1][ring] == pytest.approx(1024 * times[0][ring])
    assert times[1][0] == pytest.approx(times[0][0])
    one_node = cost_table(communicator("dgx-h100"), "all_reduce", "float8_e4m3fn").times_us(M)
    assert one_node[ring, 0] == cost_table(communicator("dgx-h100"), "all_reduce").times_us(M)[ring, 0]


def test_broadcast_pays_one_hop_where_all_channels_are_alike_and_every_hop_otherwise():
    alike = cost_table(communicator("dgx-a100"), "broadcast").latency_us
    ring = list(ALGORITHMS).index("ring")
    assert alike[ring] == pytest.approx([6.6 + 0.6, 14 + 1.9, 8.4 + 3.4])
    apart = cost_table(communicator("dgx-a100", 2), "reduce").latency_us
    assert apart[ring] == pytest.approx([6.6 + 16 * 2.7, 14 + 16 * 4, 8.4 + 16 * 14])


def test_net_overhead_and_power_cpus_change_latencies():
    ring = list(ALGORITHMS).index("ring")

    def latency(**settings):
        return cost_table(
            communicator("dgx-a100", 2, settings=Settings(**settings)), "all_gather"
        ).latency_us[ring]

    assert latency() == pytest.approx([6.6 + 14 * 2 + 2.7, 14 + 14 * 2 + 4, 8.4 + 14 * 6 + 14])
    assert latency(net_overhead_us=0) == pytest.approx(
        [6.6 + 14 * 0.6 + 2.7, 14 + 14 * 1.9 + 4, 8.4 + 14 * 3.4 + 14]
    )


machines = st.sampled_from(sorted(SYSTEMS))
node_counts = st.sampled_from([1, 2, 3, 7, 16, 100, 512])
sizes = st.integers(0, 8 * G)


@given(machines, node_counts, st.sampled_from(sorted(FUNCTIONS)), sizes, st.integers(0, G))
def test_times_are_positive_and_more_bytes_never_take_less(machine, nodes, kind, nbytes, more):
    if machine == "h100-1gpu" and nodes == 1:
        nodes = 2
    comm = communicator(machine, nodes)
    table = cost_table(comm, kind)
    less, larger = table.times_us([nbytes, nbytes + more])
    assert not np.isnan(less).any()
    assert (less > 0).all()
    # a step of the tree's correction table, or the ring's plateau, is NCCL's own jump
    assert ((larger >= less) | (nbytes.bit_length() != (nbytes + more).bit_length())).all()
    assert math.isfinite(table.choose(nbytes).time_us)


@given(machines, st.sampled_from([2, 3, 16, 512]), sizes)
def test_a_vector_of_sizes_gives_what_each_size_gives(machine, nodes, nbytes):
    table = cost_table(communicator(machine, nodes), "all_reduce")
    np.testing.assert_array_equal(table.times_us([nbytes, 2 * nbytes])[0], table.times_us(nbytes))


@given(machines, st.sampled_from([2, 16]), sizes)
def test_a_pinned_choice_costs_what_the_free_table_says(machine, nodes, nbytes):
    free = cost_table(communicator(machine, nodes), "all_reduce")
    pins = Settings(pins=Pins("ring", "simple"))
    pinned = cost_table(communicator(machine, nodes, settings=pins), "all_reduce").choose(nbytes)
    assert pinned.time_us == free.times_us(nbytes)[1, 2]
    assert pinned.time_us >= free.choose(nbytes).time_us


def test_a_sweep_of_all_sizes_and_node_counts_is_quick():
    cost_table.cache_clear()
    started = time.process_time()
    for nodes in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512):
        for kind in FUNCTIONS:
            cost_table(communicator("dgx-h100", nodes), kind).times_us(2 ** np.arange(3, 34))
    assert time.process_time() - started < 2


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: communicator("dgx-z9"), "no NCCL graphs for machine 'dgx-z9'.*dgx-h100"),
        (lambda: communicator("dgx-h100", 0), "0 nodes; write 1 or more"),
        (
            lambda: communicator("dgx-h100", 1, 9),
            "9 ranks a node, but dgx-h100 has room for 8; allowed: 1 to 8",
        ),
        (lambda: communicator("h100-1gpu"), "1 rank"),
        (lambda: Settings(max_ctas=65), "allowed: 1 to 64"),
        (lambda: cost_table(communicator("dgx-h100"), "all_to_all"), "'all_to_all' is not in NCCL's tuner"),
    ],
)
def test_what_is_refused_says_what_to_write(call, message):
    with pytest.raises(ValueError, match=message):
        call()
