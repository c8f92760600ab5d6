import csv
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringside.sim.libraries.nccl import SYSTEMS, PathClass, Settings, communicator, rings, trees

machines = st.sampled_from(sorted(set(SYSTEMS) - {"gb200-nvl72"}))  # whose search takes seconds
node_counts = st.sampled_from([1, 2, 3, 4, 5, 8, 13, 16, 31])


def comm_of(machine, nodes):
    return communicator(machine, max(nodes, 2) if SYSTEMS[machine].gpus == 1 else nodes)


SAMPLE = Path(__file__).parents[1] / "data" / "nccl_channels_sample.csv"
MACHINES = {
    "dgx1v": SYSTEMS["dgx1-v100"],
    "dgxa100": SYSTEMS["dgx-a100"],
    "dgxh100": SYSTEMS["dgx-h100"],
    "dgxb200": SYSTEMS["dgx-b200"],
    "pcie4a100": SYSTEMS["a100-pcie4"],
    "h100x1": SYSTEMS["h100-1gpu"],
    "h200shared2": replace(SYSTEMS["h100-1gpu"], ranks_per_gpu=2),
}


def sample():
    """Return NCCL's own channels, by machine and node count."""
    with SAMPLE.open(encoding="ascii") as file:
        lines = [line for line in file if not line.startswith("#")]
    for key, rows in groupby(csv.DictReader(lines), lambda row: (row["system"], int(row["nNodes"]))):
        yield pytest.param(*key, list(rows), id=f"{key[0]}:{key[1]}")


@pytest.mark.parametrize(("name", "nodes", "rows"), list(sample()))
def test_every_ring_and_tree_is_nccls_own(name, nodes, rows):
    comm = communicator(MACHINES[name], nodes)
    found_rings, found_trees = rings(comm), trees(comm)
    assert len(rows) == len(found_rings) * comm.ranks
    for row in rows:
        channel, rank = int(row["channel"]), int(row["rank"])
        ring, tree = found_rings[channel].tolist(), found_trees[channel]
        place = ring.index(rank)
        neighbours = ring[place - 1], ring[(place + 1) % len(ring)]
        assert neighbours == (int(row["ring_prev"]), int(row["ring_next"]))
        assert tree.parent[rank] == int(row["tree_up"])
        below = [int(row[f"tree_down{child}"]) for child in range(3)]
        assert tree.children(rank) == [child for child in below if child >= 0]


def test_rings_of_a_mesh_keep_to_pairs_that_have_nvlink():
    pairs = {(a, b) for a, b, _ in SYSTEMS["dgx1-v100"].cabling}
    for nodes in (1, 2, 4):
        comm = communicator("dgx1-v100", nodes)
        for ring in rings(comm):
            for src, dst in zip(ring, np.roll(ring, -1), strict=True):
                if src // 8 == dst // 8:
                    assert tuple(sorted((src % 8, dst % 8))) in pairs


@pytest.mark.parametrize(("ranks", "channels"), [(2, 64), (4, 64), (7, 64), (8, 56)])
def test_ranks_on_one_gpu_have_the_channels_that_nccls_search_has_time_for(ranks, channels):
    """Eight ranks take nine steps a channel of the 256 that a pass of like channels has: 28, used twice."""
    comm = communicator(replace(SYSTEMS["h100-1gpu"], ranks_per_gpu=ranks), 1)
    assert (comm.gpus, comm.channels) == (ranks, channels)
    assert comm.graphs.ring.type_intra is PathClass.LOC


def test_ranks_that_share_gpus_pass_through_one_gpu_before_the_next():
    comm = communicator(replace(SYSTEMS["dgx-h100"], ranks_per_gpu=2), 1)
    assert comm.ranks == 16
    for ring in rings(comm):
        crossings = sum(a // 2 != b // 2 for a, b in zip(ring, np.roll(ring, -1), strict=True))
        assert crossings == 8


def test_a_gpu_is_not_shared_before_2_30():
    with pytest.raises(ValueError, match=r"NCCL 2\.28 refuses several ranks on one GPU"):
        communicator(replace(SYSTEMS["h100-1gpu"], ranks_per_gpu=2), settings=Settings(version="2.28"))


def test_the_last_reason_for_the_number_of_channels_is_the_number():
    for comm in (
        communicator("dgx-h100", 2),
        communicator("h100-1gpu", 4),
        communicator("dgx-a100", settings=Settings(max_ctas=4)),
        communicator("dgx-a100", settings=Settings(min_ctas=40)),
    ):
        counts = comm.channel_counts
        assert counts[0][0] == comm.graphs.ring.channels
        assert counts[-1][0] == comm.channels == len(rings(comm))
    assert "NCCL_MIN_CTAS is 40" in counts[-1][1]


def test_two_dgx_h100_run_the_ring_that_nccl_finds_each_edge_between_nodes_on_one_rail():
    found = rings(communicator("dgx-h100", 2))
    assert list(found[0]) == [0, 7, 6, 5, 4, 3, 2, 1, 9, 10, 11, 12, 13, 14, 15, 8]
    for ring in found:
        for src, dst in zip(ring, np.roll(ring, -1), strict=True):
            if src // 8 != dst // 8:
                assert src % 8 == dst % 8
    assert {(ring[7], ring[8]) for ring in found} == {(gpu, 8 + gpu) for gpu in range(8)}


def test_rings_that_share_a_switch_leave_beside_where_they_came_in():
    for ring in rings(communicator("dgx-a100", 2)):
        assert ring[0] // 2 == ring[7] // 2


@given(machines, node_counts)
def test_every_ring_visits_every_rank_once_node_after_node(machine, nodes):
    comm = comm_of(machine, nodes)
    found = rings(comm)
    assert len(found) == comm.channels
    for ring in found:
        assert sorted(ring) == list(range(comm.ranks))
        assert (np.diff(ring // comm.gpus) >= 0).all()


@given(machines, node_counts)
def test_every_tree_reaches_every_rank_with_at_most_three_children(machine, nodes):
    comm = comm_of(machine, nodes)
    found = trees(comm)
    assert len(found) == comm.channels
    for tree in found:
        (root,) = np.flatnonzero(tree.parent < 0)
        above = tree.parent.copy()
        for _ in range(comm.ranks):
            above = np.where(above < 0, -1, tree.parent[above])
            if (above < 0).all():
                break
        assert (above < 0).all()
        degree = np.bincount(tree.parent[tree.parent >= 0], minlength=comm.ranks)
        assert degree.max(initial=0) <= 3
        assert degree[root] <= 2
        inside = np.delete(tree.slot == 0, root)
        same_node = np.delete(tree.parent // comm.gpus == np.arange(comm.ranks) // comm.gpus, root)
        assert (inside == same_node).all()


def nodes_inside(tree, gpus):
    """Return the nodes that have a child node."""
    nodes = np.arange(len(tree.parent)) // gpus
    crossing = (tree.parent >= 0) & (tree.parent // gpus != nodes)
    return set((tree.parent[crossing] // gpus).tolist())


@given(st.sampled_from(["dgx1-v100", "dgx-a100", "dgx-h100", "h100-1gpu"]), st.integers(2, 40))
def test_the_second_half_of_the_channels_has_the_other_tree_of_the_pair(machine, nodes):
    comm = comm_of(machine, nodes)
    found = trees(comm)
    half = comm.graphs.tree.channels
    for channel in range(half):
        both = nodes_inside(found[channel], comm.gpus) & nodes_inside(found[channel + half], comm.gpus)
        assert len(both) == nodes % 2


@pytest.mark.parametrize(
    ("machine", "children"),
    [
        # two nodes: node 1 is the second child of node 0, and node 0 of node 1 in the other tree
        ("dgx-h100", {0: {0: [1, 8], 8: [9]}, 8: {8: [9, 0], 0: [1]}}),
        ("dgx-a100", {0: {0: [1, 8], 8: [9]}, 8: {8: [9, 0], 0: [1]}}),
    ],
)
def test_two_nodes_by_hand(machine, children):
    found = trees(communicator(machine, 2))
    for channel, ranks in children.items():
        for rank, below in ranks.items():
            assert found[channel].children(rank) == below


def test_balanced_trees_spread_the_children_of_a_node_over_two_gpus():
    # four nodes, first tree: node 2 has children 1 and 3, of which 1 is the first
    tree = trees(communicator("dgx-a100", 4))[0]
    assert tree.parent[8] == 17
    assert tree.parent[24] == 16
    assert (tree.slot[8], tree.slot[24]) == (1, 2)
    plain = trees(communicator("dgx-h100", 4))[0]
    assert plain.children(16) == [17, 8, 24]
