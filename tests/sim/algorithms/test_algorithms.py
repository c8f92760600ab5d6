import re
from collections import defaultdict

import numpy as np
import pytest

from ringside.sim.algorithms import ALGORITHMS, algorithms_for, register, schedule
from ringside.sim.algorithms.pipeline import chunk_size
from ringside.sim.collective import KINDS, Collective
from ringside.sim.schedule import Ints, Schedule, ScheduleError
from ringside.sim.trees import depths, heights, parents, trees

# NCCL's own two trees, "id:parent(child0,child1)" (src/graph/trees.cc, v2.30.7)
NCCL_TREES = """
n= 2  T0  0:-(-,1) 1:0(-,-)
      T1  0:1(-,-) 1:-(-,0)
n= 3  T0  0:-(-,2) 1:2(-,-) 2:0(1,-)
      T1  0:1(2,-) 1:-(-,0) 2:0(-,-)
n= 4  T0  0:-(-,2) 1:2(-,-) 2:0(1,3) 3:2(-,-)
      T1  0:1(-,-) 1:3(2,0) 2:1(-,-) 3:-(-,1)
n= 5  T0  0:-(-,4) 1:2(-,-) 2:4(1,3) 3:2(-,-) 4:0(2,-)
      T1  0:1(3,-) 1:-(-,0) 2:3(-,-) 3:0(2,4) 4:3(-,-)
n= 6  T0  0:-(-,4) 1:2(-,-) 2:4(1,3) 3:2(-,-) 4:0(2,5) 5:4(-,-)
      T1  0:1(-,-) 1:5(3,0) 2:3(-,-) 3:1(4,2) 4:3(-,-) 5:-(-,1)
n= 7  T0  0:-(-,4) 1:2(-,-) 2:4(1,3) 3:2(-,-) 4:0(2,6) 5:6(-,-) 6:4(5,-)
      T1  0:5(6,-) 1:-(-,5) 2:3(-,-) 3:5(2,4) 4:3(-,-) 5:1(3,0) 6:0(-,-)
n= 8  T0  0:-(-,4) 1:2(-,-) 2:4(1,3) 3:2(-,-) 4:0(2,6) 5:6(-,-) 6:4(5,7) 7:6(-,-)
      T1  0:1(-,-) 1:3(2,0) 2:1(-,-) 3:7(5,1) 4:5(-,-) 5:3(6,4) 6:5(-,-) 7:-(-,3)
n= 9  T0  0:-(-,8) 1:2(-,-) 2:4(1,3) 3:2(-,-) 4:8(2,6) 5:6(-,-) 6:4(5,7) 7:6(-,-) 8:0(4,-)
      T1  0:1(5,-) 1:-(-,0) 2:3(-,-) 3:5(2,4) 4:3(-,-) 5:0(3,7) 6:7(-,-) 7:5(6,8) 8:7(-,-)
n=10  T0  0:-(-,8) 1:2(-,-) 2:4(1,3) 3:2(-,-) 4:8(2,6) 5:6(-,-) 6:4(5,7) 7:6(-,-) 8:0(4,9) 9:8(-,-)
      T1  0:1(-,-) 1:9(5,0) 2:3(-,-) 3:5(4,2) 4:3(-,-) 5:1(7,3) 6:7(-,-) 7:5(8,6) 8:7(-,-) 9:-(-,1)
"""


def table() -> dict[int, list[list[int]]]:
    found: dict[int, list[list[int]]] = defaultdict(list)
    ranks = 0
    for line in NCCL_TREES.strip().splitlines():
        heading = re.match(r"n= *(\d+)", line)
        ranks = int(heading[1]) if heading else ranks
        found[ranks].append([int(p) if p != "-" else -1 for p in re.findall(r"\d+:(\d+|-)\(", line)])
    return found


def per_rank(plan: Schedule) -> tuple[Ints, Ints]:
    sent, received = np.zeros(plan.ranks, dtype=np.int64), np.zeros(plan.ranks, dtype=np.int64)
    for (src, dst), nbytes in plan.traffic().items():
        sent[src] += nbytes
        received[dst] += nbytes
    return sent, received


@pytest.mark.parametrize("ranks", range(2, 11))
def test_both_trees_are_nccls(ranks: int) -> None:
    assert [tree.tolist() for tree in trees(ranks)] == table()[ranks]


def test_a_rank_is_inner_in_one_tree_and_leaf_in_the_other() -> None:
    for ranks in range(2, 2049):
        inner = [np.isin(np.arange(ranks), tree[tree >= 0]) for tree in trees(ranks)]
        assert (inner[0] & inner[1]).sum() == ranks % 2
        if ranks % 2 == 0:
            assert (inner[0] ^ inner[1]).all()


def test_every_tree_is_one_binary_tree_as_deep_as_it_must_be() -> None:
    for ranks in (*range(1, 70), 127, 128, 512, 1000, 1024, 2048):
        for tree in trees(ranks):
            assert (tree < 0).sum() == 1
            assert np.bincount(tree[tree >= 0], minlength=1).max(initial=0) <= 2
            assert depths(tree).max() == (ranks - 1).bit_length()
            assert heights(tree).max() == depths(tree).max()


def test_the_deepest_ranks_of_one_tree_are_known() -> None:
    assert parents(1).tolist() == [-1]
    assert depths(parents(8)).tolist() == [0, 3, 2, 3, 1, 3, 2, 3]
    assert heights(parents(8)).tolist() == [3, 0, 1, 0, 2, 0, 1, 0]


@pytest.mark.parametrize("ranks", [2, 3, 4, 8, 13, 64])
def test_a_ring_moves_twice_the_others_share_through_every_port(ranks: int) -> None:
    size = 5040 * ranks
    for sums in per_rank(schedule("ring", Collective("all_reduce", ranks, size))):
        assert (sums == 2 * size * (ranks - 1) // ranks).all()


@pytest.mark.parametrize("kind", ["all_gather", "reduce_scatter"])
@pytest.mark.parametrize("algorithm", ["ring", "direct"])
def test_the_halves_of_a_ring_move_the_others_share(algorithm: str, kind: str) -> None:
    for sums in per_rank(schedule(algorithm, Collective(kind, 6, 6000))):
        assert (sums == 5000).all()


@pytest.mark.parametrize("ranks", [2, 3, 4, 8, 13, 64])
def test_a_tree_moves_three_times_the_size_through_its_busiest_port(ranks: int) -> None:
    size = 1 << 20
    sent, received = per_rank(schedule("tree", Collective("all_reduce", ranks, size)))
    busiest = size * (1 if ranks == 2 else 2 if ranks == 3 else 3)
    assert max(sent.max(), received.max()) == busiest


@pytest.mark.parametrize("ranks", [*range(2, 40), 64, 255, 256])
def test_two_trees_move_twice_the_size_through_any_port_at_most(ranks: int) -> None:
    size = 1 << 20
    sent, received = per_rank(schedule("double_binary_tree", Collective("all_reduce", ranks, size)))
    # an odd number of ranks has one that is inner in both trees
    busiest = 2 * size if ranks % 2 == 0 else 3 * size
    assert max(sent.max(), received.max()) <= busiest
    assert (sent == 2 * size).sum() + (received == 2 * size).sum() <= 2 * ranks
    assert sent.sum() == 2 * (ranks - 1) * size


@pytest.mark.parametrize("ranks", [2, 4, 8, 64])
def test_halving_doubling_moves_what_a_ring_does_in_fewer_steps(ranks: int) -> None:
    plan = schedule("halving_doubling", Collective("all_reduce", ranks, 5040 * ranks))
    for sums in per_rank(plan):
        assert (sums == 2 * 5040 * (ranks - 1)).all()
    assert sum(1 for _ in plan.steps()) == 2 * (ranks.bit_length() - 1)


def test_both_trees_of_a_pair_carry_half_of_the_data_on_a_channel_of_their_own() -> None:
    plan = schedule("double_binary_tree", Collective("all_reduce", 16, 1 << 20))
    carried: dict[int, int] = defaultdict(int)
    for moved in plan.steps():
        for channel, nbytes in zip(moved.channel.tolist(), plan.nbytes(moved).tolist(), strict=True):
            carried[channel] += nbytes
    assert carried == {0: 15 << 20, 1: 15 << 20}


@pytest.mark.parametrize("kind", KINDS)
def test_every_collective_has_an_algorithm(kind: str) -> None:
    assert algorithms_for(kind)


def test_the_issues_algorithms_are_registered() -> None:
    assert set(ALGORITHMS) >= {"ring", "tree", "double_binary_tree", "halving_doubling", "direct"}
    assert {"all_reduce", "reduce_scatter", "all_gather", "broadcast"} <= set(ALGORITHMS["ring"])


def test_unknown_algorithms_and_collectives_they_do_not_do_are_refused() -> None:
    with pytest.raises(ValueError, match="unknown algorithm 'star'; write one of ring, tree"):
        schedule("star", Collective("all_reduce", 4, 64))
    with pytest.raises(
        ValueError, match="halving_doubling does not do broadcast; it does all_reduce, reduce, and"
    ):
        schedule("halving_doubling", Collective("broadcast", 4, 64))


def test_an_algorithm_that_does_not_check_cannot_be_registered() -> None:
    def lazy(collective: Collective) -> Schedule:
        done = schedule("ring", collective)
        return Schedule(collective, "lazy", done.chunks, lambda: iter(()))

    with pytest.raises(ScheduleError, match="lazy all_reduce on 2 ranks: at the end rank 0 lacks"):
        register("lazy", "all_reduce", lazy)
    assert "lazy" not in ALGORITHMS


def test_chunks_grow_with_the_root_of_the_message_and_never_shrink() -> None:
    sizes = [chunk_size(nbytes) for nbytes in range(0, 1 << 20, 997)]
    assert sizes == sorted(sizes)
    assert chunk_size(0) == chunk_size(1) == 4096
    assert chunk_size(1 << 30) == 1 << 21
